//! `jaxmemprof track --profile`: the memory profile of the program that was watched, written by the program itself: its arrays are not visible from outside.

use std::io::{self, Write};
use std::time::Duration;

use stormlog_catalog::frameworks::JAX_PROFILE;

use crate::cmd::record::watch::{Reason, Screen};
use crate::cmd::snapshot::live;

/// How long the program may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Its path; where there is none, a warning says why.
pub(crate) fn take(screen: &mut Screen, pid: Option<u32>, reason: &Reason) -> io::Result<Option<String>> {
    let found = match (pid, reason) {
        (None, _) => Err("needs the process that uses JAX: pass --pid PID".to_owned()),
        (Some(pid), Reason::Departed(_)) => Err(format!("process {pid} has ended")),
        (Some(pid), _) => ask(pid),
    };
    match found {
        Ok(path) => {
            screen.line(&format!("Device memory profile saved to: {path}"));
            Ok(Some(path))
        }
        Err(why) => {
            writeln!(io::stderr(), "Warning: --profile: {why}")?;
            Ok(None)
        }
    }
}

fn ask(pid: u32) -> Result<String, String> {
    let directory = live::of_process(pid, PATIENCE).map_err(|error| format!("{error:#}"))?;
    let directory = directory.ok_or_else(|| {
        format!(
            "process {pid} takes no requests; start it with `stormlog run`, or import stormlog.auto in it"
        )
    })?;
    let path = directory.join(JAX_PROFILE);
    match path.is_file() {
        true => Ok(path.display().to_string()),
        false => Err(format!("process {pid} has not used a device of JAX yet")),
    }
}
