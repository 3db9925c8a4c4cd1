//! The contract of a device-like source: four methods, one plain sample, and what it can know at all.
//!
//! `used` is what the driver (or the kernel) says, never the allocator's own number: the gap between the two is what
//! users look for. A counter that cannot be read is `None`.

use serde::Serialize;
use stormlog_model::{Capabilities, Counter, Counters, Record, Support};

use crate::CollectError;

/// Something whose memory can be sampled: a GPU, the host side of a process, a framework's allocator.
pub trait Collector: Send {
    /// The name events carry, e.g. `stormlog.nvml`.
    fn name(&self) -> &str;

    /// Whether a sample may succeed at all on this machine, cheaply. Not an error: no driver is a fact.
    fn is_available(&self) -> bool;

    /// One reading. An error means that nothing could be read; a part that could not is listed in the reading.
    fn sample(&mut self) -> Result<Reading, CollectError>;

    /// What this source can know.
    fn capabilities(&self) -> &DeviceCapabilities;
}

/// One sample of a device, each number known or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceSample {
    /// The device; -1 is the host.
    pub device_id: i64,
    /// Bytes in use on the device, of all processes, as its driver says. On the host: the process's RSS.
    pub used: Option<u64>,
    /// Bytes free on the device.
    pub free: Option<u64>,
    /// Size of the device.
    pub total: Option<u64>,
    /// Bytes handed out by the framework's allocator.
    pub allocated: Option<u64>,
    /// Bytes the allocator holds from the driver.
    pub reserved: Option<u64>,
    /// Bytes in active blocks of the allocator.
    pub active: Option<u64>,
    /// Bytes in inactive split blocks of the allocator.
    pub inactive: Option<u64>,
    /// Bytes the driver and firmware keep for themselves; neither used nor free.
    pub driver_reserved: Option<u64>,
    /// When a framework pushed the allocator's numbers (its own clock); they may be older than the rest.
    pub pushed_at_ns: Option<u64>,
}

impl DeviceSample {
    /// One of the counters an event has. A sample knows no change.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        match counter {
            Counter::Allocated => self.allocated,
            Counter::Reserved => self.reserved,
            Counter::Active => self.active,
            Counter::Inactive => self.inactive,
            Counter::Used => self.used,
            Counter::Free => self.free,
            Counter::Total => self.total,
            Counter::Change => None,
        }
    }

    /// The counters of an event; the change is the caller's to add.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::UNKNOWN;
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::Change) {
            counters.set(counter, self.get(counter));
        }
        counters
    }

    /// Whether nothing at all is known.
    pub fn is_empty(&self) -> bool {
        Counter::ALL.into_iter().all(|counter| self.get(counter).is_none())
    }
}

/// A sample with what is missing from it although the source can usually tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// What was read.
    pub sample: DeviceSample,
    /// What could not be read this time.
    pub missing: Vec<Missing>,
}

impl From<DeviceSample> for Reading {
    fn from(sample: DeviceSample) -> Self {
        Reading { sample, missing: Vec::new() }
    }
}

/// A counter that could not be read this time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The field of [`DeviceSample`].
    pub field: &'static str,
    /// Why.
    pub reason: String,
}

/// The name of what reads a process from outside.
pub const PROCESS_COLLECTOR: &str = "stormlog.process_tracker";

/// Where the numbers of a process come from.
const PROCESS_FILES: &str = "/proc/PID/statm";

/// What a source can know: the facts of `metadata.memory_capabilities` in schema 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCapabilities {
    /// `cuda`, `rocm`, `cpu`, `drm`, …
    pub backend: String,
    /// The collector's name.
    pub telemetry_collector: String,
    /// The calls or files the numbers come from.
    pub sampling_source: String,
    /// The yes-or-no capabilities.
    pub supports: Capabilities,
}

impl DeviceCapabilities {
    /// Capabilities to know exactly these counters. Attribution and fragmentation follow from allocated and reserved,
    /// as the event's rules have it.
    pub(crate) fn new(backend: &str, collector: &str, source: &str, counters: &[Counter]) -> Self {
        let mut supports = Capabilities::default();
        for counter in counters {
            supports = supports.with(Support::of(*counter));
        }
        if counters.contains(&Counter::Allocated) && counters.contains(&Counter::Reserved) {
            supports = supports.with(Support::FragmentationAnalysis).with(Support::AllocatorAttribution);
        }
        DeviceCapabilities {
            backend: backend.to_owned(),
            telemetry_collector: collector.to_owned(),
            sampling_source: source.to_owned(),
            supports,
        }
    }

