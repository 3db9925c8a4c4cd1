//! What the exit codes mean; the numbers are 0.4.3's and never change.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, nothing to complain about.
    Ok = 0,
    /// An unexpected failure.
    Error = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Done, and something was found.
    Findings = 3,
    /// Done, and a budget was exceeded.
    GateFailed = 4,
    /// An input is missing, unreadable or invalid.
    InvalidInput = 5,
    /// The program to run was found and cannot be executed; this and the next are the numbers shells have for it.
    CannotExecute = 126,
    /// The program to run was not found.
    NotFound = 127,
    /// Stopped by Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// Every way, by number.
    pub const ALL: [Exit; 9] = [
        Exit::Ok,
        Exit::Error,
        Exit::Usage,
        Exit::Findings,
        Exit::GateFailed,
        Exit::InvalidInput,
        Exit::CannotExecute,
        Exit::NotFound,
        Exit::Interrupted,
    ];

    /// The line of the man page and of docs/reference/exit-codes.md.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "done, no serious problem found",
            Exit::Error => "unexpected failure; output may be incomplete",
            Exit::Usage => "the command line is wrong, or this installation cannot do it",
            Exit::Findings => "done, and a memory problem was found",
            Exit::GateFailed => "done, and a budget or tolerance was exceeded",
            Exit::InvalidInput => "an input is missing, unreadable or not supported",
            Exit::CannotExecute => "run: the program was found and cannot be executed",
            Exit::NotFound => "run: the program was not found",
            Exit::Interrupted => "stopped by Ctrl-C",
        }
    }

    /// The number handed to the system.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// The user pressed Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The command line asks for something that cannot be.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Something named on the command line is not there.
#[derive(Debug)]
pub(crate) struct MissingInput(pub(crate) String);

impl MissingInput {
    /// A path that should be a directory with runs.
    pub(crate) fn runs(path: &Path) -> Self {
        MissingInput(format!("{}: not a directory; give a run or a directory of runs", path.display()))
    }
}

impl std::fmt::Display for MissingInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MissingInput {}

/// Set by Ctrl-C, so that a long job can end cleanly: temporary files removed, exit 130.
pub(crate) struct CtrlC(Arc<AtomicBool>);

impl CtrlC {
    pub(crate) fn watch() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        // Without the handler Ctrl-C still ends the process, only less tidily.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag));
        CtrlC(flag)
    }

    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
