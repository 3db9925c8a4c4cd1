//! Where the result of a request goes: a private directory of its own, below the run of the process.

use std::path::Path;

use stormlog_files::Directory;

use super::RequestError;
use crate::run::layout::{SNAPSHOTS_DIRECTORY, is_request_id, snapshot_name};

/// Snapshots of one run: each may hold the whole state of an allocator.
const MOST_SNAPSHOTS: usize = 256;

/// Makes the directory of a snapshot of process `pid`.
pub fn new_snapshot_directory(run: &Path, pid: u32, id: &str) -> Result<Directory, RequestError> {
    let open = stormlog_files::create_directory(run).map_err(|error| RequestError::io(run, error))?;
    new_snapshot_directory_in(&open, pid, id)
}

/// The same, in the directory of a run that is open.
pub fn new_snapshot_directory_in(run: &Directory, pid: u32, id: &str) -> Result<Directory, RequestError> {
    if !is_request_id(id) {
        return Err(RequestError::Id(id.to_owned()));
    }
    let path = run.path().join(SNAPSHOTS_DIRECTORY);
    if std::fs::read_dir(&path).map_or(0, |entries| entries.take(MOST_SNAPSHOTS).count()) >= MOST_SNAPSHOTS {
        return Err(RequestError::Full(path));
    }
    run.directory(SNAPSHOTS_DIRECTORY)
        .and_then(|all| all.directory(snapshot_name(pid, id)))
        .map_err(|error| RequestError::io(&path, error))
}
