//! The lines that hold most of a rank's heap, from the capture of its main process; only where the user asks for it, and not at every scrape, because
//! a capture is read whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stormlog_catalog::captures::captures_in;
use stormlog_catalog::run::layout::CAPTURES_DIRECTORY;
use stormlog_heap_report::HeapDigest;

/// How long an answer is good for.
const AGE: Duration = Duration::from_secs(60);
/// Lines of a rank.
const MOST_LINES: usize = 10;

/// Lines and the bytes they hold, by capture.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    known: BTreeMap<PathBuf, (Instant, Vec<(u64, String)>)>,
}

impl Holders {
    /// Of the process with that number in a living run; empty where its heap is not recorded.
    pub(crate) fn of(&mut self, run: &Path, pid: u32, deadline: Instant) -> Vec<(u64, String)> {
        let Some(capture) = capture_of(run, pid) else { return Vec::new() };
        let is_fresh = |(at, _): &&(Instant, Vec<(u64, String)>)| at.elapsed() < AGE;
        if let Some((_, lines)) = self.known.get(&capture).filter(is_fresh) {
            return lines.clone();
        }
        if Instant::now() >= deadline {
            return Vec::new();
        }
        let digest = HeapDigest::read(&capture, false);
        let mut lines: Vec<(u64, String)> = digest.map(|digest| digest.held).unwrap_or_default();
        lines.truncate(MOST_LINES);
        self.known.insert(capture, (Instant::now(), lines.clone()));
        lines
    }

    /// Drops what was not requested lately.
    pub(crate) fn sweep(&mut self) {
        self.known.retain(|_, (at, _)| at.elapsed() < 2 * AGE);
    }
}

/// The last capture of a process that has not ended.
#[must_use]
pub fn capture_of(run: &Path, pid: u32) -> Option<PathBuf> {
    let name = format!("{pid}.bin");
    let is_its = |path: &PathBuf| {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file == name || file.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'))
    };
    captures_in(&run.join(CAPTURES_DIRECTORY)).into_iter().filter(is_its).max()
}
