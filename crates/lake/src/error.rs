//! What can go wrong with a lake as a whole. What is wrong with single recordings is a [`crate::rows::Problem`].

use std::path::PathBuf;

use stormlog_store::StoreError;

/// A lake that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// The system reports an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What.
        source: std::io::Error,
    },
    /// A table could not be encoded.
    #[error("{}: {message}", path.display())]
    Encoding {
        /// Where.
        path: PathBuf,
        /// What.
        message: String,
    },
    /// A recording or a table could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory is something else.
    #[error("{} is not a lake (no _stormlog/lake.json); `stormlog publish RUNS --to {}` makes one", path.display(), path.display())]
    NotALake {
        /// Where.
        path: PathBuf,
    },
    /// A later release wrote it.
    #[error("{}: a lake of version {version}, which a later release wrote; update stormlog", path.display())]
    Version {
        /// Where.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// Publishers are active.
    #[error("{}: runs are being published to it; try again when that has ended", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// The Delta log cannot be continued.
    #[error("{}: {message}", path.display())]
    Delta {
        /// Where.
        path: PathBuf,
        /// Why.
        message: String,
    },
}

impl LakeError {
    /// Whether what was named cannot be read, rather than that something failed.
    #[must_use]
    pub fn is_of_input(&self) -> bool {
        matches!(self, LakeError::Store(_) | LakeError::NotALake { .. } | LakeError::Version { .. })
    }
}
