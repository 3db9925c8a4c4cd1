//! A process: run, number and start time, with everything that was recorded about it, joined once.

use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_postmortem::{Cause, Ended, signal_name};
use stormlog_store::StoreError;

use super::layout::Viewpoint;
use super::record::{RunRecord, WorkerRow};
use crate::retained::{self, Retention};

/// A run and its processes.
#[derive(Debug)]
pub struct Run {
    /// Its directory.
    pub path: PathBuf,
    /// The name of the directory.
    pub id: String,
    /// What it recorded about itself; empty where its file is damaged.
    pub record: RunRecord,
    /// Where it is in its life.
    pub status: RunStatus,
    /// The process that supervised it.
    pub supervisor_pid: Option<u32>,
    /// The program itself first, then in the order they started.
    pub processes: Vec<Process>,
    /// What could not be read, a sentence each.
    pub problems: Vec<String>,
}

impl Run {
    /// The name of the directory that it was recorded in: the same for every copy of it.
    #[must_use]
    pub fn recorded_name(&self) -> &str {
        self.record.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&self.id)
    }
}

/// The life of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// Its supervisor has not ended it.
    Running,
    /// The program exited with status 0.
    Completed,
    /// It ended otherwise, and evidence shows that it was meant to.
    Deliberate,
    /// It failed.
    Failed,
    /// It ended otherwise, and how is not known: by a signal of an unknown sender, or after its supervisor.
    Interrupted,
    /// Its file does not say.
    Unknown,
}

impl RunStatus {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("running") => RunStatus::Running,
            Some("completed") => RunStatus::Completed,
            Some("interrupted") => RunStatus::Interrupted,
            _ => RunStatus::Unknown,
        }
    }

    /// The life of a run whose file says `interrupted`, which is its word for every end but exit status 0, by how its program ended.
    #[must_use]
    pub fn refined(self, ended: Option<Ended>) -> Self {
        match (self, ended) {
            (RunStatus::Interrupted, Some(Ended::Deliberate)) => RunStatus::Deliberate,
            (RunStatus::Interrupted, Some(Ended::Failed)) => RunStatus::Failed,
            (state, _) => state,
        }
    }

    /// As scripts know it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Completed => "completed",
            RunStatus::Deliberate => "deliberate",
            RunStatus::Failed => "failed",
            RunStatus::Interrupted => "interrupted",
            RunStatus::Unknown => "unknown",
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessEnd {
    /// It has not.
    Running,
    /// With exit status 0.
    Completed,
    /// Otherwise, and evidence shows that it was intended.
    Deliberate(EndFacts),
    /// With another status, by a signal, or for a cause that was found.
    Failed(EndFacts),
    /// No evidence shows how or what for; a signal that programs are stopped with may have come from an unknown sender.
    Unknown(EndFacts),
}

/// What is known of an end; what is not is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndFacts {
    /// The exit status, where it was seen.
    pub exit_code: Option<i32>,
    /// The signal, where there was one.
    pub signal: Option<i32>,
    /// What ended it.
    pub cause: Option<Cause>,
    /// The same as a sentence.
    pub verdict: Option<String>,
    /// How sure that is, 0 to 1.
    pub confidence: Option<f64>,
}

impl ProcessEnd {
    /// As scripts know it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.ended().as_str()
    }

    /// The same as a value.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self {
            ProcessEnd::Running => Ended::Running,
            ProcessEnd::Completed => Ended::Completed,
            ProcessEnd::Deliberate(_) => Ended::Deliberate,
            ProcessEnd::Failed(_) => Ended::Failed,
            ProcessEnd::Unknown(_) => Ended::Unknown,
        }
    }

    /// What is known of it beside that.
    #[must_use]
    pub fn facts(&self) -> Option<&EndFacts> {
        match self {
            ProcessEnd::Running | ProcessEnd::Completed => None,
            ProcessEnd::Deliberate(facts) | ProcessEnd::Failed(facts) | ProcessEnd::Unknown(facts) => {
                Some(facts)
            }
        }
    }

    pub(super) fn of_status(status: SessionStatus) -> Self {
        match status {
            SessionStatus::Running => ProcessEnd::Running,
            SessionStatus::Completed => ProcessEnd::Completed,
            SessionStatus::Interrupted => ProcessEnd::Failed(EndFacts::default()),
            SessionStatus::Incomplete => ProcessEnd::Unknown(EndFacts::default()),
        }
    }
}

/// A session of a process: samples of it, taken in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSession {
    /// Its directory, or the file that has it.
    pub path: PathBuf,
    /// Where the samples were taken; `None` where it is unknown.
    pub viewpoint: Option<Viewpoint>,
    /// Identity and life; `None` where its manifest is missing or damaged.
    pub summary: Option<SessionSummary>,
}

