//! What can go wrong with a reading. A reading that is merely unknown is `None` in its struct, not an error.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why a reading could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The process ended, or its number now belongs to another one.
    #[error("process {pid} has exited")]
    ProcessGone {
        /// The process asked for.
        pid: u32,
    },
    /// The process exists but holds no memory: a kernel thread, or one that ended and waits for its parent.
    #[error("process {pid} has no memory of its own (a kernel thread, or ended and not yet reaped)")]
    NoMemory {
        /// The process asked for.
        pid: u32,
    },
    /// The kernel or the file system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is there but does not say what its documentation promises.
    #[error("unexpected content in {} near {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The start of what was found.
        found: String,
    },
    /// The source does not exist on this machine: no driver, no controller, no permission to look.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// The source.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// A driver answered with an error.
    #[error("{device}: {call} failed: {reason}")]
    Driver {
        /// The device as its driver names it.
        device: String,
        /// The call.
        call: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// A framework was to push counters and has not yet, or stopped in the middle of it.
    #[error("{name} has not reported any counters yet")]
    NothingPushed {
        /// The collector.
        name: String,
    },
}

/// How much of a malformed text an error carries.
const SHOWN: usize = 80;

impl CollectError {
    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        CollectError::Io { path: path.to_path_buf(), source: source.into() }
    }

    /// A failure below `/proc/PID`: the kernel says "no such process" or "no such file" for one that ended.
    pub(crate) fn of_process(pid: u32, path: &Path, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let gone = [Errno::SRCH, Errno::NOENT].map(Errno::raw_os_error);
        match source.raw_os_error() {
            Some(code) if gone.contains(&code) => CollectError::ProcessGone { pid },
            _ => CollectError::io(path, source),
        }
    }

    pub(crate) fn malformed(path: &Path, found: &[u8]) -> Self {
        let shown = found.get(..SHOWN).unwrap_or(found);
        CollectError::Malformed {
            path: path.to_path_buf(),
            found: String::from_utf8_lossy(shown).into_owned(),
        }
    }

    /// Whether the process asked for has ended, so that asking again is useless.
    pub fn is_gone(&self) -> bool {
        matches!(self, CollectError::ProcessGone { .. })
    }
}
