//! The run directory: its names (which `stormlog-model` has, so that the crates that write single files of it need nothing else) and the
//! paths made of them.

use std::path::{Path, PathBuf};

pub use stormlog_model::layout::*;

/// The directory of runs where none is named: of the environment, else below the working directory.
#[must_use]
pub fn usual_runs() -> PathBuf {
    let named = std::env::var_os(RUNS_VARIABLE).filter(|folder| !folder.is_empty());
    named.map_or_else(|| RUNS_DIRECTORY.into(), PathBuf::from)
}

/// The lock of a run's supervisor.
#[must_use]
pub fn supervisor_lock(run: &Path) -> PathBuf {
    run.join(LOCKS_DIRECTORY).join(SUPERVISOR_LOCK)
}

/// The lock of a recorded process of a run.
#[must_use]
pub fn process_lock(run: &Path, pid: u32, start_ticks: u64) -> PathBuf {
    run.join(LOCKS_DIRECTORY).join(lock_name(pid, start_ticks))
}

/// Whether a directory is a session's: by its file, its ring or its history.
#[must_use]
pub fn is_session(directory: &Path) -> bool {
    directory.join(SESSION_FILE).is_file()
        || directory.join(RING_FILE).is_file()
        || directory.join(LOG_DIRECTORY).is_dir()
}

/// The run that a path is in: itself, or the nearest directory above it, up to `levels` up.
#[must_use]
pub fn run_around(path: &Path, levels: usize) -> Option<&Path> {
    path.ancestors().take(levels + 1).find(|path| path.join(RUN_FILE).is_file())
}
