//! What can be wrong with a capture. Each sentence says what to do next.

use std::path::{Path, PathBuf};

/// Why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something else altogether.
    #[error("{} is not a heap capture; record one with `stormlog run --heap`", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later release.
    #[error("{} has format version {version}, this release reads version {known}; upgrade stormlog to read it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that is read.
        known: u32,
    },
    /// Written before the format was released.
    #[error("{} has format version {version}, which was never released; record it again", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Bytes that contradict themselves.
    #[error("{} is damaged: {what}; record again, or read the copy it was made from", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What contradicts what.
        what: String,
    },
}

impl CaptureError {
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> CaptureError + '_ {
        move |source| CaptureError::Io { path: path.to_owned(), source }
    }

    /// There is one version of each format.
    pub(crate) fn check_version(path: &Path, version: u32, known: u32) -> Result<(), CaptureError> {
        let path = || path.to_owned();
        match version.cmp(&known) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(CaptureError::Newer { path: path(), version, known }),
            std::cmp::Ordering::Less => Err(CaptureError::Older { path: path(), version }),
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> CaptureError {
        CaptureError::Damaged { path: path.to_owned(), what: what.into() }
    }
}
