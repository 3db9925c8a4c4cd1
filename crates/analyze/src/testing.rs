//! Events for the tests of the rules.

use std::sync::Arc;

use serde_json::Value;
use stormlog_model::{Counter, Counters, Event, Finding, Head, Identity, Metadata, Record};

use crate::recording::Recording;
use crate::rules::RuleContext;

/// A host sample of this many bytes.
pub(crate) fn sample(at_ns: u64, rss: u64) -> Event {
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Used, Some(rss));
    event(at_ns, counters, -1)
}

/// A device sample.
pub(crate) fn gpu(at_ns: u64, allocated: u64, reserved: u64, used: u64, total: u64) -> Event {
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Allocated, Some(allocated));
    counters.set(Counter::Reserved, Some(reserved));
    counters.set(Counter::Used, Some(used));
    counters.set(Counter::Total, Some(total));
    event(at_ns, counters, 0)
}

pub(crate) fn inactive(event: Event, bytes: u64) -> Event {
    let mut counters = event.counters;
    counters.set(Counter::Inactive, Some(bytes));
    let rebuilt = self::event(event.timestamp_ns, counters, event.head.device_id);
    Event { head: event.head, ..rebuilt }
}

fn event(timestamp_ns: u64, counters: Counters, device_id: i64) -> Event {
    Event {
        timestamp_ns,
        counters,
        context: None,
        head: Arc::new(Head {
            session_id: "s".into(),
            event_type: "sample".into(),
            collector: "stormlog.test_tracker".into(),
            sampling_interval_ms: 100,
            pid: 7,
            host: "h".into(),
            identity: Identity::default(),
            device_id,
        }),
        metadata: Arc::new(Metadata::read(Record::new(), "stormlog.test_tracker", &counters).unwrap()),
    }
}

/// The same with another type and context.
pub(crate) fn with(event: Event, event_type: &str, context: &str) -> Event {
    let head = Head { event_type: event_type.into(), ..(*event.head).clone() };
    Event { head: Arc::new(head), context: Some(context.into()), ..event }
}

/// The same on another rank.
pub(crate) fn on_rank(event: Event, rank: u64, world_size: u64) -> Event {
    let identity = Identity { job_id: Some("job".into()), rank, local_rank: rank, world_size };
    let head = Head { identity, session_id: format!("s{rank}"), ..(*event.head).clone() };
    Event { head: Arc::new(head), ..event }
}

/// The same with metadata.
pub(crate) fn metadata(event: Event, pairs: &[(&str, Value)]) -> Event {
    let mut map = event.metadata.map.clone();
    map.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Event { metadata: Arc::new(Metadata { map, ..(*event.metadata).clone() }), ..event }
}

/// All of them, recorded.
pub(crate) fn finish(events: impl IntoIterator<Item = Event>) -> Recording {
    let mut recording = Recording::default();
    events.into_iter().for_each(|event| recording.observe(&event));
    recording
}

/// What the rules say about the first stream, of one kind.
pub(crate) fn finding_of(recording: &Recording, kind: &str) -> Option<Finding> {
    let stream = &recording.sessions[0].ranks[0].streams[0];
    let phases = recording.sessions[0].ranks[0].phases.clone().index();
    let context = RuleContext { stream, phases: &phases, gaps: &[] };
    stream.rules.iter().flat_map(|rule| rule.findings(&context)).find(|finding| finding.kind == kind)
}
