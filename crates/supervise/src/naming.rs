//! The name of the program that a living process runs. Must never decide what is run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

pub(crate) use stormlog_model::naming::ProgramName;

/// The script comes early in a command line.
const MOST_OF_A_COMMAND: usize = 64 << 10;

/// The command line of a process; `None` when that cannot be read any more.
pub(crate) fn command_of(pid: u32) -> Option<Vec<OsString>> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|text| !text.is_empty())?;
    let text = &text[..text.len().min(MOST_OF_A_COMMAND)];
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    Some(text.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect())
}
