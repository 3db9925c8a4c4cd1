//! Opening inputs: regular files only, and never more of one in memory than asked for.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::{SourcePosition, StoreError};

/// Opens a regular file for reading. A FIFO or device is refused without blocking on it.
pub(crate) fn open_regular(path: &Path) -> Result<File, StoreError> {
    stormlog_files::open_regular(path).map_err(|error| match error.kind() {
        ErrorKind::IsADirectory | ErrorKind::InvalidInput => {
            StoreError::NotAFile { path: path.to_owned(), what: error.to_string() }
        }
        _ => StoreError::io(path, error),
    })
}

/// The whole of a file that must not be larger than `limit`.
pub(crate) fn read_bounded(path: &Path, limit: usize) -> Result<Vec<u8>, StoreError> {
    let file = open_regular(path)?;
    // Room for the whole file and for noticing its end: one system call each, where a growing buffer takes a dozen.
    let length = file.metadata().map_or(0, |stat| usize::try_from(stat.len()).unwrap_or(limit));
    let mut bytes = Vec::with_capacity(length.min(limit) + 1);
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| StoreError::io(path, error))?;
    if bytes.len() > limit {
        return Err(StoreError::TooLarge { position: SourcePosition::file(path), limit });
    }
    Ok(bytes)
}

/// The absolute path with links resolved as far as it exists: what synthetic session ids are made from.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}
