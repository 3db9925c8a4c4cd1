//! The events of one session: head, stated capabilities and metadata around the numbers of a sample.
//!
//! Every sampler makes its events here: the tracker inside a program, the supervisor outside of it, the recorder of the
//! Python package. Reads no clock and no file. Must never let a number into an event that its source does not state it
//! can know.

use std::sync::Arc;
use std::time::Duration;

use stormlog_collect::DeviceSample;
use stormlog_model::{
    Capabilities, Counter, Counters, Event, Identity, Metadata, Problem, Record, SessionSummary, Support,
};

use crate::{GpuSample, Heads};

/// Makes the events of one session.
#[derive(Debug)]
pub struct SessionEvents {
    heads: Heads,
    capabilities: Capabilities,
    /// What every event says of its collector and its process; it cannot be overridden.
    base: Record,
    /// How the collector is, where events say that.
    status: Record,
    /// What else is known at the moment; an event's own metadata comes before it.
    facts: Record,
    /// The metadata of an event that adds nothing.
    plain: Arc<Metadata>,
}

impl SessionEvents {
    /// For events of this session, taken every `interval`. `base` holds `memory_capabilities`.
    pub fn new(
        session: &SessionSummary,
        identity: &Identity,
        collector: &str,
        interval: Duration,
        base: Record,
    ) -> Result<Self, Problem> {
        let checked = Metadata::read(base.clone(), collector, &Counters::UNKNOWN)?;
        let heads = Heads::new(session, identity, collector, interval);
        Ok(Self::stated(heads, base, checked.capabilities))
    }

    /// The same where the capabilities in `base` are known already.
    pub(crate) fn stated(heads: Heads, base: Record, capabilities: Capabilities) -> Self {
        let plain = Metadata { map: base.clone(), capabilities, inferred: false };
        let (status, facts) = (Record::new(), Record::new());
        SessionEvents { heads, capabilities, base, status, facts, plain: Arc::new(plain) }
    }

    /// Whether the source states that it can know this.
    pub fn supports(&self, support: Support) -> bool {
        self.capabilities.supports(support)
    }

    /// Replaces what is known beside the numbers, for the events that follow.
    pub fn set_facts(&mut self, facts: &Record) {
        if self.facts != *facts {
            self.facts.clone_from(facts);
            self.refresh();
        }
    }

    /// Replaces what events say of the collector's health.
    pub(crate) fn set_status(&mut self, status: Record) {
        self.status = status;
        self.refresh();
    }

    /// The fields of a sample that its source declares it supports: nothing else may be in an event.
    pub fn counters(&self, sample: &DeviceSample) -> Counters {
        let mut counters = sample.counters();
        for counter in Counter::ALL {
            if counters.is_known(counter) && !self.supports(Support::of(counter)) {
                counters.set_raw(counter, None);
            }
        }
        counters
    }

    /// An event at that moment; `own` is what it adds to the metadata.
    pub fn event(
        &mut self,
        event_type: &str,
        at_ns: u64,
        device_id: i64,
        counters: Counters,
        context: Option<Arc<str>>,
        own: Record,
    ) -> Event {
        let metadata = match own.is_empty() {
            true => Arc::clone(&self.plain),
            false => Arc::new(self.metadata_with(own)),
        };
        let head = self.heads.get(event_type, device_id);
        Event { timestamp_ns: at_ns, counters, context, head, metadata }
    }

    /// The sample of a GPU beside the session's process; `None` when its driver states what no event may hold.
    pub fn gpu_sample(&mut self, sample: &GpuSample, at_ns: u64) -> Option<Event> {
        let metadata = Arc::new(sample.metadata(self.heads.pid()?)?);
        let head = self.heads.get_by("sample", sample.gpu.identity.device_id, &sample.gpu.collector);
        Some(Event { timestamp_ns: at_ns, counters: sample.counters, context: None, head, metadata })
    }

    fn refresh(&mut self) {
        self.plain = Arc::new(self.metadata_with(Record::new()));
    }

    /// The metadata of an event that adds this, in 0.4.3's order.
    fn metadata_with(&self, mut map: Record) -> Metadata {
        for (key, value) in &self.status {
            map.insert(key.clone(), value.clone());
        }
        for (key, value) in &self.facts {
            map.entry(key.as_str()).or_insert_with(|| value.clone());
        }
        for (key, value) in &self.base {
            map.insert(key.clone(), value.clone());
        }
        Metadata { map, capabilities: self.capabilities, inferred: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_collect::DeviceCapabilities;

    fn events() -> SessionEvents {
        let session = crate::heads::tests::session();
        let base = crate::host_metadata(&DeviceCapabilities::of_process());
        SessionEvents::new(&session, &Identity::default(), "c", Duration::from_secs(1), base).unwrap()
    }

    #[test]
    fn numbers_that_the_source_does_not_state_are_left_out() {
        let sample = DeviceSample { used: Some(1), allocated: Some(2), ..DeviceSample::default() };
        let counters = events().counters(&sample);
        assert_eq!((counters.get(Counter::Used), counters.get(Counter::Allocated)), (Some(1), None));
    }

    #[test]
    fn an_events_own_metadata_comes_before_facts_and_after_the_base() {
        let mut events = events();
        let record = |text: &str| serde_json::from_str::<Record>(text).unwrap();
        events.set_facts(&record(r#"{"psi_some_avg10": 12, "process_swap_bytes": 4096}"#));
        let own = record(r#"{"psi_some_avg10": 12.5, "memory_capabilities": "none"}"#);
        let event = events.event("warning", 5, -1, Counters::UNKNOWN, None, own);
        let map = &event.metadata.map;
        assert_eq!((map["psi_some_avg10"].as_f64(), &map["process_swap_bytes"]), (Some(12.5), &4096.into()));
        assert!(map["memory_capabilities"].is_object());
        let plain = events.event("sample", 6, -1, Counters::UNKNOWN, None, Record::new());
        let again = events.event("sample", 7, -1, Counters::UNKNOWN, None, Record::new());
        assert!(Arc::ptr_eq(&plain.metadata, &again.metadata) && Arc::ptr_eq(&plain.head, &again.head));
    }
}
