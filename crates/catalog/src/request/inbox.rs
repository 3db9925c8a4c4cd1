//! The requests to one process, as the side that answers sees them.

use std::path::{Path, PathBuf};

use stormlog_store::wall_ns;

use super::{Answer, Request, State, listener_of, names, read};
use crate::run::layout::{REQUESTS_DIRECTORY, request_parts};

/// Takes the requests to one process.
#[derive(Debug, Clone)]
pub struct Inbox {
    run: PathBuf,
    pid: u32,
    start_ticks: Option<u64>,
    user: u32,
}

impl Inbox {
    /// Of a process that runs as `user`.
    #[must_use]
    pub fn new(run: &Path, pid: u32, start_ticks: Option<u64>, user: u32) -> Self {
        Inbox { run: run.to_owned(), pid, start_ticks, user }
    }

    /// Of this process.
    #[must_use]
    pub fn own(run: &Path) -> Self {
        let pid = std::process::id();
        Inbox::new(run, pid, stormlog_liveness::start_ticks(pid), rustix::process::geteuid().as_raw())
    }

    /// Takes every request that is there; one look costs the reading of one directory. Requests that do not count are answered with the reason.
    #[must_use]
    pub fn take(&self) -> Vec<Request> {
        let directory = self.run.join(REQUESTS_DIRECTORY);
        let names = names(&directory);
        let own = names.iter().filter_map(|name| {
            request_parts(name).filter(|(pid, _)| *pid == self.pid).map(|(_, id)| (name, id))
        });
        own.filter_map(|(name, id)| self.take_one(&directory.join(name), id)).collect()
    }

    fn take_one(&self, path: &Path, id: &str) -> Option<Request> {
        let found = read::<Request>(path);
        // Two may look for requests of one process: the one that removes the file has it.
        std::fs::remove_file(path).ok()?;
        match found {
            None => {
                self.refuse(id, "the request is not a regular file in the expected format, or is too large")
            }
            Some((_, owner)) if owner != self.user && owner != 0 => {
                self.refuse(id, "the request is not from the user of the process or root")
            }
            Some((request, _)) if request.id != id || request.pid != self.pid => {
                self.refuse(id, "the request is for another process")
            }
            Some((request, _))
                if request.start_ticks.is_some()
                    && self.start_ticks.is_some()
                    && request.start_ticks != self.start_ticks =>
            {
                self.refuse(id, "the process has exited and its PID was reused by another process")
            }
            Some((request, _)) if request.expires_at_ns.is_some_and(|at| at <= wall_ns() as i64) => {
                self.refuse(id, "the request expired before the process could answer it")
            }
            Some((request, _)) => Some(request),
        }
    }

    fn refuse(&self, id: &str, reason: &str) -> Option<Request> {
        let answer = Answer {
            id: id.to_owned(),
            pid: self.pid,
            state: State::Refused,
            path: None,
            reason: Some(reason.to_owned()),
            step: None,
            answered_at_ns: wall_ns() as i64,
        };
        // A full disk costs the sentence.
        let _ = answer.write(&self.run);
        None
    }
}

/// The processes of a run that are asked for something and do not take requests themselves.
#[must_use]
pub fn pending_without_listener(run: &Path) -> Vec<u32> {
    let asked = names(&run.join(REQUESTS_DIRECTORY));
    let mut pids: Vec<u32> =
        asked.iter().filter_map(|name| request_parts(name)).map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| listener_of(run, *pid).is_none());
    pids
}
