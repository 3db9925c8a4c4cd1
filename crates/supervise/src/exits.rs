//! How a process ended that is not our child: its own parent reaps it, and that must not change.
//!
//! Two sources, in this order: the pidfd, which since Linux 6.15 keeps the status after the parent has reaped the process; the
//! zombie, whose `/proc/PID/stat` has it until then. Without either the status is unknown. Must never wait for, reap or signal a process.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use stormlog_collect::process::ProcessReader;
use stormlog_pidfd::Pidfd;

use crate::outcome::Ended;

/// Watches for the end of one process.
pub(crate) struct Exit {
    pidfd: Option<Pidfd>,
    /// A pidfd stays readable for ever: an end that was reported once is not waited for again.
    is_reported: bool,
}

impl Exit {
    /// Of the process that `reader` reads.
    pub(crate) fn of(pid: u32, reader: Option<&mut ProcessReader>) -> Self {
        let pidfd = Pidfd::open(pid).ok();
        // Opened by number: it is the reader's process if that one still has its number.
        let is_same = reader.is_some_and(|reader| reader.stat().is_ok());
        Exit { pidfd: pidfd.filter(|_| is_same), is_reported: false }
    }

    /// What becomes readable when the process ends.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().filter(|_| !self.is_reported).map(AsFd::as_fd)
    }

    /// How it ended; `None` while it lives.
    pub(crate) fn look(&mut self, reader: Option<&mut ProcessReader>) -> Option<Ended> {
        let ended = self.remembered().or_else(|| match reader.map(|reader| (reader.pid(), reader.stat())) {
            Some((pid, Ok(stat))) if stat.has_exited() => Some(of_zombie(pid, stat.exit_code)),
            Some((_, Ok(_))) => None,
            // Reaped between the two looks.
            Some((_, Err(_))) | None => Some(self.remembered().unwrap_or(Ended::Unknown)),
        });
        self.is_reported |= ended.is_some();
        ended
    }

    /// Not to be waited for any more.
    pub(crate) fn forget(&mut self) {
        self.is_reported = true;
    }

    fn remembered(&self) -> Option<Ended> {
        self.pidfd.as_ref().and_then(Pidfd::exit_status).map(Ended::from)
    }
}

/// To a reader without permission the kernel shows 0, which is then not an exit code.
fn of_zombie(pid: u32, status: Option<i32>) -> Ended {
    let us = rustix::process::geteuid().as_raw();
    let is_ours =
        || us == 0 || std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|entry| entry.uid() == us);
    match status {
        Some(0) if !is_ours() => Ended::Unknown,
        Some(status) => ExitStatus::from_raw(status).into(),
        None => Ended::Unknown,
    }
}
