//! Bundle directories other Stormlogs left: OOM dumps and diagnose runs.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::{
    Defaults, Event, Interner, Record, SessionSummary, event_from_record, legacy_session_id,
};

use crate::{SourcePosition, StoreError, file, json};

/// The kind of a directory that has a `manifest.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestKind {
    /// An OOM bundle.
    Oom,
    /// A diagnose bundle.
    Diagnose,
    /// An append-only sink.
    Sink,
}

/// What a manifest is the manifest of; `None` when another program wrote it.
pub(crate) fn manifest_kind(manifest: &Record) -> Option<ManifestKind> {
    let has = |keys: &[&str]| keys.iter().all(|key| manifest.contains_key(*key));
    if has(&["bundle_name", "reason", "backend", "event_count"]) {
        Some(ManifestKind::Oom)
    } else if has(&["command_line", "files", "risk_detected", "session_id"]) {
        Some(ManifestKind::Diagnose)
    } else if manifest.get("format").is_some_and(Value::is_string) || manifest.contains_key("segments") {
        Some(ManifestKind::Sink)
    } else {
        None
    }
}

/// The session a bundle's manifest or metadata states.
pub(crate) fn stated_session(directory: &Path) -> Option<SessionSummary> {
    ["manifest.json", "metadata.json"].into_iter().find_map(|name| {
        let path = directory.join(name);
        let Ok(Value::Object(record)) = json::read_value(&path) else { return None };
        let session = record.get("session")?.as_object()?;
        SessionSummary::from_record(session).ok()
    })
}

/// The samples of a diagnose bundle: `telemetry_timeline.json`, three lists of equal length.
pub(crate) fn timeline_events(path: &Path) -> Result<Vec<Event>, StoreError> {
    let Value::Object(timeline) = json::read_value(path)? else {
        return Err(StoreError::malformed(
            SourcePosition::file(path),
            "expected an object with timestamps, allocated, reserved",
        ));
    };
    let list = |key: &str| match timeline.get(key) {
        Some(Value::Array(items)) => Ok(items.as_slice()),
        _ => Err(StoreError::malformed(SourcePosition::file(path), format!("expected a list under {key:?}"))),
    };
    let (timestamps, allocated, reserved) = (list("timestamps")?, list("allocated")?, list("reserved")?);
    if timestamps.len() != allocated.len() || timestamps.len() != reserved.len() {
        let lengths = format!("{}, {} and {}", timestamps.len(), allocated.len(), reserved.len());
        let message = format!("timestamps, allocated and reserved differ in length ({lengths})");
        return Err(StoreError::malformed(SourcePosition::file(path), message));
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    let session = stated_session(directory);
    let base = base_record(path, &session);
    let mut interner = Interner::default();
    let mut events = Vec::with_capacity(timestamps.len());
    for (index, timestamp) in timestamps.iter().enumerate() {
        let mut record = base.clone();
        record.insert("timestamp".into(), timestamp.clone());
        if let Some(before) = index.checked_sub(1) {
            let step = |values: &[Value]| Some(values[index].as_f64()? - values[before].as_f64()?);
            record.insert("memory_change".into(), step(allocated).map(|change| change as i64).into());
            let interval_ms = step(timestamps).map_or(0.0, |seconds| (seconds * 1000.0).round().max(0.0));
            record.insert("sampling_interval_ms".into(), (interval_ms as u64).into());
        }
        for (key, values) in [("memory_allocated", allocated), ("memory_reserved", reserved)] {
            record.insert(key.into(), whole(&values[index]));
        }
        let event = event_from_record(&record, &Defaults::default(), &mut interner);
        // Binary-like lists have no line of their own: say which entry.
        events.push(
            event.map_err(|problem| {
                StoreError::record(SourcePosition::line(path, index as u64 + 1), problem)
            })?,
        );
    }
    Ok(events)
}

/// 0.4.3 averages some counters into floats; bytes are whole.
fn whole(value: &Value) -> Value {
    match value.as_f64() {
        Some(float) if value.is_f64() && float >= 0.0 => (float as u64).into(),
        _ => value.clone(),
    }
}

fn base_record(path: &Path, session: &Option<SessionSummary>) -> Record {
    let mut record = Record::new();
    let mut put = |key: &str, value: Value| record.insert(key.into(), value);
    put("event_type", "sample".into());
    put("collector", "stormlog.diagnose.timeline".into());
    put("context", "diagnose timeline sample".into());
    // The lists do not say which device; the bundle is about the first one.
    put("device_id", 0.into());
    put("memory_change", Value::Null);
    // What the driver counted is not in the lists, and the allocator's number is not it.
    put("device_used", Value::Null);
    match session {
        Some(session) => {
            put("session_id", session.session_id.as_str().into());
            put("host", session.host.as_str().into());
            put("pid", session.pid.into());
            put("job_id", session.job_id.as_deref().into());
            put("rank", session.rank.into());
            put("local_rank", session.local_rank.into());
            put("world_size", session.world_size.into());
        }
        None => {
            let resolved = file::resolved(path);
            put(
                "session_id",
                legacy_session_id([resolved.to_string_lossy().as_ref(), "diagnose.timeline"]).into(),
            );
        }
    }
    let metadata = [("source".to_owned(), Value::from("diagnose.telemetry_timeline"))];
    put("metadata", Value::Object(metadata.into_iter().collect()));
    record
}

/// The file of a bundle that holds its events.
pub(crate) fn events_file(directory: &Path, kind: ManifestKind) -> PathBuf {
    directory.join(if kind == ManifestKind::Oom { "events.json" } else { "telemetry_timeline.json" })
}
