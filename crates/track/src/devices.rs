//! GPUs as sources: every one of the machine, by its driver, each under a number of its own.
//!
//! What a driver tells is the device's, of all processes; what a framework's allocator holds is unknown from outside
//! and stays so.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stormlog_collect::{
    Collector, DeviceCapabilities, DeviceIdentity, FoundDevice, Roots, discover_devices, drm, nvml,
};
use stormlog_model::{Capabilities, Counter, Record, Support};

use crate::source::failed;
use crate::{Sampled, Source};

/// A GPU or a MIG instance, ready to be sampled.
pub struct Gpu {
    /// What names it; the number is unique among those found together.
    pub identity: DeviceIdentity,
    /// The name events carry as their collector.
    pub collector: String,
    /// What every event of it says of the device.
    pub metadata: Record,
    /// Its readings.
    pub source: Box<dyn Source>,
}

/// Every GPU of the machine. A device that is split into MIG instances is listed as its instances.
pub fn gpus() -> Vec<Gpu> {
    let found = discover_devices(&Roots::default());
    let parents: BTreeSet<String> =
        found.iter().filter_map(|device| device.identity.parent_uuid.clone()).collect();
    let is_parent =
        |device: &FoundDevice| device.identity.uuid.as_ref().is_some_and(|uuid| parents.contains(uuid));
    let mut taken = BTreeSet::new();
    let mut gpus = Vec::new();
    for device in found.into_iter().filter(|device| !is_parent(device)) {
        let FoundDevice { mut identity, collector } = device;
        // Each driver counts from 0, and instances carry the number of their device.
        if !taken.insert(identity.device_id) {
            identity.device_id = taken.last().map_or(0, |last| last + 1);
            taken.insert(identity.device_id);
        }
        gpus.push(Gpu {
            collector: collector.name().to_owned(),
            metadata: metadata(&identity, collector.capabilities()),
            source: Box::new(DeviceSource { device_id: identity.device_id, collector }),
            identity,
        });
    }
    gpus
}

/// A driver's readings of one device.
struct DeviceSource {
    device_id: i64,
    collector: Box<dyn Collector>,
}

impl Source for DeviceSource {
    fn sample(&mut self) -> Sampled {
        let reading = match self.collector.sample() {
            Ok(reading) => reading,
            Err(error) => return failed(&error),
        };
        let partial = self.collector.capabilities().partial_fields(&reading);
        let mut sample = reading.sample;
        sample.device_id = self.device_id;
        Sampled {
            sample: Some(sample),
            partial_fields: partial.into_iter().map(str::to_owned).collect(),
            error: reading.missing.into_iter().next().map(|missing| missing.reason),
            facts: Record::new(),
        }
    }
}

fn metadata(identity: &DeviceIdentity, told: &DeviceCapabilities) -> Record {
    let can = |support| told.supports.supports(support);
    let mut record = Record::from_iter([
        ("backend".to_owned(), Value::from(told.backend.as_str())),
        ("supports_device_total".to_owned(), can(Support::DeviceTotal).into()),
        ("supports_device_free".to_owned(), can(Support::DeviceFree).into()),
        ("sampling_source".to_owned(), told.sampling_source.as_str().into()),
        ("device_name".to_owned(), identity.name.as_deref().into()),
        ("device_uuid".to_owned(), identity.uuid.as_deref().into()),
    ]);
    let names = (told.backend.as_str(), told.telemetry_collector.as_str(), told.sampling_source.as_str());
    record.insert("memory_capabilities".to_owned(), capabilities(names, told.supports));
    record
}

/// What every event of a process's host side says: the RSS stands for what an allocator and a driver would tell.
pub fn host_metadata(collector: &str) -> Record {
    let counters = [Counter::Allocated, Counter::Reserved, Counter::Used, Counter::Free, Counter::Total]
        .map(Support::of);
    let supports = counters
        .into_iter()
        .fold(Capabilities::default().with(Support::AllocatorAttribution), Capabilities::with);
    let object = capabilities(("cpu", collector, "/proc/PID/statm"), supports);
    Record::from_iter([("memory_capabilities".to_owned(), object)])
}

/// The object of schema 4.
fn capabilities((backend, collector, source): (&str, &str, &str), supports: Capabilities) -> Value {
    const ALL: [Support; 11] = [
        Support::AllocatorAllocated,
        Support::AllocatorReserved,
        Support::AllocatorActive,
        Support::AllocatorInactive,
        Support::DeviceUsed,
        Support::DeviceFree,
        Support::DeviceTotal,
        Support::NativeAllocatorHistory,
        Support::FragmentationAnalysis,
        Support::AllocatorAttribution,
        Support::BoundedProfiling,
    ];
    let mut object = json!({"backend": backend, "telemetry_collector": collector, "sampling_source": source});
    for support in ALL {
        object[support.name()] = supports.supports(support).into();
    }
    object
}

/// What these processes hold on all GPUs together; `None` when no driver tells.
pub fn gpu_bytes_of(pids: &[u32]) -> Option<u64> {
    let mut sum: Option<u64> = None;
    let mut add = |bytes: Option<u64>| {
        if let Some(bytes) = bytes {
            sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        }
    };
    for device in nvml::devices().unwrap_or_default() {
        let Ok(processes) = device.processes() else { continue };
        // A driver that lists processes and none of these says 0; one that hides them all says nothing.
        add((!processes.is_empty()).then_some(0));
        processes.iter().filter(|process| pids.contains(&process.pid)).for_each(|process| add(process.used));
    }
    let roots = Roots::default();
    if !drm::devices(&roots).is_empty() {
        for pid in pids {
            for client in drm::process_clients(&roots, *pid).unwrap_or_default() {
                add(client.device_bytes());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::{Counters, Metadata};

    #[test]
    fn what_is_said_of_a_collector_is_valid_in_schema_4() {
        let told = DeviceCapabilities {
            backend: "cuda".into(),
            telemetry_collector: "stormlog.nvml".into(),
            sampling_source: "x".into(),
            supports: Capabilities::default().with(Support::DeviceUsed),
        };
        let record = metadata(&DeviceIdentity::default(), &told);
        let read = Metadata::read(record, "stormlog.nvml", &Counters::UNKNOWN).unwrap();
        assert!(read.capabilities.supports(Support::DeviceUsed));
        assert!(!read.capabilities.supports(Support::AllocatorAllocated));
        let host = Metadata::read(host_metadata("stormlog.cpu_tracker"), "x", &Counters::UNKNOWN).unwrap();
        assert!(host.capabilities.supports(Support::AllocatorAllocated));
        assert!(!host.capabilities.supports(Support::FragmentationAnalysis));
    }

    /// Holds on machines with GPUs and without.
    #[test]
    fn every_gpu_has_a_number_of_its_own_and_a_process_without_any_holds_nothing_there() {
        let found = gpus();
        let numbers: BTreeSet<i64> = found.iter().map(|gpu| gpu.identity.device_id).collect();
        assert_eq!(numbers.len(), found.len());
        assert_eq!(gpu_bytes_of(&[std::process::id()]).unwrap_or(0), 0);
    }
}
