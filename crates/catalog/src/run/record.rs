//! What `run.json` says of a run, typed. Must never copy its environment: a listing reads thousands of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stormlog_model::Launch;
use stormlog_postmortem::{Cause, Ended};
use stormlog_store::StoreError;
use stormlog_store::run_record::read_run_as;

use super::deaths::DeathCount;

/// What a run recorded about itself. A field that is missing is not known.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The name of the directory that it was recorded in; `None` in runs of older versions.
    pub name: Option<String>,
    /// `running`, `completed` or `interrupted`.
    pub status: Option<String>,
    /// The program and its arguments, without secrets.
    pub command: Vec<String>,
    /// Where it was started.
    pub working_directory: Option<String>,
    /// The machine's name.
    pub host: Option<String>,
    /// The process that was started.
    pub pid: Option<u32>,
    /// Nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at_ns: Option<i64>,
    /// Between two samples.
    pub interval_ms: Option<u64>,
    /// The exit status of the program.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// What ended the program, as a word.
    pub cause: Option<String>,
    /// The same as a sentence.
    pub verdict: Option<String>,
    /// Most bytes resident in one process.
    pub peak_rss_bytes: Option<u64>,
    /// Job, step, rank and attempt, where a launcher started it.
    pub launch: Option<Launch>,
    /// What was forecast while it ran.
    pub warnings: Vec<String>,
    /// The version that recorded it.
    pub version: Option<String>,
    /// Deaths of its processes by cause, those included whose directories were dropped; empty while it runs, and `None` in runs of older versions.
    pub(crate) deaths: Option<BTreeMap<String, DeathCount>>,
    /// Its processes, as the supervisor counted them at the end.
    pub(crate) processes: Vec<ProcessRow>,
    pub(crate) supervisor: Option<SupervisorRow>,
}

/// A process in `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessRow {
    pub(crate) pid: u32,
    pub(crate) program: Option<String>,
    pub(crate) worker: Option<WorkerRow>,
    pub(crate) session_id: Option<String>,
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) heap_peak_bytes: Option<u64>,
    pub(crate) cause: Option<String>,
    pub(crate) verdict: Option<String>,
    pub(crate) ended: Option<String>,
    pub(crate) confidence: Option<f64>,
}

/// The worker that a process was in a pool of a framework.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct WorkerRow {
    /// `ray`, `dask`, `gunicorn`, `celery`; `None` where the user named it.
    pub framework: Option<String>,
    /// Its name there.
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SupervisorRow {
    pub(crate) pid: Option<u32>,
}

impl RunRecord {
    /// Whether the program of an interrupted run ended by more than its own exit code; where the cause is not known it may have.
    pub(crate) fn is_death(&self) -> bool {
        self.cause.as_deref().and_then(Cause::of_word) != Some(Cause::Exit)
    }

    /// How the program itself ended, where its supervisor or a later reader judged that.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let is_root = |row: &&ProcessRow| Some(row.pid) == self.pid;
        self.processes.iter().find(is_root)?.ended.as_deref().and_then(Ended::of_word)
    }

    /// Whether a process of it ended other than with exit code 0, or a limit was forecast.
    pub(crate) fn has_findings(&self) -> bool {
        !self.warnings.is_empty() || self.processes.iter().any(|process| process.cause.is_some())
    }

    /// Of the run in a directory; `None` where its file cannot be read or is another program's. A run of another version is an error.
    pub fn read(directory: &Path) -> Result<Option<Self>, StoreError> {
        read_run_as(directory)
    }
}
