//! What can go wrong with a sink, in the words 0.4.3 uses for it, because scripts match them.

use std::io;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Why a sink refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A setting breaks its rule.
    #[error("{rule}")]
    Config {
        /// The setting and its rule.
        rule: &'static str,
        /// What was given.
        given: f64,
    },
    /// The record belongs to another session than the open one.
    #[error("telemetry sink record session_id does not match the active session")]
    OtherSession {
        /// The session the record names.
        given: String,
        /// The session being written.
        active: String,
    },
    /// The record's session id is not text.
    #[error("telemetry sink record session_id must be a string")]
    SessionNotText {
        /// What it is instead.
        found: String,
    },
    /// A record with a line break in it would be read back as two.
    #[error("telemetry sink record must be one line; it has a line break at byte {at}")]
    LineBreak {
        /// Where the break is.
        at: usize,
    },
    /// The operating system said no.
    #[error("{}", python_text(.path.as_deref(), .source))]
    Io {
        /// The file, where the call named one.
        path: Option<PathBuf>,
        /// What it said.
        source: io::Error,
    },
    /// There is a manifest but nothing to roll up.
    #[error("Telemetry sink {} retained no segments", .path.display())]
    NoSegments {
        /// The sink.
        path: PathBuf,
    },
    /// The records fall into more sessions, ranks and windows than a summary is good for.
    #[error(
        "telemetry rollup would hold more than {limit} sessions, ranks and windows; choose longer windows"
    )]
    TooManyGroups {
        /// The most there may be.
        limit: usize,
    },
    /// A rollup file does not have the shape it must have.
    #[error("{0}")]
    Rollup(String),
    /// A segment could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SinkError {
    /// A failed call that named a file.
    pub fn at(path: impl AsRef<Path>, source: io::Error) -> Self {
        SinkError::Io { path: Some(path.as_ref().to_owned()), source }
    }

    /// A failed call on an open file.
    pub fn io(source: io::Error) -> Self {
        SinkError::Io { path: None, source }
    }

    /// The error as Python would print it with its class: `OSError: [Errno 28] No space left on device`.
    pub fn with_python_class(&self) -> String {
        match self {
            SinkError::Io { source, .. } => format!("{}: {self}", python_class(source)),
            _ => self.to_string(),
        }
    }
}

/// The subclass of `OSError` Python raises for an error.
fn python_class(error: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match error.kind() {
        NotFound => "FileNotFoundError",
        PermissionDenied => "PermissionError",
        AlreadyExists => "FileExistsError",
        IsADirectory => "IsADirectoryError",
        NotADirectory => "NotADirectoryError",
        BrokenPipe => "BrokenPipeError",
        Interrupted => "InterruptedError",
        TimedOut => "TimeoutError",
        WouldBlock => "BlockingIOError",
        _ => "OSError",
    }
}

fn python_text(path: Option<&Path>, error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    let text = error.to_string();
    let words = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    match path {
        Some(path) => format!("[Errno {number}] {words}: '{}'", path.display()),
        None => format!("[Errno {number}] {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_read_like_python() {
        let full = SinkError::io(io::Error::from_raw_os_error(28));
        assert_eq!(full.with_python_class(), "OSError: [Errno 28] No space left on device");
        let gone = SinkError::at("/x/y", io::Error::from_raw_os_error(2));
        let text = "FileNotFoundError: [Errno 2] No such file or directory: '/x/y'";
        assert_eq!(gone.with_python_class(), text);
    }
}
