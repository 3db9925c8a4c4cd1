//! The launcher of `run --limit`: sets the limit on itself and becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) bytes: u64,
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (program, arguments) = options.command.split_first().context("no command given")?;
    let limit = Rlimit { current: Some(options.bytes), maximum: Some(options.bytes) };
    setrlimit(Resource::As, limit).context("the limit was refused")?;
    // Returns only when it failed.
    let error = Command::new(program).args(arguments).env_remove(stormlog_supervise::PYTHON).exec();
    Err(error).with_context(|| program.to_string_lossy().into_owned())
}