/// A process and all that was recorded about it.
#[derive(Debug, Clone)]
pub struct Process {
    /// The run's directory; `None` for a recording without one.
    pub run: Option<PathBuf>,
    /// Its number; `None` where no file has it.
    pub pid: Option<u32>,
    /// Clock ticks between boot and its start: with the number, which process it is.
    pub start_ticks: Option<u64>,
    /// What the user would call it.
    pub program: Option<String>,
    /// The worker it is in a pool of a framework, where its run has ended.
    pub worker: Option<WorkerRow>,
    /// Whether it is the process that the run started.
    pub is_root: bool,
    /// Samples: from outside first, then from inside, then of each device.
    pub sessions: Vec<ProcessSession>,
    /// Heap captures, that of the last program it became first.
    pub captures: Vec<PathBuf>,
    /// The evidence of its death, and of errors that it survived.
    pub bundles: Vec<PathBuf>,
    /// Snapshots of PyTorch's allocator, which are parts of bundles.
    pub snapshots: Vec<PathBuf>,
    /// Exceptions that it reported.
    pub exceptions: Vec<PathBuf>,
    /// Its report of what keeps its memory ([`crate::retained`]).
    pub retained: Option<PathBuf>,
    /// How it ended.
    pub end: ProcessEnd,
    /// Most bytes resident.
    pub peak_rss_bytes: Option<u64>,
    /// Most bytes on its heap.
    pub heap_peak_bytes: Option<u64>,
}

impl Process {
    pub(super) fn new(run: Option<PathBuf>, pid: Option<u32>) -> Self {
        Process {
            run,
            pid,
            start_ticks: None,
            program: None,
            worker: None,
            is_root: false,
            sessions: Vec::new(),
            captures: Vec::new(),
            bundles: Vec::new(),
            snapshots: Vec::new(),
            exceptions: Vec::new(),
            retained: None,
            end: ProcessEnd::Unknown(EndFacts::default()),
            peak_rss_bytes: None,
            heap_peak_bytes: None,
        }
    }

    /// Rank, host and job, from the session that has the most of them.
    #[must_use]
    pub fn identity(&self) -> Option<&SessionSummary> {
        self.sessions.iter().find_map(|session| session.summary.as_ref())
    }

    /// When its first session began, nanoseconds since 1970.
    #[must_use]
    pub fn started_at_ns(&self) -> Option<i64> {
        let starts = self.sessions.iter().filter_map(|session| session.summary.as_ref());
        starts.map(|summary| summary.started_at_ns).min()
    }

    /// When its last session ended, if all have.
    #[must_use]
    pub fn ended_at_ns(&self) -> Option<i64> {
        let ends = self.sessions.iter().filter_map(|session| session.summary.as_ref());
        ends.map(|summary| summary.ended_at_ns).collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// Whether one of its sessions has this id.
    #[must_use]
    pub fn has_session(&self, session_id: &str) -> bool {
        let mut ids = self.sessions.iter().filter_map(|session| session.summary.as_ref());
        ids.any(|summary| summary.session_id == session_id)
    }

    /// What keeps its memory, as the process reported it; `None` where it did not, or the file is damaged.
    #[must_use]
    pub fn retention(&self) -> Option<Retention> {
        retained::read(self.retained.as_deref()?)
    }

    /// The object of `--json`: the keys are a promise to scripts.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let paths = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.display().to_string()).collect()
        };
        let sessions: Vec<Value> = self
            .sessions
            .iter()
            .map(|session| {
                json!({
                    "path": session.path.display().to_string(),
                    "viewpoint": session.viewpoint.map(viewpoint_word),
                    "session_id": session.summary.as_ref().map(|summary| summary.session_id.clone()),
                })
            })
            .collect();
        let mut end = json!({"state": self.end.as_str()});
        if let Some(EndFacts { exit_code, signal, cause, verdict, .. }) = self.end.facts() {
            end["exit_code"] = (*exit_code).into();
            end["signal"] = signal.map(signal_name).into();
            end["cause"] = cause.map(Cause::as_str).into();
            end["verdict"] = verdict.clone().into();
        }
        json!({
            "run": self.run.as_ref().map(|run| run.display().to_string()),
            "pid": self.pid, "start_ticks": self.start_ticks, "program": self.program, "worker": self.worker, "is_root": self.is_root,
            "sessions": sessions, "captures": paths(&self.captures), "bundles": paths(&self.bundles),
            "snapshots": paths(&self.snapshots), "exceptions": paths(&self.exceptions), "end": end,
            "retained": self.retained.as_ref().map(|path| path.display().to_string()),
            "peak_rss_bytes": self.peak_rss_bytes, "heap_peak_bytes": self.heap_peak_bytes,
        })
    }
}

/// `outside`, `inside` or `cuda0`.
#[must_use]
pub fn viewpoint_word(viewpoint: Viewpoint) -> String {
    match viewpoint {
        Viewpoint::Outside => "outside".to_owned(),
        Viewpoint::Inside => "inside".to_owned(),
        Viewpoint::Cuda(device) => format!("cuda{device}"),
    }
}

/// What was found at a path.
#[derive(Debug, Default)]
pub struct Runs {
    /// In the order of their names, which is that of their starts.
    pub runs: Vec<Run>,
    /// Runs of another version, each with the reason it was left out.
    pub skipped: Vec<StoreError>,
    /// Whether the search ended before it had seen everything.
    pub is_incomplete: bool,
}
