//! The captures that a run leaves behind: completed where their processes have ended, and kept within their bound where they live on.
//!
//! A process of its own does this when the run is over, or when its supervisor was killed. It waits from the start of the run as a [`Standby`],
//! gives way to everything, and holds nothing of its caller. A capture that is not completed is larger and otherwise the same: the death of a
//! finisher costs compression only, unless the program lives on. Must never be started by process 1 of a namespace, with which everything
//! there ends, and never end the capture of a process that may still write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stormlog_capture::Compactor;
use stormlog_catalog::run::unfinished_captures;
use stormlog_pidfd::{Standby, StartedProgram};

use super::keeper::HeapKeeper;
use super::options::HeapOptions;
use super::survivors::Survivors;

/// Live files that take less disk together are completed at once: that is done sooner than a process is started.
pub(super) const SMALL: u64 = 512 << 10;
/// Between two looks whether the finisher is done.
const WAIT: Duration = Duration::from_millis(20);

/// Completes one capture, as far as that is possible.
pub(crate) fn complete(path: &Path, options: &HeapOptions) {
    // Dropped meanwhile, or a full disk: it stays as it is.
    let _ = Compactor::open(path, options.compaction(&Arc::default())).and_then(Compactor::complete);
}

/// Has `command` wait for the end of the run in `run`, which it gets as its last word: a program that calls [`finish_captures`].
pub(crate) fn stand_by(command: &[OsString], run: &Path) -> Option<Standby> {
    if command.is_empty() || std::process::id() == 1 {
        return None;
    }
    let mut command = command.to_vec();
    command.push(std::path::absolute(run).ok()?.into_os_string());
    Standby::start(command, c"stormlog-finish").ok()
}

/// What a finisher does, and nothing that anyone would notice: completes the captures of processes that have ended, and compacts those of the
/// others until they end too.
pub fn finish_captures(run: &Path, options: &HeapOptions) {
    stormlog_pidfd::keep_small();
    Survivors::new(run, options).watch();
}

/// Completes every capture below `run` whose process has ended.
pub(crate) fn complete_all(run: &Path, options: &HeapOptions) {
    for (directory, _) in unfinished_captures(run) {
        let ended = HeapKeeper::new(&directory, options.clone()).end_rest();
        ended.iter().for_each(|path| complete(path, options));
        // Only where nothing is left in it.
        let _ = std::fs::remove_dir(&directory);
    }
}

/// Whether what is left takes so little time that it is not worth a process.
pub(crate) fn is_small(unfinished: &[(PathBuf, u64)]) -> bool {
    unfinished.iter().map(|(_, bytes)| bytes).sum::<u64>() <= SMALL
}

/// Waits until the finisher has completed the captures of processes that have ended. Those of processes that live on are not waited for.
pub(crate) fn wait_for_ended(run: &Path, finisher: &StartedProgram) {
    let has_ended =
        |(directory, _): (PathBuf, u64)| HeapKeeper::new(&directory, HeapOptions::default()).has_ended();
    while !finisher.has_ended() && unfinished_captures(run).into_iter().any(has_ended) {
        std::thread::sleep(WAIT);
    }
}
