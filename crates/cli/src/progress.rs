//! A line that counts on a terminal while a long job runs; nothing at all in a pipe or for a short one.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Jobs shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(800);
const INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    what: &'static str,
    count: u64,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let next = std::io::stderr().is_terminal().then(|| Instant::now() + PATIENCE);
        Progress { what, count: 0, next, shown: false }
    }

    /// Counts one; now and then says how many there are.
    pub(crate) fn step(&mut self) {
        self.count += 1;
        // Looking at the clock for every event would cost more than reading it.
        if self.count.is_multiple_of(4096)
            && let Some(next) = self.next
            && Instant::now() >= next
        {
            let _ = write!(std::io::stderr(), "\r\x1b[K{} {}", self.count, self.what);
            self.next = Some(Instant::now() + INTERVAL);
            self.shown = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
