//! Events to test with.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use serde_json::{Value, json};
use stormlog_model::{
    Counter, Counters, Event, Head, Identity, Metadata, Record, SessionStatus, SessionSummary,
};

pub const SECOND: u64 = 1_000_000_000;
pub const START: u64 = 1_700_000_000 * SECOND;

pub fn record(value: Value) -> Record {
    value.as_object().cloned().unwrap()
}

pub fn event(at_ns: u64, event_type: &str, device_id: i64, used: Option<u64>, metadata: Value) -> Event {
    let collector = if device_id < 0 { "stormlog.cpu_tracker" } else { "stormlog.cuda_tracker" };
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Used, used);
    if device_id >= 0 {
        counters.set(Counter::Allocated, used);
        counters.set(Counter::Reserved, used);
        counters.set(Counter::Total, Some(80 << 30));
        counters.set_change(used.map(|_| -7));
    }
    let metadata = Metadata::read(record(metadata), collector, &counters).unwrap();
    Event {
        timestamp_ns: at_ns,
        counters,
        context: Some("ctx".into()),
        head: Arc::new(Head {
            session_id: "session-1".into(),
            event_type: event_type.into(),
            collector: collector.into(),
            sampling_interval_ms: 100,
            pid: 77,
            host: "node-1".into(),
            identity: Identity { job_id: Some("job".into()), rank: 1, local_rank: 1, world_size: 4 },
            device_id,
        }),
        metadata: Arc::new(metadata),
    }
}

pub fn session() -> SessionSummary {
    SessionSummary {
        session_id: "session-1".into(),
        status: SessionStatus::Running,
        started_at_ns: START as i64,
        ended_at_ns: None,
        host: "node-1".into(),
        pid: 77,
        job_id: Some("job".into()),
        rank: 1,
        local_rank: 1,
        world_size: 4,
        attempt: None,
        source: "stormlog.tracker".into(),
    }
}

pub fn some_events() -> Vec<Event> {
    vec![
        event(START, "start", 0, None, json!({})),
        event(START + SECOND / 10, "sample", -1, Some(3 << 30), json!({"note": "é\u{1F600}\t"})),
        event(
            START + SECOND / 5,
            "sample",
            0,
            Some(700),
            json!({"nested": {"list": [1, 2.5, []], "empty": {}}}),
        ),
        event(START + SECOND, "error", 0, Some(1), json!({"oom_reason": "message_pattern:out of memory"})),
    ]
}
