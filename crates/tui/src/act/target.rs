//! A process that is to be signalled: held by a descriptor from the moment it is looked at, so that a later process of its number is never hit.

use std::os::unix::fs::MetadataExt;

use stormlog_collect::process::ProcessReader;
use stormlog_collect::user_name;
use stormlog_model::scrub;
use stormlog_model::text::command_line;
use stormlog_pidfd::{Pidfd, Signal};

use crate::state::actions::SignalName;

/// The process, and what the user must know of it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    pub(crate) user: String,
    pub(crate) command: String,
    held: Pidfd,
}

impl Target {
    /// Holds the process of a number, where this user may signal it.
    pub(crate) fn open(pid: u32) -> Result<Target, String> {
        if pid == std::process::id() {
            return Err("that is this terminal UI itself; press q to quit it".to_owned());
        }
        let held = Pidfd::open(pid).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => {
                format!("there is no process {pid}")
            }
            _ => format!("process {pid}: {error}"),
        })?;
        let gone = || format!("process {pid} has ended");
        let uid = std::fs::metadata(format!("/proc/{pid}")).map_err(|_| gone())?.uid();
        let mut reader = ProcessReader::open(pid).map_err(|_| gone())?;
        let words = reader.command_line().map(|line| line.arguments).unwrap_or_default();
        let command = match words.is_empty() {
            true => reader.stat().map(|stat| format!("[{}]", stat.comm)).map_err(|_| gone())?,
            false => command_line(&scrub::command(&words)),
        };
        // The process that is held lived until now, so that what was read under its number is its own.
        if held.has_ended().unwrap_or(true) {
            return Err(gone());
        }
        let user = user_name(uid).unwrap_or_else(|| format!("user {uid}"));
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() != uid {
            return Err(format!("process {pid} is {user}'s: only its owner or root may signal it"));
        }
        Ok(Target { pid, user, command, held })
    }

    /// Sends the signal to the process that was looked at.
    pub(crate) fn signal(&self, name: SignalName) -> Result<(), String> {
        let signal = match name {
            SignalName::Term => Signal::TERM,
            SignalName::Int => Signal::INT,
            SignalName::Kill => Signal::KILL,
            SignalName::Stop => Signal::STOP,
            SignalName::Cont => Signal::CONT,
        };
        self.held.signal(signal).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => {
                format!("process {} has ended; no signal was sent", self.pid)
            }
            _ => format!("process {}: {error}", self.pid),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn signal_goes_to_the_process_that_was_shown() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        // The words are in place a moment after the new program is.
        while std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {}
        let target = Target::open(child.id()).unwrap();
        assert_eq!((target.pid, target.command.as_str()), (child.id(), "sleep 600"));
        assert!(!target.user.is_empty());
        target.signal(SignalName::Term).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(target.signal(SignalName::Kill).unwrap_err().contains("has ended"));
    }

    #[test]
    fn no_process_and_this_one_are_refused() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Target::open(child.id()).unwrap_err().contains("no process"));
        assert!(Target::open(std::process::id()).unwrap_err().contains("terminal UI itself"));
    }
}
