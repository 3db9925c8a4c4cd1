//! All processes of a source: each look samples everyone's memory and reads one of them closely.

use std::path::Path;

use stormlog_store::wall_ns;

use crate::error::TuiError;
use crate::read::process::FollowedProcess;
use crate::read::process_source::{LiveTarget, ProcessSource};
use crate::state::reading::{Reading, Wish};

/// Looks at a run, a session, a capture or a process.
pub struct RecordingFollower {
    source: ProcessSource,
    /// The process that was named, if one was.
    named: Option<u32>,
    /// The process that was shown when none was chosen.
    usual: Option<u32>,
    host: String,
    processes: Vec<FollowedProcess>,
}

impl RecordingFollower {
    /// Finds what is to be looked at.
    pub fn open(target: &LiveTarget) -> Result<RecordingFollower, TuiError> {
        let (source, named) = ProcessSource::of(target)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(RecordingFollower { source, named, usual: None, host, processes: Vec::new() })
    }

    /// What is on the first line of the screen.
    #[must_use]
    pub fn title(&self) -> String {
        self.source.title()
    }

    /// Looks once. What was recorded since the last look is all that is read.
    pub fn look(&mut self, wish: Wish) -> Reading {
        let at_ns = wall_ns();
        for found in self.source.processes() {
            match self.processes.iter_mut().find(|known| known.pid() == found.pid) {
                Some(known) => known.refound(found),
                None => self.processes.push(FollowedProcess::new(found, &self.host)),
            }
        }
        self.processes.iter_mut().for_each(|process| process.sample(at_ns));
        // Those that run first; among a program's many short-lived helpers they would not be found.
        self.processes.sort_by_key(|process| !process.is_running());
        let pid = wish.pid.or(self.named).or_else(|| self.usual());
        let mut chosen = None;
        for process in &mut self.processes {
            if Some(process.pid()) == pid {
                chosen = Some(process.detail(at_ns, wish));
            } else {
                process.let_go();
            }
        }
        if chosen.is_none() {
            chosen = self.processes.first_mut().map(|process| process.detail(at_ns, wish));
        }
        let processes = self.processes.iter().map(FollowedProcess::row).collect();
        let (title, path) = (self.title(), self.source.path().map(Path::to_owned));
        Reading { title, path, at_ns, processes, chosen, output: self.source.output() }
    }

    /// The process that is shown when none is chosen: the largest, and that one until it ends.
    fn usual(&mut self) -> Option<u32> {
        let runs =
            |pid: u32| self.processes.iter().any(|process| process.pid() == pid && process.is_running());
        if !self.usual.is_some_and(runs) {
            let running = self.processes.iter().filter(|process| process.is_running());
            let largest = running.max_by_key(|process| process.last_rss()).map(FollowedProcess::pid);
            // Of those that all have ended, the one that recorded most.
            let recorded = || {
                self.processes.iter().max_by_key(|process| process.recorded_bytes()).map(FollowedProcess::pid)
            };
            self.usual = largest.or(self.usual).or_else(recorded);
        }
        self.usual
    }
}
