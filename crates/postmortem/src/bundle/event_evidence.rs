//! Evidence about the end from the events, collected while they are written or read: no event is read twice.
//!
//! Must never need more memory for more events.

use std::collections::BTreeMap;
use std::sync::Arc;

use stormlog_model::{Counter, Counters, Event, Head};

use super::evidence::{DeviceSample, Evidence};
use stormlog_model::phases::OpenPhases;

/// More devices than any machine has.
const MAX_DEVICES: usize = 1024;
/// The host among the devices.
const HOST: i64 = -1;

/// Evidence from the events of a bundle, collected while they are written or read.
#[derive(Debug, Default)]
pub(super) struct EventEvidence {
    pub(super) count: u64,
    pub(super) last_timestamp_ns: Option<u64>,
    pub(super) peak_rss_bytes: Option<u64>,
    last: BTreeMap<i64, (u64, Counters, Arc<Head>)>,
    phases: OpenPhases,
}

impl EventEvidence {
    pub(super) fn observe(&mut self, event: &Event) {
        self.count += 1;
        self.last_timestamp_ns = self.last_timestamp_ns.max(Some(event.timestamp_ns));
        self.phases.observe(event);
        let device = event.head.device_id;
        if device == HOST {
            self.peak_rss_bytes = self.peak_rss_bytes.max(event.counter(Counter::Used));
        }
        if event.counters == Counters::UNKNOWN {
            return;
        }
        if let Some(last) = self.last.get_mut(&device) {
            (last.0, last.1) = (event.timestamp_ns, event.counters);
            if !Arc::ptr_eq(&last.2, &event.head) {
                last.2 = Arc::clone(&event.head);
            }
        } else if self.last.len() < MAX_DEVICES {
            self.last.insert(device, (event.timestamp_ns, event.counters, Arc::clone(&event.head)));
        }
    }

    /// Fills in what the evidence does not say itself.
    pub(super) fn complete(self, evidence: &mut Evidence) {
        evidence.last_event_timestamp_ns = evidence.last_event_timestamp_ns.or(self.last_timestamp_ns);
        // The kernel's high-water mark sees between samples; a sample may still be later than its reading.
        evidence.peak_rss_bytes = evidence.peak_rss_bytes.max(self.peak_rss_bytes);
        if evidence.devices.is_empty() {
            evidence.devices = self
                .last
                .into_iter()
                .map(|(device_id, (timestamp_ns, counters, head))| DeviceSample {
                    device_id,
                    collector: head.collector.clone(),
                    timestamp_ns,
                    counters,
                })
                .collect();
        }
        if evidence.open_phases.is_empty() {
            evidence.open_phases = self.phases.finish();
        }
    }
}
