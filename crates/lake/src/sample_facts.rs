//! What the columns of `samples` have of an event's metadata, taken out once for all events that share it. Must never hold more than a bounded number
//! of them.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::Metadata;

/// Metadata objects that are remembered; a recording alternates between a few.
const REMEMBERED: usize = 64;

/// Keys that have columns of their own, or say the same in every row of a collector.
const PROMOTED: [&str; 9] = [
    "device_uuid",
    "step",
    "process_device_used_bytes",
    "process_swap_bytes",
    "psi_some_avg10",
    "psi_full_avg10",
    "num_alloc_retries",
    "phase_scope",
    "memory_capabilities",
];

/// The promoted values of a metadata object, and the rest as text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampleFacts {
    /// The driver's id of the device.
    pub device_uuid: Option<Arc<str>>,
    /// The step of the program.
    pub step: Option<i64>,
    /// What the process holds of the device, by the driver.
    pub process_device_used_bytes: Option<i64>,
    /// Bytes of the process that are swapped out.
    pub swap_bytes: Option<i64>,
    /// Percent of the time that some task waited for memory.
    pub pressure_some: Option<f64>,
    /// Percent of the time that all tasks did.
    pub pressure_full: Option<f64>,
    /// Allocations that were tried again after the allocator's cache was emptied.
    pub retries: Option<i64>,
    /// Everything else, as a JSON object; `None` where there is nothing else.
    pub metadata: Option<Arc<str>>,
}

impl SampleFacts {
    fn of(metadata: &Metadata) -> Self {
        let map = &metadata.map;
        let integer = |key: &str| map.get(key).and_then(Value::as_i64);
        let float = |key: &str| map.get(key).and_then(Value::as_f64);
        let capabilities = map.get("memory_capabilities");
        let uuid =
            map.get("device_uuid").or_else(|| capabilities?.get("device_uuid")).and_then(Value::as_str);
        let attributes = map.get("phase_scope").and_then(|scope| scope.get("attributes"));
        let of_phase = attributes.and_then(|attributes| attributes.get("step")).and_then(Value::as_i64);
        let mut rest = map.clone();
        rest.retain(|key, _| !PROMOTED.contains(&key.as_str()));
        let text = (!rest.is_empty()).then(|| serde_json::to_string(&rest).ok()).flatten();
        SampleFacts {
            device_uuid: uuid.map(Arc::from),
            step: integer("step").or(of_phase),
            process_device_used_bytes: integer("process_device_used_bytes"),
            swap_bytes: integer("process_swap_bytes"),
            pressure_some: float("psi_some_avg10"),
            pressure_full: float("psi_full_avg10"),
            retries: integer("num_alloc_retries"),
            metadata: text.map(Arc::from),
        }
    }
}

/// Metadata objects that were taken apart, found again by their address, which the entry keeps in use.
#[derive(Default)]
pub(crate) struct KnownFacts {
    known: FxHashMap<usize, (Arc<Metadata>, Arc<SampleFacts>)>,
}

impl KnownFacts {
    pub(crate) fn of(&mut self, metadata: &Arc<Metadata>) -> Arc<SampleFacts> {
        let address = Arc::as_ptr(metadata) as usize;
        if let Some((_, facts)) = self.known.get(&address) {
            return Arc::clone(facts);
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        let facts = Arc::new(SampleFacts::of(metadata));
        self.known.insert(address, (Arc::clone(metadata), Arc::clone(&facts)));
        facts
    }
}
