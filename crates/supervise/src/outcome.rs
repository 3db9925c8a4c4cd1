//! What became of a run, as plain values for whoever prints it.

use std::path::PathBuf;

use stormlog_record::Cause;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It is gone; nobody who could know was asked.
    Unknown,
}

impl Ended {
    /// The code a shell would report.
    pub fn shell_code(self) -> u8 {
        match self {
            Ended::Code(code) => code as u8,
            Ended::Signal(signal) => (128 + signal) as u8,
            Ended::Unknown => 1,
        }
    }
}

/// One process of a run.
#[derive(Debug, Clone)]
pub struct ProcessOutcome {
    /// Its number.
    pub pid: u32,
    /// Its session.
    pub session_id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Highest resident bytes.
    pub peak_rss: Option<u64>,
    /// Resident bytes when last seen.
    pub last_rss: Option<u64>,
    /// What ended it; `None` for a clean end, or a child's end nobody saw.
    pub cause: Option<Cause>,
    /// The bundle that was written for it.
    pub bundle: Option<PathBuf>,
    /// The verdict in one sentence.
    pub verdict: Option<String>,
    /// What to try.
    pub advice: Vec<String>,
    /// The exception it reported: type and message, and the innermost line.
    pub exception: Option<(String, Option<String>)>,
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// Its directory.
    pub directory: PathBuf,
    /// How the program ended.
    pub ended: Ended,
    /// How long it ran, in nanoseconds.
    pub duration_ns: u64,
    /// The processes, the program itself first.
    pub processes: Vec<ProcessOutcome>,
    /// The highest sum of resident bytes over all processes at one moment.
    pub peak_total_rss: u64,
    /// The memory the program could have had: the smallest limit on its way.
    pub limit_bytes: Option<u64>,
    /// What could not be recorded.
    pub lost_records: u64,
}

impl RunOutcome {
    /// A run of which only the exit status is known.
    pub(crate) fn unwatched(directory: PathBuf, ended: Ended, duration_ns: u64) -> Self {
        RunOutcome {
            directory,
            ended,
            duration_ns,
            processes: Vec::new(),
            peak_total_rss: 0,
            limit_bytes: None,
            lost_records: 0,
        }
    }
}
