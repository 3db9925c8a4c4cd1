//! GPUs as sources: every one of the machine, by its driver, each under a number of its own.
//!
//! A driver's figures are of the device, over all processes; what a framework's allocator holds is unknown from outside
//! and stays so.

use std::sync::Arc;

use serde_json::Value;
use stormlog_collect::{Collector, DeviceCapabilities, DeviceIdentity, Roots, bytes_held, discover_gpus};
use stormlog_model::{CAPABILITIES_KEY as CAPABILITIES, Record, Support};

use crate::source::failed;
use crate::{Sampled, Source};

/// What does not change between two samples of a GPU.
#[derive(Debug, Clone)]
pub struct GpuFacts {
    /// What names it; the number is unique among those found together.
    pub identity: DeviceIdentity,
    /// The name events carry as their collector.
    pub collector: String,
    /// What every event of it says of the device.
    pub metadata: Record,
}

impl GpuFacts {
    /// Of a device whose driver says this of itself.
    pub(crate) fn new(identity: DeviceIdentity, capabilities: &DeviceCapabilities) -> Self {
        let collector = capabilities.telemetry_collector.clone();
        GpuFacts { collector, metadata: metadata(&identity, capabilities), identity }
    }
}

/// A GPU or a MIG instance, ready to be sampled.
pub struct GpuSource {
    device: stormlog_collect::Gpu,
    facts: Arc<GpuFacts>,
}

/// Every GPU of the machine.
pub fn gpus() -> Vec<GpuSource> {
    let source = |device: stormlog_collect::Gpu| GpuSource {
        facts: Arc::new(GpuFacts::new(device.identity().clone(), device.capabilities())),
        device,
    };
    discover_gpus(&Roots::default()).into_iter().map(source).collect()
}

impl GpuSource {
    /// What does not change.
    pub fn facts(&self) -> &Arc<GpuFacts> {
        &self.facts
    }

    pub(crate) fn device(&self) -> &stormlog_collect::Gpu {
        &self.device
    }
}

impl Source for GpuSource {
    fn sample(&mut self) -> Sampled {
        let reading = match self.device.sample() {
            Ok(reading) => reading,
            Err(error) => return failed(&error),
        };
        let partial = self.device.capabilities().partial_fields(&reading);
        Sampled {
            sample: Some(reading.sample),
            partial_fields: partial.into_iter().map(str::to_owned).collect(),
            error: reading.missing.into_iter().next().map(|missing| missing.reason),
            ..Sampled::default()
        }
    }
}

fn metadata(identity: &DeviceIdentity, capabilities: &DeviceCapabilities) -> Record {
    let can = |support| capabilities.supports.supports(support);
    let mut record = Record::from_iter([
        ("backend".to_owned(), Value::from(capabilities.backend.as_str())),
        ("supports_device_total".to_owned(), can(Support::DeviceTotal).into()),
        ("supports_device_free".to_owned(), can(Support::DeviceFree).into()),
        ("sampling_source".to_owned(), capabilities.sampling_source.as_str().into()),
        ("device_name".to_owned(), identity.name.as_deref().into()),
        ("device_uuid".to_owned(), identity.uuid.as_deref().into()),
    ]);
    if let Some(parent) = &identity.parent_uuid {
        record.insert("device_parent_uuid".to_owned(), parent.as_str().into());
    }
    if identity.unified {
        record.insert("unified".to_owned(), true.into());
    }
    record.insert(CAPABILITIES.to_owned(), capabilities.to_object().into());
    record
}

/// What every event of a process's host side says of what can be known of it.
pub fn host_metadata(stated: &DeviceCapabilities) -> Record {
    Record::from_iter([(CAPABILITIES.to_owned(), stated.to_object().into())])
}

/// What processes hold on all GPUs, looked up now and then. The devices are kept between two looks; while there are none
/// they are searched for again, since a driver may be loaded later.
#[derive(Default)]
pub struct GpuHoldings {
    gpus: Vec<stormlog_collect::Gpu>,
}

impl GpuHoldings {
    /// What these processes hold on all GPUs together; `None` when no driver reports it.
    pub fn bytes_of(&mut self, pids: &[u32]) -> Option<u64> {
        if self.gpus.is_empty() {
            self.gpus = discover_gpus(&Roots::default());
        }
        bytes_held(&self.gpus, pids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::{Capabilities, Counters, Metadata};

    #[test]
    fn capabilities_of_a_device_are_valid_in_schema_4() {
        let stated = DeviceCapabilities {
            backend: "cuda".into(),
            telemetry_collector: "stormlog.nvml".into(),
            sampling_source: "x".into(),
            supports: Capabilities::default().with(Support::DeviceUsed),
        };
        let record = metadata(&DeviceIdentity::default(), &stated);
        let read = Metadata::read(record, "stormlog.nvml", &Counters::UNKNOWN).unwrap();
        assert!(read.capabilities.supports(Support::DeviceUsed));
        assert!(!read.capabilities.supports(Support::AllocatorAllocated));
    }

    /// Holds on machines with GPUs and without.
    #[test]
    fn every_gpu_has_a_number_of_its_own_and_a_process_without_any_holds_nothing_there() {
        let found = gpus();
        let numbers: std::collections::BTreeSet<i64> =
            found.iter().map(|gpu| gpu.facts().identity.device_id).collect();
        assert_eq!(numbers.len(), found.len());
        assert_eq!(GpuHoldings::default().bytes_of(&[std::process::id()]).unwrap_or(0), 0);
    }
}
