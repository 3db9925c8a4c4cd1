//! What a collector can know at all: `metadata.memory_capabilities` of schema 4.

use serde_json::Value;

use crate::record::non_empty;
use crate::{Counter, Counters, Problem, Record};

/// The key of the capabilities object in an event's metadata.
pub const KEY: &str = "memory_capabilities";

const STRINGS: [&str; 3] = ["backend", "telemetry_collector", "sampling_source"];

/// One yes-or-no capability, in serialised order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "each variant is the flag of that name in SUPPORTS")]
pub enum Support {
    AllocatorAllocated,
    AllocatorReserved,
    AllocatorActive,
    AllocatorInactive,
    DeviceUsed,
    DeviceFree,
    DeviceTotal,
    NativeAllocatorHistory,
    FragmentationAnalysis,
    AllocatorAttribution,
    BoundedProfiling,
}

const SUPPORTS: [(Support, &str); 11] = [
    (Support::AllocatorAllocated, "supports_allocator_allocated"),
    (Support::AllocatorReserved, "supports_allocator_reserved"),
    (Support::AllocatorActive, "supports_allocator_active"),
    (Support::AllocatorInactive, "supports_allocator_inactive"),
    (Support::DeviceUsed, "supports_device_used"),
    (Support::DeviceFree, "supports_device_free"),
    (Support::DeviceTotal, "supports_device_total"),
    (Support::NativeAllocatorHistory, "supports_native_allocator_history"),
    (Support::FragmentationAnalysis, "supports_fragmentation_analysis"),
    (Support::AllocatorAttribution, "supports_allocator_attribution"),
    (Support::BoundedProfiling, "supports_bounded_profiling"),
];

impl Support {
    /// The key of this flag.
    pub fn name(self) -> &'static str {
        SUPPORTS[self as usize].1
    }

    /// The flag that says whether a counter can be known. A change is known where allocated is.
    pub fn of(counter: Counter) -> Self {
        match counter {
            Counter::Allocated | Counter::Change => Support::AllocatorAllocated,
            Counter::Reserved => Support::AllocatorReserved,
            Counter::Active => Support::AllocatorActive,
            Counter::Inactive => Support::AllocatorInactive,
            Counter::Used => Support::DeviceUsed,
            Counter::Free => Support::DeviceFree,
            Counter::Total => Support::DeviceTotal,
        }
    }
}

/// The yes-or-no capabilities of a collector, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Whether the collector can do this.
    pub fn supports(self, support: Support) -> bool {
        self.0 & (1 << support as u16) != 0
    }

    /// The same with one capability more.
    #[must_use]
    pub fn with(self, support: Support) -> Self {
        Capabilities(self.0 | 1 << support as u16)
    }

    /// Reads the object a schema-4 record must carry; every problem is reported.
    pub(crate) fn read(metadata: &Record, problems: &mut Vec<Problem>) -> Option<Self> {
        let Some(Value::Object(object)) = metadata.get(KEY) else {
            problems.push(Problem::of("metadata.memory_capabilities", "must be an object"));
            return None;
        };
        let names = STRINGS.into_iter().chain(SUPPORTS.iter().map(|(_, name)| *name));
        let missing: Vec<&str> = names.clone().filter(|name| !object.contains_key(*name)).collect();
        if !missing.is_empty() {
            let list = missing.join(", ");
            problems.push(Problem::at(
                "metadata.memory_capabilities",
                format!("Missing memory capability fields: {list}"),
            ));
        }
        let mut unknown: Vec<&str> =
            object.keys().map(String::as_str).filter(|key| !names.clone().any(|name| name == *key)).collect();
        if !unknown.is_empty() {
            unknown.sort_unstable();
            let list = unknown.join(", ");
            problems.push(Problem::at(
                "metadata.memory_capabilities",
                format!("Unknown memory capability fields: {list}"),
            ));
        }
        for name in STRINGS {
            if let Some(value) = object.get(name) {
                let field = format!("metadata.memory_capabilities.{name}");
                problems.extend(non_empty(value, &field).err());
            }
        }
        let mut capabilities = Capabilities::default();
        for (support, name) in SUPPORTS {
            match object.get(name) {
                Some(Value::Bool(true)) => capabilities = capabilities.with(support),
                Some(Value::Bool(false)) | None => {}
                Some(_) => {
                    problems.push(Problem::of(
                        &format!("metadata.memory_capabilities.{name}"),
                        "must be a boolean",
                    ));
                }
            }
        }
        Some(capabilities)
    }

    /// What must have been possible, judged by what is there: for records older than schema 4.
    pub(crate) fn infer(known: impl Fn(Counter) -> bool) -> Self {
        let mut capabilities = Capabilities::default();
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::Change) {
            if known(counter) {
                capabilities = capabilities.with(Support::of(counter));
            }
        }
        if known(Counter::Allocated) && known(Counter::Reserved) {
            capabilities =
                capabilities.with(Support::FragmentationAnalysis).with(Support::AllocatorAttribution);
        }
        capabilities
    }

    /// The object as written into metadata.
    pub fn to_object(self, backend: &str, collector: &str, source: &str) -> Record {
        let mut object = Record::new();
        for (name, text) in STRINGS.into_iter().zip([backend, collector, source]) {
            object.insert(name.into(), text.into());
        }
        for (support, name) in SUPPORTS {
            object.insert(name.into(), self.supports(support).into());
        }
        object
    }

    /// A counter the collector says it cannot know must be null.
    pub(crate) fn contradictions(self, counters: &Counters) -> Vec<Problem> {
        let mut problems = Vec::new();
        for counter in Counter::ALL {
            let support = Support::of(counter);
            if !counters.is_known(counter) || self.supports(support) {
                continue;
            }
            let field = counter.field().name();
            problems.push(if counter == Counter::Change {
                Problem::of(field, "must be null when allocator allocated memory is unsupported")
            } else {
                Problem::of(
                    field,
                    &format!("must be null when metadata.memory_capabilities.{} is false", support.name()),
                )
            });
        }
        // 0.4.3 names the change last; the first problem is the one its callers see.
        problems.sort_by_key(|problem| problem.field.as_deref() == Some("allocator_change_bytes"));
        problems
    }
}

/// The backend a collector's name gives away.
pub(crate) fn backend_of_collector(collector: &str) -> &'static str {
    let lower = collector.to_lowercase();
    ["cuda", "rocm", "mps", "cpu", "tensorflow", "jax"]
        .into_iter()
        .find(|backend| lower.contains(backend))
        .unwrap_or("unknown")
}
