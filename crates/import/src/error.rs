//! Why a file of another tool cannot be read. Each sentence says what to do next.

use std::path::PathBuf;

use crate::recognise::Format;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The system refused, or the file does not decompress.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// Content that contradicts its format.
    #[error("{} is a damaged {format}: {what} {}; copy it again, or record again", path.display(), at)]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it was recognised as.
        format: Format,
        /// What is wrong.
        what: &'static str,
        /// Where: a line or a byte.
        at: Position,
    },
    /// A whole file without anything about memory, or of a kind that is not read.
    #[error("{} is a {format} {what}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it was recognised as.
        format: Format,
        /// What is missing, and how to record it.
        what: String,
    },
    /// Larger than what is held at once.
    #[error("{} is a {format} that takes more than {} MiB of memory to read; record a shorter time", path.display(), limit >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it was recognised as.
        format: Format,
        /// Bytes that are held at most.
        limit: u64,
    },
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Lines from 1.
    Line(u64),
    /// Bytes of the decompressed content, from 0.
    Byte(u64),
    /// The end of the file.
    End,
}

impl std::fmt::Display for Position {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Position::Line(line) => write!(out, "in line {line}"),
            Position::Byte(byte) => write!(out, "at byte {byte}"),
            Position::End => out.write_str("at its end"),
        }
    }
}
