//! Why a heap capture cannot be understood. Each sentence says what to do next.

use std::path::PathBuf;

use stormlog_capture::CaptureError;
use stormlog_import::{Format, ImportError};
use stormlog_model::memory::Memory;

/// What went wrong with a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The files of a capture of ours.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A profile of another tool.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A moment that a profile without records of single blocks does not know.
    #[error(
        "{} is a {format}, which has no times: use --peak or --leaks",
        path.display()
    )]
    NoMoments {
        /// The file.
        path: PathBuf,
        /// What it is.
        format: Format,
    },
    /// A directory where a file was expected.
    #[error("{} is a directory; name the capture in it", path.display())]
    NoCapture {
        /// The directory.
        path: PathBuf,
    },
    /// A capture that lost its end, and all its records with it.
    #[error(
        "{} is truncated before its first records; copy it again from where it was recorded, or record again",
        path.display()
    )]
    NothingLeft {
        /// The file.
        path: PathBuf,
    },
    /// A moment that a bounded capture no longer knows.
    #[error(
        "{}: individual records of the first {:.3} s are not stored (--aggregate or --max-size folded them), so what was live then is unknown: use a later moment, --peak or --leaks",
        path.display(),
        *until_us as f64 / 1e6
    )]
    Folded {
        /// The file.
        path: PathBuf,
        /// Single records are kept from here on, microseconds since the start.
        until_us: u64,
    },
    /// A memory that the capture has no records of.
    #[error(
        "the capture has no records of {memory}: it has {}; choose one of them with --memory",
        match memories.as_slice() {
            [] => "none yet".to_owned(),
            memories => memories.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    )]
    NoMemory {
        /// What was requested.
        memory: Memory,
        /// What there is.
        memories: Vec<Memory>,
    },
    /// A Memray capture of a version this release cannot read.
    #[error("{} is a Memray capture of version {version}; versions 12 and 13 can be read, record it again with Memray 1.12 or newer", path.display())]
    MemrayVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A Memray capture that contradicts itself.
    #[error("{} is a damaged Memray capture: {what} at byte {offset} of its records", path.display())]
    Memray {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: u64,
    },
}
