//! The true peak of the RSS inside a call: the kernel's high-water mark, reset at the start.
//!
//! The mark belongs to the whole process, so resetting it hides earlier peaks from every other reader: a window
//! keeps the mark it found, and a recorder of a session's peak must take it from there.

use std::io::Write;

use rustix::fs::OFlags;
use serde::Serialize;

use super::{ProcessReader, open_relative};
use crate::CollectError;

/// What `clear_refs` understands as "the high-water mark is the RSS of now".
const RESET_PEAK: &[u8] = b"5\n";

/// A stretch of time whose peak is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeakWindow {
    /// Resident bytes at its start.
    pub rss_before: u64,
    /// The high-water mark until then.
    pub peak_before: Option<u64>,
    /// Whether the mark could be reset; if not, a peak inside the window below the old mark stays unseen.
    pub is_exact: bool,
}

/// What was reached in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Resident bytes at the start.
    pub rss_before: u64,
    /// Resident bytes at the end.
    pub rss_after: u64,
    /// The highest in between; `None` when the mark could not be reset and did not rise.
    pub peak_rss: Option<u64>,
    /// The highest since the process started, windows included.
    pub peak_ever: Option<u64>,
}

impl ProcessReader {
    /// Resets the high-water mark (`VmHWM`) to the RSS of now. Needs the right to write to the process.
    pub fn reset_peak(&self) -> Result<(), CollectError> {
        let (mut file, path) =
            open_relative(self.pid, &self.directory, &self.path, "clear_refs", OFlags::WRONLY)?;
        file.write_all(RESET_PEAK).map_err(|error| CollectError::of_process(self.pid, &path, error))
    }

    /// Starts a window. Windows of one process do not nest: the inner one resets the outer one's mark, so the outer
    /// must take the larger of its own peak and the inner's.
    pub fn begin_peak(&mut self) -> Result<PeakWindow, CollectError> {
        let peak_before = self.status()?.peak_rss;
        let is_exact = self.reset_peak().is_ok();
        let rss_before = self.memory()?.rss;
        Ok(PeakWindow { rss_before, peak_before, is_exact })
    }

    /// Ends a window.
    pub fn end_peak(&mut self, window: &PeakWindow) -> Result<Peak, CollectError> {
        let mark = self.status()?.peak_rss;
        let rss_after = self.memory()?.rss;
        // The mark is updated when pages go away; what is there now counts too.
        let peak_rss = mark
            .filter(|mark| window.is_exact || window.peak_before.is_some_and(|before| *mark > before))
            .map(|mark| mark.max(rss_after).max(window.rss_before));
        let peak_ever = mark.max(window.peak_before);
        Ok(Peak { rss_before: window.rss_before, rss_after, peak_rss, peak_ever })
    }
}
