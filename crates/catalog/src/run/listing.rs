//! The processes of a run as a screen lists them, several times a second: which there are, with their sessions and captures.
//!
//! Reads manifests and heads of captures only, and judges nothing; all that belongs to a process is joined by [`Run::load`](super::Run::load).
//! Must stay bounded for a run of any number of processes.

use std::path::{Path, PathBuf};

use stormlog_model::{SessionSummary, scrub};
use stormlog_store::recording::read_session;

use super::layout::{CAPTURES_DIRECTORY, SessionName, is_session};
use super::record::RunRecord;
use crate::captures::{CaptureHead, captures_in, last_capture};

/// Most processes of one run that are listed.
const MOST: usize = 1024;

/// A process in a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedProcess {
    /// Its number; 0 where no file has it.
    pub pid: u32,
    /// Its rank, where it is one of several.
    pub rank: Option<u32>,
    /// The program and its arguments, without secrets; empty where no file has it.
    pub command: Vec<String>,
    /// Its session, as seen from outside.
    pub session: Option<PathBuf>,
    /// All its sessions: that one first, then those from inside and of its devices.
    pub sessions: Vec<PathBuf>,
    /// The capture of the last program it became.
    pub capture: Option<PathBuf>,
    /// When that capture began, nanoseconds since 1970.
    pub capture_started_ns: u64,
}

impl ListedProcess {
    /// The process of a capture.
    #[must_use]
    pub fn of_capture(path: &Path) -> Self {
        let head = CaptureHead::of(path);
        ListedProcess {
            pid: head.pid.unwrap_or(0),
            command: scrub::command(&head.command),
            capture: Some(head.path),
            capture_started_ns: head.started_ns,
            ..ListedProcess::default()
        }
    }

    /// The process of a session's directory.
    #[must_use]
    pub fn of_session(directory: &Path) -> Self {
        let summary = read_session(directory).ok();
        let recorded =
            last_capture(directory).map(|path| ListedProcess::of_capture(&path)).unwrap_or_default();
        let number = |number: fn(&SessionSummary) -> i64| {
            summary.as_ref().and_then(|summary| u32::try_from(number(summary)).ok())
        };
        let is_one_of_several = summary.as_ref().is_some_and(|summary| summary.world_size > 1);
        ListedProcess {
            pid: number(|summary| summary.pid).unwrap_or(recorded.pid),
            rank: number(|summary| summary.rank).filter(|_| is_one_of_several),
            session: Some(directory.to_owned()),
            sessions: vec![directory.to_owned()],
            ..recorded
        }
    }

    /// The processes of a run, by rank and number, with the captures that are still written.
    #[must_use]
    pub fn of_run(run: &Path) -> Vec<Self> {
        let mut sessions: Vec<PathBuf> = directories(run).filter(|path| is_session(path)).collect();
        // A second recording of one process, from inside, is behind the first by its name.
        sessions.sort();
        let mut found: Vec<Self> =
            sessions.iter().take(MOST).map(|session| Self::of_session(session)).collect();
        let mut captures: Vec<Self> = captures_in(&run.join(CAPTURES_DIRECTORY))
            .iter()
            .take(MOST)
            .map(|capture| Self::of_capture(capture))
            .collect();
        // A process that became another program by exec began another capture; the last one is what it is now.
        captures.sort_by_key(|capture| capture.capture_started_ns);
        for new in captures {
            match found.iter_mut().find(|known| known.pid == new.pid) {
                Some(known) => {
                    let sessions = std::mem::take(&mut known.sessions);
                    *known =
                        ListedProcess { rank: known.rank, session: known.session.take(), sessions, ..new };
                }
                None if new.pid != 0 => found.push(new),
                None => {}
            }
        }
        let record = RunRecord::read(run).ok().flatten().unwrap_or_default();
        if let Some(program) = found.iter_mut().find(|found| Some(found.pid) == record.pid)
            && program.command.is_empty()
        {
            program.command = record.command;
        }
        found.sort_by_key(|found| (found.rank, found.pid));
        found.dedup_by(|later, kept| {
            let is_same = later.pid == kept.pid;
            // A later process of the same number has its start time in the name.
            let start = |path: Option<&PathBuf>| start_ticks(path?);
            if is_same && start(later.sessions.first()) == start(kept.sessions.first()) {
                kept.sessions.append(&mut later.sessions);
            }
            is_same
        });
        found
    }
}

fn start_ticks(session: &Path) -> Option<u64> {
    SessionName::parse(session.file_name()?.to_str()?)?.start_ticks
}

/// Directories below a path. Links are left out.
fn directories(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}