    /// What can be known of a process from outside, by the kernel's files: how much is resident, and the limit that ends
    /// it. The kernel does not know the allocator of a process, so nothing is claimed of one.
    pub fn of_process() -> Self {
        let counters = [Counter::Used, Counter::Free, Counter::Total];
        Self::new("cpu", PROCESS_COLLECTOR, PROCESS_FILES, &counters)
    }

    /// What 0.4.3's tracker inside a program states of the host: the resident memory stands for what an allocator holds.
    pub fn of_cpu_tracker() -> Self {
        let counters = [Counter::Allocated, Counter::Reserved, Counter::Used, Counter::Free, Counter::Total];
        let supports = counters.into_iter().map(Support::of);
        DeviceCapabilities {
            // Without blocks there is no fragmentation to speak of.
            supports: supports
                .fold(Capabilities::default().with(Support::AllocatorAttribution), Capabilities::with),
            ..Self::new("cpu", "stormlog.cpu_tracker", PROCESS_FILES, &[])
        }
    }

    /// The object under `memory_capabilities` in the metadata of an event.
    pub fn to_object(&self) -> Record {
        self.supports.to_object(&self.backend, &self.telemetry_collector, &self.sampling_source)
    }

    /// The counters this source can know, in serialised order.
    pub fn counters(&self) -> impl Iterator<Item = Counter> + '_ {
        Counter::ALL
            .into_iter()
            .filter(|counter| *counter != Counter::Change && self.supports.supports(Support::of(*counter)))
    }

    /// The fields a reading lacks although this source can know them: a partial reading.
    pub fn partial_fields(&self, reading: &Reading) -> Vec<&'static str> {
        let mut fields: Vec<&'static str> = self
            .counters()
            .filter(|counter| reading.sample.get(*counter).is_none())
            .map(|counter| counter.field().name())
            .collect();
        let named = reading.missing.iter().map(|missing| missing.field);
        for field in named.filter(|field| counter_of(field).is_none()) {
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        fields
    }
}

/// The counter a field of [`DeviceSample`] is, so that it is listed once and under the event's name for it.
fn counter_of(field: &str) -> Option<Counter> {
    Counter::ALL.into_iter().find(|counter| sample_field(*counter) == field)
}

/// The field of [`DeviceSample`] a counter is.
pub(crate) fn sample_field(counter: Counter) -> &'static str {
    match counter {
        Counter::Allocated => "allocated",
        Counter::Reserved => "reserved",
        Counter::Active => "active",
        Counter::Inactive => "inactive",
        Counter::Change => "change",
        Counter::Used => "used",
        Counter::Free => "free",
        Counter::Total => "total",
    }
}

/// What names a device beyond its number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeviceIdentity {
    /// The number samples carry; -1 is the host.
    pub device_id: i64,
    /// `cuda`, `rocm`, `cpu`, `drm`, …
    pub backend: String,
    /// The product's name.
    pub name: Option<String>,
    /// The driver's own id of the device or the MIG instance.
    pub uuid: Option<String>,
    /// For a MIG instance: the uuid of the physical device.
    pub parent_uuid: Option<String>,
    /// The bus address, lower case: `0000:3b:00.0`.
    pub pci: Option<String>,
    /// The kernel driver.
    pub driver: Option<String>,
    /// Whether its memory is the host's: `total` is the host's and `used` the sum over the processes on the device.
    pub unified: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_valid_in_schema_4() {
        for (stated, has_allocator) in
            [(DeviceCapabilities::of_process(), false), (DeviceCapabilities::of_cpu_tracker(), true)]
        {
            let map = Record::from_iter([("memory_capabilities".to_owned(), stated.to_object().into())]);
            let read = stormlog_model::Metadata::read(map, "x", &Counters::UNKNOWN).unwrap();
            assert_eq!(read.capabilities, stated.supports);
            assert_eq!(read.capabilities.supports(Support::AllocatorAllocated), has_allocator);
            assert!(!read.capabilities.supports(Support::FragmentationAnalysis));
        }
    }

    #[test]
    fn missing_counter_makes_a_reading_partial() {
        let capabilities = DeviceCapabilities::new("cuda", "x", "y", &[Counter::Used, Counter::Total]);
        let sample = DeviceSample { used: Some(0), ..DeviceSample::default() };
        let missing = vec![
            Missing { field: "total", reason: "refused".into() },
            Missing { field: "driver_reserved", reason: "refused".into() },
        ];
        let reading = Reading { sample, missing };
        assert_eq!(capabilities.partial_fields(&reading), ["device_total_bytes", "driver_reserved"]);
        assert_eq!(reading.sample.counters().get(Counter::Used), Some(0));
        assert!(!reading.sample.counters().is_known(Counter::Total));
        assert!(DeviceSample::default().is_empty() && !sample.is_empty());
    }
}
