//! Why something was not shipped or fetched. A URL is named by its host alone: its path and query may be a secret.

use std::io;
use std::path::{Path, PathBuf};

use stormlog_push::PushError;

/// Why something was not shipped or fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShipError {
    /// A file or directory here.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The request or its receiver.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The receiver refused.
    #[error("{host} answered {method} with status {status}{}", hint(*status))]
    Status {
        /// The receiver.
        host: String,
        /// The request.
        method: &'static str,
        /// The status of its answer.
        status: u16,
    },
    /// What is at the target is not what was shipped.
    #[error("the manifest at the target cannot be used: {reason}")]
    Manifest {
        /// What is wrong with it.
        reason: String,
    },
    /// Not a place to ship to.
    #[error("{reason}; expected a directory, http(s)://host/path or s3://bucket/prefix")]
    Destination {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What is to be fetched is here already.
    #[error("a local directory needs no fetch; give it to the other commands as it is")]
    LocalDirectory,
    /// A store that wants a signature, and no key.
    #[error("no credentials for s3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")]
    NoCredentials,
    /// Another process ships this run.
    #[error("{} is being shipped by another process; try again when that has ended", run.display())]
    Busy {
        /// The run.
        run: PathBuf,
    },
    /// Copies would be mixed with the runs.
    #[error("{} is the directory that the runs are in; choose another target", path.display())]
    SameDirectory {
        /// The target.
        path: PathBuf,
    },
    /// Every name for a run is taken by another one.
    #[error("the target already has runs under every possible name for {name}; ship to another target")]
    NoName {
        /// The run's name.
        name: String,
    },
    /// Not a run.
    #[error("{}: there is no run here; expected a run directory or a directory of them", path.display())]
    NoRun {
        /// The path.
        path: PathBuf,
    },
    /// Only a directory or an object store can be listed.
    #[error(
        "{host} has no manifest under this URL; give the URL of one run: base URL, slash, name of the run"
    )]
    NotThere {
        /// The receiver.
        host: String,
    },
    /// What is stored is not what the manifest says.
    #[error("{path} at the target changed while it was read; fetch again when the run has ended")]
    Changing {
        /// The file in the run.
        path: String,
    },
    /// A block is missing or permanently damaged.
    #[error("{path} at the target is damaged at byte {offset}; ship the run again")]
    Damaged {
        /// The file in the run.
        path: String,
        /// Where.
        offset: u64,
    },
}

impl ShipError {
    /// What was named is missing or unusable, as opposed to a failure on the way.
    #[must_use]
    pub fn is_of_input(&self) -> bool {
        matches!(
            self,
            ShipError::LocalDirectory
                | ShipError::NoRun { .. }
                | ShipError::NotThere { .. }
                | ShipError::Manifest { .. }
                | ShipError::Damaged { .. }
        )
    }

    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        ShipError::File { path: path.to_owned(), source }
    }

    pub(crate) fn manifest(reason: String) -> Self {
        ShipError::Manifest { reason }
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, give the final address",
        401 | 403 => "; check the token or key, which must allow reading, writing and listing",
        404 => "; check the bucket or path",
        405 | 501 => "; the receiver must take PUT and GET",
        413 => "; it does not take bodies of 1 MiB",
        507 => "; it has no room left",
        _ => "",
    }
}
