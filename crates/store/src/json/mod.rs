//! JSON as telemetry files use it: read record by record, written the way Python's `json` writes it.

pub mod event_text;
mod extent;
mod fast;
mod reader;
mod strict;
mod survey;
mod window;
pub mod write;

pub use reader::EventReader;

use std::path::Path;

use serde_json::Value;
use stormlog_model::Record;

use crate::{SourcePosition, StoreError};

/// The most one record may take. A CUDA event is 2 KB; this leaves room for any metadata a person would write.
pub const MAX_RECORD: usize = 16 << 20;

/// One whole JSON file: manifests, bundles' metadata and the like. Refuses files larger than any record.
pub fn read_value(path: &Path) -> Result<Value, StoreError> {
    let bytes = crate::file::read_bounded(path, MAX_RECORD)?;
    parse_value(path, 1, &bytes)
}

pub(crate) fn parse_value(path: &Path, line: u64, bytes: &[u8]) -> Result<Value, StoreError> {
    strict::parse(bytes).map_err(|error| {
        let position = SourcePosition::line(path, line + error.line_offset);
        StoreError::malformed(position, format!("not JSON: {} (column {})", error.message, error.column))
    })
}

/// The object in `bytes`, which must hold nothing else; `None` for anything but a strict JSON object.
pub(crate) fn parse_object(bytes: &[u8]) -> Option<Record> {
    match strict::parse(bytes) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}
