//! `run.json`, the file that makes a directory a run: the version of the layout it stands for.
//!
//! A run of another version is never read by guesswork: listings name and skip it.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stormlog_model::Record;
use stormlog_model::layout::RUN_FILE;

use crate::{StoreError, file, json};

/// What its `format` is.
pub const RUN_FORMAT: &str = "stormlog.run";
/// The version of a run's layout that this release writes and reads.
pub const RUN_VERSION: i64 = 1;

/// What a listing asks of each of 10,000 runs. The rest of the file, mostly the environment, is passed over without a copy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RunHead {
    format: String,
    schema_version: i64,
    /// How far it is: `running`, `completed`, …
    pub status: Option<String>,
    /// What was started, word by word, secrets replaced.
    pub command: Vec<String>,
    /// When it was started.
    pub started_at_ns: Option<i64>,
    /// When it ended.
    pub ended_at_ns: Option<i64>,
}

/// The head of the run in a directory, with the errors of [`read_run`].
pub fn run_head(directory: &Path) -> Result<Option<RunHead>, StoreError> {
    let Ok(bytes) = file::read_bounded(&directory.join(RUN_FILE), json::MAX_RECORD) else { return Ok(None) };
    match serde_json::from_slice::<RunHead>(&bytes) {
        Ok(head) if head.format == RUN_FORMAT && head.schema_version == RUN_VERSION => Ok(Some(head)),
        // Whatever else it is, the strict reader has the words for it.
        _ => Ok(read_run(directory)?.map(|record| {
            let status = record.get("status").and_then(Value::as_str).map(str::to_owned);
            RunHead { status, ..RunHead::default() }
        })),
    }
}

/// The `status` of the run in a directory, with the errors of [`read_run`].
pub fn run_status(directory: &Path) -> Result<Option<String>, StoreError> {
    Ok(run_head(directory)?.and_then(|head| head.status))
}

/// What the `run.json` in a directory says; `None` where there is none that can be read, or where it is another program's file.
pub fn read_run(directory: &Path) -> Result<Option<Record>, StoreError> {
    let Ok(Value::Object(record)) = json::read_value(&directory.join(RUN_FILE)) else { return Ok(None) };
    if record.get("format").is_none_or(|format| format != RUN_FORMAT) {
        return Ok(None);
    }
    match record.get("schema_version") {
        Some(version) if *version == RUN_VERSION => Ok(Some(record)),
        version => {
            let found = version.map_or_else(|| "none".to_owned(), Value::to_string);
            Err(StoreError::RunVersion { path: directory.join(RUN_FILE), found })
        }
    }
}

/// As [`read_run`], of the fields that `T` has alone: the rest of the file, mostly the environment, is passed over without a copy.
pub fn read_run_as<T: DeserializeOwned>(directory: &Path) -> Result<Option<T>, StoreError> {
    let Ok(bytes) = file::read_bounded(&directory.join(RUN_FILE), json::MAX_RECORD) else { return Ok(None) };
    match serde_json::from_slice::<RunHead>(&bytes) {
        Ok(head) if head.format == RUN_FORMAT && head.schema_version == RUN_VERSION => {
            Ok(serde_json::from_slice(&bytes).ok())
        }
        // The strict reader has the words for another version.
        _ => read_run(directory).map(|_| None),
    }
}
