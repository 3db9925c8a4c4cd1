//! The captures at a path and the main one among them, by the catalog's rule; peaks are read here where the rule needs them.

use std::path::Path;

use stormlog_catalog::captures;
pub use stormlog_catalog::captures::{CaptureFile, Chosen, program};
use stormlog_catalog::frameworks::jax_records;
use stormlog_heap::{Capture, HeapReadOptions};
use stormlog_model::memory::{Memory, Selection};

use crate::error::ViewError;

/// A larger capture has something in it, and is not read for the question whether it has.
const LARGEST_EMPTY: u64 = 1 << 20;

/// The capture at `path`: of several the main process's, or of process `pid` where that is requested.
pub fn find(path: &Path, pid: Option<u32>) -> Result<Chosen, ViewError> {
    Ok(captures::find(path, pid, &peak)?)
}

/// The same for a query about one memory. The captures of a run have no device memory of JAX: of a device that they do not have, and of a run whose
/// capture is empty (`--no-heap`) or missing, it is the profile that its JAX program left.
pub fn find_with(path: &Path, pid: Option<u32>, memory: Option<Selection>) -> Result<Chosen, ViewError> {
    let of_jax = || {
        let mut records = jax_records(path).into_iter();
        let record =
            records.find(|record| pid.is_none_or(|pid| pid == record.pid) && record.profile.is_some())?;
        let reason = "the profile of its JAX program".to_owned();
        Some(Chosen { path: record.profile?, others: 0, reason })
    };
    match (find(path, pid), memory) {
        (Err(error), _) => of_jax().ok_or(error),
        (Ok(chosen), Some(Selection::One(memory))) if memory.is_device() && !has(&chosen.path, memory) => {
            Ok(of_jax().unwrap_or(chosen))
        }
        (Ok(chosen), None) if is_empty(&chosen.path) => Ok(of_jax().unwrap_or(chosen)),
        (Ok(chosen), _) => Ok(chosen),
    }
}

fn has(capture: &Path, memory: Memory) -> bool {
    let options = HeapReadOptions { curve_points: 2, ..HeapReadOptions::default() };
    let heap = Capture::open(capture).and_then(|capture| capture.read(options));
    heap.is_ok_and(|heap| heap.memories().contains(&memory))
}

fn is_empty(capture: &Path) -> bool {
    let is_small = std::fs::metadata(capture).is_ok_and(|file| file.len() <= LARGEST_EMPTY);
    let read = || {
        Capture::open(capture).and_then(|capture| {
            capture.read(HeapReadOptions { curve_points: 2, ..HeapReadOptions::default() })
        })
    };
    is_small
        && read().is_ok_and(|heap| {
            heap.peak_bytes() == 0 && !heap.memories().iter().any(|memory| memory.is_device())
        })
}

/// Every capture at `path`, the main one first, then in the order of their start.
pub fn captures(path: &Path) -> Result<Vec<CaptureFile>, ViewError> {
    Ok(captures::captures(path, &peak)?)
}

fn peak(path: &Path) -> Option<u64> {
    let options = HeapReadOptions { curve_points: 2, ..HeapReadOptions::default() };
    Capture::open(path).and_then(|capture| capture.read(options)).ok().map(|heap| heap.peak_bytes())
}
