//! What can go wrong, with the value that was wrong.

use std::io;
use std::path::PathBuf;

use crate::record::LossReason;

/// A file cannot be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There is a recording already, and it was not to be replaced.
    #[error("{} holds a recording already", path.display())]
    Exists {
        /// The ring file or log directory.
        path: PathBuf,
    },
    /// Not one of our files.
    #[error("{} is not a Stormlog ring or log segment", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// One of our files, of a format this version does not know.
    #[error("{} has format version {found}, this program reads version {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// One of our files, whose header contradicts itself or its checksum.
    #[error("the header of {} is damaged ({what})", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// A ring where a log segment was wanted, or the other way round.
    #[error("{} is not a {wanted}", path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A log directory without a segment.
    #[error("{} holds no log segments", path.display())]
    NoSegments {
        /// The directory.
        path: PathBuf,
    },
    /// A configured size outside its limits.
    #[error("{name} is {value}, but must be from {least} to {most}")]
    Config {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least it may be.
        least: u64,
        /// The most it may be.
        most: u64,
    },
}

impl Error {
    /// Why records will be lost, when this is what keeps a writer from going on.
    pub(crate) fn loss_reason(&self) -> LossReason {
        use rustix::io::Errno;
        let Error::Io { source, .. } = self else { return LossReason::Other };
        match Errno::from_io_error(source) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => LossReason::NoSpace,
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => LossReason::NotPermitted,
            Some(Errno::NOENT | Errno::NOTDIR) => LossReason::Removed,
            _ => LossReason::Other,
        }
    }
}

/// A record was not appended. All but [`AppendError::DefinitionsFull`] are also counted in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// It is larger than the file takes, with its definitions.
    #[error("a record of {bytes} bytes does not fit, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest possible.
        limit: usize,
    },
    /// The ring has no room for a definition. Nothing is lost yet: append again with the bytes in the payload.
    #[error("no room for a definition of {bytes} bytes")]
    DefinitionsFull {
        /// Its size.
        bytes: usize,
    },
    /// It is lost.
    #[error("record lost: {0:?}")]
    Lost(LossReason),
}
