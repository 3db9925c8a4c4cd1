//! What became of a run, as plain values for the caller to print.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use stormlog_heap_report::HeapDigest;
use stormlog_model::Identity;
use stormlog_model::worker::Worker;
use stormlog_postmortem::Cause;
use stormlog_postmortem::verdict::Ending;

use crate::heap::Unrecordable;
use crate::shipping::Shipping;
use crate::termination::TerminationLog;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It is gone; no source that could know was read.
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

    /// As a capture keeps it.
    pub(crate) fn to_json(self, cause: Option<Cause>) -> serde_json::Value {
        let (exit_code, signal) = match self {
            Ended::Code(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
            Ended::Unknown => (None, None),
        };
        serde_json::json!({"exit_code": exit_code, "signal": signal, "cause": cause.map(|cause| cause.as_str())})
    }

    pub(crate) fn is_clean(self) -> bool {
        self == Ended::Code(0)
    }

    /// Whether it is a failure, where no one judged it.
    pub(crate) fn without_evidence(self) -> stormlog_postmortem::Ended {
        match self {
            Ended::Code(0) => stormlog_postmortem::Ended::Completed,
            Ended::Code(_) | Ended::Signal(_) => stormlog_postmortem::Ended::Failed,
            Ended::Unknown => stormlog_postmortem::Ended::Unknown,
        }
    }

    pub(crate) fn ending(self) -> Ending {
        match self {
            Ended::Code(code) => Ending::Exited(code),
            Ended::Signal(signal) => Ending::Signaled(signal),
            Ended::Unknown => Ending::Vanished,
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, Some(signal)) => Ended::Signal(signal),
            (None, None) => Ended::Unknown,
        }
    }
}

/// One process of a run.
#[derive(Debug, Clone)]
pub struct ProcessOutcome {
    /// Its number.
    pub pid: u32,
    /// Job and rank.
    pub identity: Identity,
    /// What its user would call it.
    pub program: String,
    /// The worker it was in a pool of a framework.
    pub worker: Option<Worker>,
    /// Its session.
    pub session_id: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Highest resident bytes.
    pub peak_rss: Option<u64>,
    /// Resident bytes when last seen.
    pub last_rss: Option<u64>,
    /// What its heap capture says, where there is one.
    pub heap: Option<HeapDigest>,
    /// What ended it; `None` for a clean end, or a child's end that was not observed.
    pub cause: Option<Cause>,
    /// Whether its end is a failure.
    pub judged: stormlog_postmortem::Ended,
    /// How sure the cause is, where there is one.
    pub confidence: Option<f64>,
    /// The limit that its end met.
    pub limit_bytes: Option<u64>,
    /// The bundle that was written for it.
    pub bundle: Option<PathBuf>,
    /// The verdict in one sentence.
    pub verdict: Option<String>,
    /// What to try.
    pub advice: Vec<String>,
    /// The last exception it reported; one of a thread is reported even if the program exited 0.
    pub exception: Option<Raised>,
}

/// An exception in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// Type and message.
    pub text: String,
    /// The innermost line.
    pub place: Option<String>,
    /// The thread it ended, when that was not the main one.
    pub thread: Option<String>,
}

/// A finished run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its directory.
    pub directory: PathBuf,
    /// What the user would call the program.
    pub program: String,
    /// How the program ended.
    pub ended: Ended,
    /// How long it ran, in nanoseconds.
    pub duration_ns: u64,
    /// The processes, the program itself first.
    pub processes: Vec<ProcessOutcome>,
    /// The most that one process had resident: of the samples, the process's own record, and the kernel's at its end.
    pub peak_rss: Option<u64>,
    /// The highest sum of resident bytes over all processes at one moment.
    pub peak_total_rss: u64,
    /// The memory the program could have had: the smallest limit on its way.
    pub limit_bytes: Option<u64>,
    /// What could not be recorded.
    pub lost_records: u64,
    /// Forecasts that became warnings, and their ends, in order; the last of them when there were many.
    pub warnings: Vec<String>,
    /// Why the heap of the program itself could not be recorded, where that is known.
    pub unrecordable: Option<Unrecordable>,
    /// The termination message of the container, for the answer about an end that was not clean.
    pub termination: Option<TerminationLog>,
    /// The process that ships the run, which may not be done.
    pub shipping: Option<Shipping>,
}

impl RunOutcome {
    /// A run of which only the exit status is known.
    pub(crate) fn unwatched(directory: PathBuf, program: String, ended: Ended, duration_ns: u64) -> Self {
        RunOutcome {
            directory,
            program,
            ended,
            duration_ns,
            processes: Vec::new(),
            peak_rss: None,
            peak_total_rss: 0,
            limit_bytes: None,
            lost_records: 0,
            warnings: Vec::new(),
            unrecordable: None,
            termination: None,
            shipping: None,
        }
    }
}
