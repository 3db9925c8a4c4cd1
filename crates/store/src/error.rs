//! What can be wrong with a file, with enough in it to say where and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use stormlog_model::Problem;

/// A position in an input: the file, and the line (from 1) or record (from 0) when known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// The file.
    pub file: PathBuf,
    /// The line the record starts on, from 1; for binary files the record's number, from 1.
    pub line: Option<u64>,
}

impl SourcePosition {
    /// A whole file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        SourcePosition { file: path.into(), line: None }
    }

    /// A line of a file.
    pub fn line(path: impl Into<PathBuf>, line: u64) -> Self {
        SourcePosition { file: path.into(), line: Some(line) }
    }
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// Why a path could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// There is nothing at the path.
    #[error("{}: does not exist; give a recording, a run directory or a directory of them", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is a FIFO, a device or a socket.
    #[error("{}: {what}; give a regular file or a directory", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A run whose layout another release defined.
    #[error("{}: schema_version is {found}, this release reads {}; read the run with the release that wrote it, or a newer one", path.display(), crate::run_record::RUN_VERSION)]
    RunVersion {
        /// Its `run.json`.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// The bytes are not what the format allows.
    #[error("{position}: {message}")]
    Malformed {
        /// Where.
        position: SourcePosition,
        /// What was found and what was expected.
        message: String,
    },
    /// A well-formed record breaks a rule.
    #[error("{position}: {}", problems_text(problems))]
    Record {
        /// Where.
        position: SourcePosition,
        /// The fields and the rules, the first one first.
        problems: Vec<Problem>,
    },
    /// One record is larger than any real one.
    #[error(
        "{position}: one record is larger than {limit} bytes; this is not a telemetry file, or it is damaged"
    )]
    TooLarge {
        /// Where it starts.
        position: SourcePosition,
        /// The most one record may take.
        limit: usize,
    },
    /// Nothing at the path is telemetry.
    #[error("{}: {message}", path.display())]
    Unrecognised {
        /// The path.
        path: PathBuf,
        /// What was looked for.
        message: String,
    },
    /// The named session is not there.
    #[error("Requested session_id not found: {0}")]
    NoSuchSession(String),
}

impl StoreError {
    /// An I/O error at a path.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        StoreError::Io { path: path.as_ref().to_owned(), source }
    }

    /// An I/O error at a path that was named as an input.
    pub fn input(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::NotFound {
            return StoreError::Missing { path: path.as_ref().to_owned() };
        }
        StoreError::io(path, source)
    }

    /// Bytes that break the format at a place.
    pub fn malformed(position: SourcePosition, message: impl Into<String>) -> Self {
        StoreError::Malformed { position, message: message.into() }
    }

    /// A record that breaks one rule.
    pub fn record(position: SourcePosition, problem: Problem) -> Self {
        StoreError::Record { position, problems: vec![problem] }
    }
}

fn problems_text(problems: &[Problem]) -> String {
    match problems {
        [] => String::new(),
        [only] => only.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
    }
}
