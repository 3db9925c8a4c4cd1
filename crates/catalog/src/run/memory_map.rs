//! The last look at what a process's memory is made of, beside its recording: for the reader that finishes the run if the supervisor cannot.

use std::path::Path;

use serde_json::Value;
use stormlog_postmortem::bundle::MapRow;
use stormlog_store::json::read_value;

use super::layout::MEMORY_MAP_FILE;

/// Writes it, whole or not at all. Without room for it, only a killed supervisor's bundle is poorer.
pub fn write(directory: &Path, rows: &[MapRow]) {
    let rows: Vec<Value> = rows.iter().map(MapRow::to_value).collect();
    let text = Value::Array(rows).to_string();
    let _ = stormlog_files::replace(&directory.join(MEMORY_MAP_FILE), text.as_bytes());
}

/// What was kept of a process.
#[must_use]
pub fn read(directory: &Path) -> Vec<MapRow> {
    let Ok(Value::Array(rows)) = read_value(&directory.join(MEMORY_MAP_FILE)) else { return Vec::new() };
    rows.iter().filter_map(MapRow::of_value).collect()
}

/// Removes it: the bundle has it now, or none will be made.
pub fn discard(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(MEMORY_MAP_FILE));
}
