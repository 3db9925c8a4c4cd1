//! Becoming the `stormlog` beside this program under another name: one program has four names, and a wheel cannot hold links.
//!
//! Uses nothing but the standard library: these programs are 3 % of the size of the one they start.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The status a shell has for a program that is not there.
const NOT_FOUND: u8 = 127;

/// Returns only when `stormlog` cannot be started.
pub fn become_stormlog(name: &str) -> ExitCode {
    // Links resolved: another directory may link to this program without linking to its neighbour.
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(name));
    let stormlog = own.with_file_name("stormlog");
    let error = Command::new(&stormlog).arg0(name).args(std::env::args_os().skip(1)).exec();
    let program = stormlog.display();
    let _ = writeln!(io::stderr(), "{name}: {program} cannot be started: {error}; reinstall stormlog");
    ExitCode::from(NOT_FOUND)
}
