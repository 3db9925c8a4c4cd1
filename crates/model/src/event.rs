//! The telemetry event as it is held in memory, whatever schema it came from.
//!
//! What repeats from event to event (recorder, host, metadata) is shared, so that a hundred thousand
//! events fit in about 11 MB. Two events are equal when everything they say is equal.

use std::sync::Arc;

use crate::capability;
use crate::normalize::{infer_capabilities, understand_metadata};
use crate::{Capabilities, Counter, Counters, Identity, Problem, Record, Schema, Support};

/// One telemetry event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Wall-clock time in nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// The byte counters, each known or unknown.
    pub counters: Counters,
    /// Free text about this event.
    pub context: Option<Arc<str>>,
    /// Who recorded it, and what kind of event it is.
    pub head: Arc<Head>,
    /// What else was recorded.
    pub metadata: Arc<Metadata>,
}

impl Event {
    /// The value of a counter, if known.
    pub fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters.get(counter)
    }
}

/// What events of one recorder and kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Head {
    /// The session the event belongs to.
    pub session_id: String,
    /// `sample`, `start`, `stop`, `peak`, …
    pub event_type: String,
    /// The name of the collector, e.g. `stormlog.cuda_tracker`.
    pub collector: String,
    /// Milliseconds between two samples; 0 when unknown.
    pub sampling_interval_ms: u64,
    /// The recorded process; -1 when unknown.
    pub pid: i64,
    /// The machine's name.
    pub host: String,
    /// Job, rank and world size.
    pub identity: Identity,
    /// The device; -1 is the host.
    pub device_id: i64,
}

/// An event's metadata object with what was understood of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The object as recorded, plus `memory_capabilities`.
    pub map: Record,
    /// What the collector can know at all.
    pub capabilities: Capabilities,
    /// True when the record did not state its capabilities and they were inferred from its counters: such
    /// capabilities are not written back to schemas that do not ask for them.
    pub inferred: bool,
}

impl Metadata {
    /// Reads an event's metadata object: states or infers the capabilities and checks them against the counters.
    pub fn read(mut map: Record, collector: &str, counters: &Counters) -> Result<Self, Problem> {
        let inferred = infer_capabilities(&mut map, collector, |counter| counters.is_known(counter));
        understand_metadata(map, inferred, counters)
    }

    /// The object as written in `schema`: inferred capabilities only where the schema insists on them.
    pub fn to_map(&self, schema: Schema) -> Record {
        let mut map = self.map.clone();
        if self.inferred && schema != Schema::V4 {
            map.shift_remove(capability::KEY);
        }
        map
    }

    /// Whether an event with these counters may carry this metadata: nothing is known that cannot be.
    pub fn permits(&self, counters: &Counters) -> bool {
        Counter::ALL
            .into_iter()
            .all(|counter| !counters.is_known(counter) || self.capabilities.supports(Support::of(counter)))
    }
}

const _: () = assert!(size_of::<Event>() <= 112, "100,000 events must stay under 12 MB");
