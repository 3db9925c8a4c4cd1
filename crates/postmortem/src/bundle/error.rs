//! What can go wrong with a bundle, with the path it went wrong at.

use std::io;
use std::path::{Path, PathBuf};

/// Why a bundle could not be written or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Every name tried was taken.
    #[error("{}: no free bundle name after {tried} attempts; check what else writes to this directory", root.display())]
    NoFreeName {
        /// The directory.
        root: PathBuf,
        /// How many.
        tried: u32,
    },
    /// A file to be listed in the manifest is not a plain name inside the bundle.
    #[error("{name:?} is not the name of a file in the bundle")]
    NotInBundle {
        /// What was given.
        name: String,
    },
}

impl BundleError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        BundleError::Io { path: path.to_owned(), source }
    }
}
