//! All processes of a place: each look samples everyone's memory and reads one of them closely.

use std::path::Path;

use stormlog_store::wall_ns;

use crate::error::TuiError;
use crate::read::place::{LiveTarget, Place};
use crate::read::process::Watched;
use crate::state::reading::{Reading, Wish};

/// Looks at a run, a session, a capture or a process.
pub struct Watcher {
    place: Place,
    /// The process that was named, if one was.
    named: Option<u32>,
    /// The process that was shown when nobody had chosen one.
    usual: Option<u32>,
    host: String,
    watched: Vec<Watched>,
}

impl Watcher {
    /// Finds what is to be looked at.
    pub fn open(target: &LiveTarget) -> Result<Watcher, TuiError> {
        let (place, named) = Place::of(target)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Watcher { place, named, usual: None, host, watched: Vec::new() })
    }

    /// What stands on the first line of the screen.
    #[must_use]
    pub fn title(&self) -> String {
        self.place.title()
    }

    /// Looks once. What was recorded since the last look is all that is read.
    pub fn look(&mut self, wish: Wish) -> Reading {
        let at_ns = wall_ns();
        for found in self.place.processes() {
            match self.watched.iter_mut().find(|known| known.pid() == found.pid) {
                Some(known) => known.refound(found),
                None => self.watched.push(Watched::new(found, &self.host)),
            }
        }
        self.watched.iter_mut().for_each(|watched| watched.sample(at_ns));
        // Those that run first; among a program's many short-lived helpers they would not be found.
        self.watched.sort_by_key(|watched| !watched.is_running());
        let pid = wish.pid.or(self.named).or_else(|| self.usual());
        let mut chosen = None;
        for watched in &mut self.watched {
            if Some(watched.pid()) == pid {
                chosen = Some(watched.detail(at_ns, wish));
            } else {
                watched.let_go();
            }
        }
        if chosen.is_none() {
            chosen = self.watched.first_mut().map(|watched| watched.detail(at_ns, wish));
        }
        let processes = self.watched.iter().map(Watched::row).collect();
        let (title, path) = (self.title(), self.place.path().map(Path::to_owned));
        Reading { title, path, at_ns, processes, chosen, output: self.place.output() }
    }

    /// The process that is shown when nobody chooses: the largest, and that one until it ends.
    fn usual(&mut self) -> Option<u32> {
        let runs = |pid: u32| self.watched.iter().any(|watched| watched.pid() == pid && watched.is_running());
        if !self.usual.is_some_and(runs) {
            let running = self.watched.iter().filter(|watched| watched.is_running());
            let largest = running.max_by_key(|watched| watched.last_rss()).map(Watched::pid);
            // Of those that all have ended, the one that recorded most.
            let recorded =
                || self.watched.iter().max_by_key(|watched| watched.recorded_bytes()).map(Watched::pid);
            self.usual = largest.or(self.usual).or_else(recorded);
        }
        self.usual
    }
}
