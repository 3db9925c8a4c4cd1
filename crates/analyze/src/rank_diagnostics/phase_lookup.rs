//! The phases of every session and rank among events, asked by event or by moment.

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::Event;

use crate::phases::{PhaseAttribution, PhaseIndex, PhaseRecord};

/// Phase indices by session and rank.
#[derive(Debug, Default)]
pub(super) struct PhaseLookup<'a> {
    indices: FxHashMap<(&'a str, u64), PhaseIndex>,
}

impl<'a> PhaseLookup<'a> {
    pub(super) fn of(events: &'a [Event]) -> Self {
        let mut records: FxHashMap<(&str, u64), PhaseRecord> = FxHashMap::default();
        for event in events.iter().filter(|event| !event.head.session_id.is_empty()) {
            records.entry(key(event)).or_default().observe(event);
        }
        let indices = records.into_iter().map(|(key, record)| (key, record.index()));
        PhaseLookup { indices: indices.filter(|(_, index)| !index.is_empty()).collect() }
    }

    /// The phase of an event, by its time and what it states of its origin.
    pub(super) fn of_event(&self, event: &Event) -> Option<PhaseAttribution> {
        let index = self.indices.get(&key(event))?;
        let metadata = &event.metadata.map;
        let thread = metadata.get("origin_thread_id").and_then(Value::as_i64);
        let scope = metadata.get("origin_phase_scope_id").and_then(Value::as_str);
        index.resolve_from(event.timestamp_ns, thread, scope)
    }

    /// The phase of a moment of a session and rank.
    pub(super) fn at(&self, session: &str, rank: u64, at_ns: u64) -> Option<PhaseAttribution> {
        self.indices.get(&(session, rank))?.resolve(at_ns)
    }
}

fn key(event: &Event) -> (&str, u64) {
    (&event.head.session_id, event.head.identity.rank)
}
