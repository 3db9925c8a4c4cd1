//! The manifest: which sessions and segments a sink has. Written to the byte like 0.4.3's, read as leniently.
//!
//! A manifest is a hint, not the truth: what is unreadable in it is left out, and a missing or broken one costs
//! the names of sessions, never their records.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value};
use stormlog_files::Draft;
use stormlog_model::SessionSummary;

use super::paths::{is_plain_name, manifest_path};
use super::{MANIFEST_FILENAME, SINK_FORMAT, SINK_SCHEMA_VERSION, SinkError, SinkSegment};
use crate::json::{read_value, write::write_indented};

/// A sink's sessions and segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkManifest {
    /// 2 as written today; 1 had no sessions.
    pub schema_version: u64,
    /// Names the format.
    pub format: String,
    /// The sessions written here, oldest first.
    pub sessions: Vec<SessionSummary>,
    /// The segments, oldest first.
    pub segments: Vec<SinkSegment>,
}

impl SinkManifest {
    /// A manifest as written today.
    pub fn new(sessions: Vec<SessionSummary>, segments: Vec<SinkSegment>) -> Self {
        SinkManifest {
            schema_version: SINK_SCHEMA_VERSION,
            format: SINK_FORMAT.to_owned(),
            sessions,
            segments,
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> Vec<u8> {
        let mut sessions: Vec<&SessionSummary> = self.sessions.iter().collect();
        sessions.sort_by_key(|session| (session.started_at_ns, session.session_id.as_str()));
        let mut record = Map::new();
        record.insert("schema_version".into(), self.schema_version.into());
        record.insert("format".into(), self.format.as_str().into());
        let sessions = sessions.into_iter().map(|session| Value::Object(session.to_record()));
        record.insert("sessions".into(), sessions.collect());
        let segments = self.segments.iter().map(|segment| Value::Object(segment.to_record()));
        record.insert("segments".into(), segments.collect());
        let mut text = Vec::new();
        // Writing JSON values to memory cannot fail.
        let _ = write_indented(&mut text, &record, 0);
        text.push(b'\n');
        text
    }

    /// Puts the manifest in place of the old one at once. `durable` waits for the disk.
    pub(super) fn write(&self, root: &Path, durable: bool) -> Result<(), SinkError> {
        let path = root.join(MANIFEST_FILENAME);
        let write = || -> io::Result<()> {
            let mut draft = Draft::at(&path)?;
            draft.file().write_all(&self.to_text())?;
            if durable {
                draft.file().sync_all()?;
            }
            draft.place().map(drop)
        };
        write().map_err(|error| SinkError::at(&path, error))
    }
}

/// The manifest of the sink a directory, a manifest or a segment belongs to. `None` when there is none to be read.
pub fn read_manifest(path: &Path) -> Option<SinkManifest> {
    read_manifest_file(&manifest_path(path)?)
}

pub(super) fn read_manifest_file(path: &Path) -> Option<SinkManifest> {
    let Ok(Value::Object(record)) = read_value(path) else { return None };
    let schema_version = record.get("schema_version").map_or(1, |value| coerce(value, 1, 1));
    let format = record.get("format").and_then(Value::as_str).filter(|text| !text.is_empty());
    // Schema 1 had no sessions; whatever is there is not one.
    let sessions = if schema_version >= 2 { entries(&record, "sessions") } else { &[] };
    let sessions = sessions.iter().filter_map(Value::as_object);
    let segments = entries(&record, "segments").iter().filter_map(Value::as_object);
    Some(SinkManifest {
        schema_version,
        format: format.unwrap_or(SINK_FORMAT).to_owned(),
        sessions: sessions.filter_map(|session| SessionSummary::from_record(session).ok()).collect(),
        segments: segments.filter_map(segment).collect(),
    })
}

fn entries<'a>(record: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    record.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn segment(record: &Map<String, Value>) -> Option<SinkSegment> {
    let filename = record.get("filename")?.as_str().filter(|name| is_plain_name(name))?;
    let count = |key: &str| record.get(key).map_or(0, |value| coerce(value, 0, 0));
    Some(SinkSegment {
        filename: filename.to_owned(),
        event_count: count("event_count"),
        size_bytes: count("size_bytes"),
        closed: record.get("closed").is_some_and(truth),
        session_id: record.get("session_id").and_then(Value::as_str).map(str::to_owned),
    })
}

/// `int(value)`, or the default where that fails or is too small.
fn coerce(value: &Value, default: u64, least: u64) -> u64 {
    let number = match value {
        Value::Bool(flag) => Some(u64::from(*flag)),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().replace('_', "").parse().ok(),
        _ => None,
    };
    number.filter(|number| *number >= least).unwrap_or(default)
}

fn whole(float: f64) -> Option<u64> {
    // Beyond 2^63 a float is not a count of anything on a disk.
    (float > -1.0 && float < 9.2e18).then_some(float as u64)
}

/// `bool(value)`.
fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<SinkManifest> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(MANIFEST_FILENAME), text).unwrap();
        read_manifest(directory.path())
    }

    #[test]
    fn an_empty_manifest_is_what_python_writes() {
        let text = String::from_utf8(SinkManifest::new(Vec::new(), Vec::new()).to_text()).unwrap();
        let expected = "{\n  \"schema_version\": 2,\n  \"format\": \"stormlog.append_only_telemetry_sink\",\n  \
                        \"sessions\": [],\n  \"segments\": []\n}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn unreadable_manifest_entries_are_left_out() {
        for broken in ["", "[]", "{", "null", "{\"segments\": []"] {
            assert_eq!(read(broken), None, "{broken}");
        }
        let manifest = read(
            r#"{"schema_version": "2", "format": 7, "sessions": [1, {"session_id": "x"}, {"session_id": "s",
            "status": " Running ", "started_at_ns": 5, "host": "h", "source": "t", "pid": "3"}],
            "segments": [null, {"filename": 1}, {"filename": "../../etc/passwd"},
            {"filename": "a", "event_count": "12", "size_bytes": -4, "closed": "no", "session_id": 5},
            {"filename": "b", "event_count": 2.9, "size_bytes": true, "closed": 0, "session_id": "s"}]}"#,
        )
        .unwrap();
        assert_eq!((manifest.schema_version, manifest.format.as_str()), (2, SINK_FORMAT));
        assert_eq!(manifest.sessions.len(), 1);
        assert_eq!(manifest.sessions[0].pid, 3);
        let [a, b] = manifest.segments.as_slice() else { panic!("{:?}", manifest.segments) };
        assert_eq!((a.event_count, a.size_bytes, a.closed, a.session_id.as_deref()), (12, 0, true, None));
        assert_eq!(
            (b.event_count, b.size_bytes, b.closed, b.session_id.as_deref()),
            (2, 1, false, Some("s"))
        );
    }

    #[test]
    fn schema_one_has_no_sessions() {
        let manifest = read(
            r#"{"sessions": [{"session_id": "s", "status": "running", "started_at_ns": 5, "host": "h", "source": "t"}]}"#,
        )
        .unwrap();
        assert_eq!((manifest.schema_version, manifest.sessions.len()), (1, 0));
    }
}
