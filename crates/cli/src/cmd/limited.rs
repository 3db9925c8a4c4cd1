//! The launcher of `run --limit`: sets the limit on itself and becomes the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::run_start;
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) bytes: u64,
    /// `NAME=VALUE`, set for the program and not for this launcher: a preloaded library would record the launcher too.
    pub(crate) env: Vec<OsString>,
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (program, arguments) = options.command.split_first().context("no command given")?;
    let limit = Rlimit { current: Some(options.bytes), maximum: Some(options.bytes) };
    setrlimit(Resource::As, limit).context("the limit was refused")?;
    // Returns only when it failed.
    let mut becoming = Command::new(program);
    becoming.args(arguments);
    for word in &options.env {
        let equals =
            word.as_bytes().iter().position(|byte| *byte == b'=').context("--env takes NAME=VALUE")?;
        let (name, value) = word.as_bytes().split_at(equals);
        becoming.env(OsStr::from_bytes(name), OsStr::from_bytes(&value[1..]));
    }
    let error = becoming.exec();
    Err(run_start::refused(program, &error).into())
}
