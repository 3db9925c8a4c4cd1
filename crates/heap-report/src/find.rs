//! The captures at a path and the main one among them, by the catalog's rule; peaks are read here where the rule needs them.

use std::path::Path;

use stormlog_catalog::captures;
pub use stormlog_catalog::captures::{CaptureFile, Chosen, program};
use stormlog_heap::{Capture, Watch};

use crate::error::ViewError;

/// The capture at `path`: of several the main process's, or of process `pid` where that is asked for.
pub fn find(path: &Path, pid: Option<u32>) -> Result<Chosen, ViewError> {
    Ok(captures::find(path, pid, &peak)?)
}

/// Every capture at `path`, the main one first, then in the order of their start.
pub fn captures(path: &Path) -> Result<Vec<CaptureFile>, ViewError> {
    Ok(captures::captures(path, &peak)?)
}

fn peak(path: &Path) -> Option<u64> {
    let watch = Watch { curve_points: 2, ..Watch::default() };
    Capture::open(path).and_then(|capture| capture.read(watch)).ok().map(|heap| heap.peak_bytes())
}
