//! Why a capture cannot be shown. Each sentence says what to do next.

use std::path::PathBuf;

use stormlog_catalog::captures::CaptureSearchError;
use stormlog_heap::HeapError;

impl ViewError {
    /// Whether the file is known to be the profile of another tool, and cannot be read as that.
    #[must_use]
    pub fn is_of_import(&self) -> bool {
        matches!(self, ViewError::Heap(HeapError::Import(_)))
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The capture cannot be read.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// There is no capture, or none of the process asked for.
    #[error(transparent)]
    Search(#[from] CaptureSearchError),
    /// An unknown query.
    #[error("unknown mode {text:?}: use peak, leaks, temporary, at-death or at:SECONDS")]
    InvalidQuery {
        /// What was asked.
        text: String,
    },
    /// The profile of another tool, whose single records are not turned into ours.
    #[error("{} is a {format}: its own tool prints its records; every other view reads it", path.display())]
    OfOtherTool {
        /// The file.
        path: PathBuf,
        /// What it is.
        format: &'static str,
    },
    /// A capture of Memray's, whose single records are not turned into ours.
    #[error("{} is a capture of Memray: `memray parse` prints its records; every other view reads it", path.display())]
    OfMemray {
        /// The file.
        path: PathBuf,
    },
}
