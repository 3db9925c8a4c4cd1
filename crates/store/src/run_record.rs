//! `run.json`, the file that makes a directory a run: its name, and the version of the layout it stands for.
//!
//! A run of another version is never read by guesswork: listings name and skip it.

use std::path::Path;

use serde_json::Value;
use stormlog_event::Record;

use crate::{StoreError, json};

/// The file of a run that says what was started, when, and how it ended.
pub const RUN_FILE: &str = "run.json";
/// What its `format` is.
pub const RUN_FORMAT: &str = "stormlog.run";
/// The version of a run's layout that this release writes and reads.
pub const RUN_VERSION: i64 = 1;

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
