//! Captures that say nothing about memory: of shells and small tools that a program is started by, or that it calls.
//!
//! A plain run records every process below it. Behind a chain of wrappers these are dozens of files with some kilobytes of heap each, among
//! which the program's own is hard to find. Only a recording that was not asked for is thrown away, and never the last program of the
//! process that the run started, one that still writes, or one with device memory or a failed request.

use std::path::Path;

use stormlog_heap::{Capture, HeapReadOptions};

use super::finisher::SMALL;

/// The heap of a shell is up to half of this; an interpreter of Python has more.
const TRIVIAL: u64 = 2 << 20;

/// Whether nothing in the capture of a process that has ended is worth a file. What cannot be read is not trivial.
pub(super) fn is_trivial(path: &Path) -> bool {
    let files = [path.to_owned(), stormlog_capture::live::Live::path_of(path)];
    let taken = |file: &std::path::PathBuf| {
        std::fs::metadata(file).map_or(0, |file| std::os::unix::fs::MetadataExt::blocks(&file) * 512)
    };
    if files.iter().map(taken).sum::<u64>() > SMALL {
        return false;
    }
    let heap = Capture::open_still(path).and_then(|capture| capture.read(HeapReadOptions::default()));
    heap.is_ok_and(|heap| {
        heap.peak_bytes() < TRIVIAL
            && heap.devices().is_empty()
            && heap.last_failed_request(None).is_none()
            && heap.lost_events == 0
    })
}
