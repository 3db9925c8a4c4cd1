//! What can go wrong with a screen. Each sentence says what to do next.

use std::io;
use std::path::PathBuf;

use stormlog_heap::HeapError;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuiError {
    /// Standard output is not a terminal, or one that cannot place letters.
    #[error("standard output is not a terminal, or TERM is dumb; use --once or --json to print instead")]
    NoTerminal,
    /// The terminal refused.
    #[error("the terminal cannot be used: {0}; use --once or --json to print instead")]
    Terminal(#[from] io::Error),
    /// Nothing at that path.
    #[error("{} is neither a run, a session nor a heap capture; give one of these or a process number", .0.display())]
    NotARecording(PathBuf),
    /// No such process.
    #[error("there is no process {0}; `ps -e` lists the running ones")]
    NoProcess(u32),
    /// A capture that cannot be read.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The thread that reads the recording is gone.
    #[error("read error in the recording; run the command again")]
    ReaderGone,
}
