//! Shared by the integration tests: golden files and events to try things with.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_model::{Defaults, Event, Interner, Record, Schema, event_from_record, to_record};
use stormlog_store::{ReadOptions, Source};

/// The golden files of the project.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Compares with the golden file of that name, or rewrites it when `STORMLOG_BLESS` is set.
pub fn check_golden(name: &str, text: &str) {
    let path = golden().join("expected").join(name);
    if std::env::var_os("STORMLOG_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; STORMLOG_BLESS=1 writes it", path.display()));
    assert_eq!(text, expected, "{} differs; STORMLOG_BLESS=1 rewrites it", path.display());
}

/// Every event at a path; the first problem panics.
pub fn read_all(path: &Path) -> Vec<Event> {
    let sources = Source::find(path).unwrap();
    sources
        .iter()
        .flat_map(|s| s.events(&ReadOptions::default()).unwrap().collect::<Vec<_>>())
        .map(Result::unwrap)
        .collect()
}

/// A schema-4 record of a CUDA sample.
pub fn cuda_record() -> Record {
    let Value::Object(record) = json!({
        "schema_version": 4, "session_id": "s-1", "timestamp_ns": 1_700_000_000_000_000_000u64, "event_type": "sample",
        "collector": "stormlog.cuda_tracker", "sampling_interval_ms": 100, "pid": 4711, "host": "node-1",
        "job_id": "job-7", "rank": 1, "local_rank": 1, "world_size": 2, "device_id": 0,
        "allocator_allocated_bytes": 100, "allocator_reserved_bytes": 200, "allocator_active_bytes": 90,
        "allocator_inactive_bytes": 10, "allocator_change_bytes": -5, "device_used_bytes": 700,
        "device_free_bytes": 300, "device_total_bytes": 1000, "context": "Memory sample",
        "metadata": {"collector_health_status": "healthy", "memory_capabilities": {
            "backend": "cuda", "telemetry_collector": "stormlog.cuda_tracker", "sampling_source": "test",
            "supports_allocator_allocated": true, "supports_allocator_reserved": true,
            "supports_allocator_active": true, "supports_allocator_inactive": true, "supports_device_used": true,
            "supports_device_free": true, "supports_device_total": true,
            "supports_native_allocator_history": true, "supports_fragmentation_analysis": true,
            "supports_allocator_attribution": true, "supports_bounded_profiling": true
        }}
    }) else {
        unreachable!("a literal object")
    };
    record
}

/// The event of [`cuda_record`] with one field changed.
pub fn cuda_event(field: &str, value: Value) -> Event {
    let mut record = cuda_record();
    record.insert(field.into(), value);
    event_from_record(&record, &Defaults::default(), &mut Interner::default()).unwrap()
}

/// Events of many shapes: unknown counters, odd texts, large numbers, several sessions, inferred capabilities.
pub fn varied_events(seed: u64, count: usize) -> Vec<Event> {
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let texts = [
        json!(null),
        json!(""),
        json!("\"quoted\""),
        json!("comma, é\n\"x\""),
        json!("plain"),
        json!("\u{1F600}\r\n\t"),
        json!("'"),
    ];
    let mut interner = Interner::default();
    let mut events = Vec::new();
    while events.len() < count {
        let mut record = cuda_record();
        record.insert(
            "timestamp_ns".into(),
            (1_700_000_000_000_000_000u64 + events.len() as u64 * 1000).into(),
        );
        record.insert("session_id".into(), format!("s-{}", random(3)).into());
        record.insert("context".into(), texts[random(texts.len() as u64) as usize].clone());
        record.insert("event_type".into(), ["sample", "peak", "stop"][random(3) as usize].into());
        record.insert("allocator_change_bytes".into(), (random(1000) as i64 - 500).into());
        for name in
            ["allocator_active_bytes", "device_free_bytes", "allocator_allocated_bytes", "device_used_bytes"]
        {
            if random(4) == 0 {
                record.insert(name.into(), Value::Null);
            }
        }
        if random(10) == 0 {
            record.insert("allocator_reserved_bytes".into(), u64::MAX.into());
        }
        match random(4) {
            0 => record["metadata"]["extra"] = json!({"n": events.len(), "f": 1.5e-7, "t": "\u{e9}\"'"}),
            1 if record["allocator_allocated_bytes"].is_u64() && record["device_used_bytes"].is_u64() => {
                // An older record: no capabilities of its own.
                record.insert("schema_version".into(), 3.into());
                record.insert("metadata".into(), json!({"old": true}));
            }
            _ => {}
        }
        events.push(event_from_record(&record, &Defaults::default(), &mut interner).unwrap());
    }
    events
}

/// The events as schema-4 records, for comparing what files keep.
pub fn records(events: &[Event]) -> Vec<Record> {
    events.iter().map(|event| to_record(event, Schema::V4).unwrap()).collect()
}
