//! Why a program could not be run or its run not be kept.

use std::ffi::OsString;
use std::path::PathBuf;

use stormlog_catalog::run::RunDirectoryError;
use stormlog_store::StoreError;

use crate::child::is_out_of_room;

/// What went wrong before the program started, or with the files of its run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no command to run.
    #[error("no command given; for example: stormlog run -- python train.py")]
    NoCommand,
    /// The program could not be started.
    #[error("{}: {source}", program.to_string_lossy())]
    Start {
        /// What was to be started.
        program: OsString,
        /// What the system said.
        source: std::io::Error,
    },
    /// The run directory could not be made or written.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The recording library could not be put on disk.
    #[error(transparent)]
    Hook(#[from] stormlog_hook_image::Error),
    /// A path the recording library cannot take.
    #[error("{}: a heap capture's path must not contain ';' or '%'; choose another --dir", .0.display())]
    HeapPath(PathBuf),
    /// A file of the run could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RunDirectoryError> for RunError {
    fn from(RunDirectoryError { path, source }: RunDirectoryError) -> Self {
        RunError::Directory { path, source }
    }
}

impl RunError {
    /// Whether it concerns the recording alone, so that the program can run without it.
    pub(crate) fn is_of_recording(&self) -> bool {
        match self {
            RunError::NoCommand => false,
            RunError::Start { source, .. } => is_out_of_room(source),
            RunError::Directory { .. } | RunError::Hook(_) | RunError::HeapPath(_) | RunError::Store(_) => {
                true
            }
        }
    }

    /// What to do next, for the end of a sentence.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            RunError::Directory { .. } => "; choose a directory that can be written with --dir",
            RunError::Start { .. } => "; raise the limit that prevents it (`ulimit -a` lists them)",
            _ => "",
        }
    }

    pub(crate) fn directory(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        RunError::Directory { path: path.into(), source }
    }
}
