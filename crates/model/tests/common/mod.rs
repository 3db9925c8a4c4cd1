//! Events to test with.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use serde_json::Value;
use stormlog_model::{Counter, Counters, Event, Head, Identity, Metadata, Record};

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
