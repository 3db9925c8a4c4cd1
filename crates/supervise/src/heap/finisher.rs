//! Completing captures whose processes have ended: in the run itself, or afterwards in a process of its own that gives way to everything
//! and holds nothing of its caller.
//!
//! A capture that is not completed is larger and otherwise the same: the death of a finisher costs compression only. Must never be started
//! by process 1 of a namespace, with which everything there ends, and never touch the capture of a process that may still write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use stormlog_capture::Compactor;
use stormlog_capture::layout::LIVE_SUFFIX;

use super::keeper::{HeapKeeper, HeapOptions};

/// How deep captures are below a run's directory.
const DEPTH: usize = 1;
/// As little as there is: everything else comes first.
const NICENESS: i32 = 19;

/// Completes one capture, as far as that is possible.
pub(crate) fn complete(path: &Path, options: &HeapOptions) {
    // Dropped meanwhile, or a full disk: it stays as it is.
    let _ = Compactor::open(path, options.compaction(&Arc::default())).and_then(Compactor::complete);
}

/// Starts `command` with the run's directory as its last word: a program that calls [`finish_captures`].
pub(crate) fn start(command: &[OsString], run: &Path) -> Option<Child> {
    let (program, arguments) = command.split_first()?;
    if std::process::id() == 1 {
        return None;
    }
    // The caller's pipes must not stay open for it.
    stormlog_pidfd::inherit_nothing().ok()?;
    let mut starting = Command::new(program);
    starting.args(arguments).arg(std::path::absolute(run).ok()?).current_dir("/");
    starting.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Neither Ctrl-C nor the end of the terminal is meant for it.
    stormlog_pidfd::lead_session(&mut starting).spawn().ok()
}

/// What a finisher does: [`complete_all`], and nothing that anyone would notice.
pub fn finish_captures(run: &Path, options: &HeapOptions) {
    let _ = rustix::process::setpriority_process(None, NICENESS);
    complete_all(run, options);
}

/// Completes every capture below `run` whose process has ended.
pub(crate) fn complete_all(run: &Path, options: &HeapOptions) {
    for directory in unfinished(run) {
        let ended = HeapKeeper::new(&directory, options.clone()).end_rest();
        ended.iter().for_each(|path| complete(path, options));
        // Only where nothing is left in it.
        let _ = std::fs::remove_dir(&directory);
    }
}

/// Directories at or below `run` with captures that are not complete.
pub(crate) fn unfinished(run: &Path) -> Vec<PathBuf> {
    let mut unfinished = Vec::new();
    let mut directories = vec![(run.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let mut is_unfinished = false;
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if depth < DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push((entry.path(), depth + 1));
            }
            is_unfinished |= entry.file_name().as_encoded_bytes().ends_with(LIVE_SUFFIX.as_bytes());
        }
        if is_unfinished {
            unfinished.push(directory);
        }
    }
    unfinished
}
