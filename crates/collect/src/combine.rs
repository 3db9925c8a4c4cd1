//! One device seen from two sides: the driver's numbers and the framework allocator's.
//!
//! Must never fill a device number from the allocator's: that would make the memory outside the allocator invisible.

use stormlog_model::Capabilities;
use stormlog_model::Support::{
    AllocatorActive, AllocatorAllocated, AllocatorAttribution, AllocatorInactive, AllocatorReserved,
    BoundedProfiling, DeviceFree, DeviceTotal, DeviceUsed, FragmentationAnalysis, NativeAllocatorHistory,
};

use crate::collector::sample_field;
use crate::{CollectError, Collector, DeviceCapabilities, ExternalCollector, Missing, Reading};

/// A device whose `used`, `free` and `total` come from its driver and the rest from what a framework pushes.
pub struct Combined {
    driver: Box<dyn Collector>,
    allocator: ExternalCollector,
    capabilities: DeviceCapabilities,
}

impl Combined {
    /// Joins the two sides of one device.
    pub fn new(driver: Box<dyn Collector>, allocator: ExternalCollector) -> Self {
        let capabilities = join(driver.capabilities(), allocator.capabilities());
        Combined { driver, allocator, capabilities }
    }
}

impl Collector for Combined {
    fn name(&self) -> &str {
        self.allocator.name()
    }

    fn is_available(&self) -> bool {
        self.driver.is_available() || self.allocator.is_available()
    }

    /// Fails only when both sides do; one side alone is a partial reading.
    fn sample(&mut self) -> Result<Reading, CollectError> {
        let driver = self.driver.sample();
        let allocator = self.allocator.sample();
        match (driver, allocator) {
            (Ok(mut reading), Ok(pushed)) => {
                let from = pushed.sample;
                let sample = &mut reading.sample;
                sample.allocated = from.allocated;
                sample.reserved = from.reserved;
                sample.active = from.active;
                sample.inactive = from.inactive;
                sample.pushed_at_ns = from.pushed_at_ns;
                reading.missing.extend(pushed.missing);
                Ok(reading)
            }
            (Ok(mut reading), Err(error)) => {
                reading.missing.extend(lacking(self.allocator.capabilities(), &error));
                Ok(reading)
            }
            (Err(error), Ok(mut pushed)) => {
                // What the framework says about the device is its allocator's view.
                pushed.sample.used = None;
                pushed.sample.free = None;
                pushed.sample.total = None;
                pushed.missing.extend(lacking(self.driver.capabilities(), &error));
                Ok(pushed)
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}

/// The device's flags from its driver, all others from the framework.
fn join(driver: &DeviceCapabilities, allocator: &DeviceCapabilities) -> DeviceCapabilities {
    let mut supports = Capabilities::default();
    for flag in [DeviceUsed, DeviceFree, DeviceTotal] {
        if driver.supports.supports(flag) {
            supports = supports.with(flag);
        }
    }
    for flag in [
        AllocatorAllocated,
        AllocatorReserved,
        AllocatorActive,
        AllocatorInactive,
        NativeAllocatorHistory,
        FragmentationAnalysis,
        AllocatorAttribution,
        BoundedProfiling,
    ] {
        if allocator.supports.supports(flag) {
            supports = supports.with(flag);
        }
    }
    DeviceCapabilities {
        sampling_source: format!("{} + {}", allocator.sampling_source, driver.sampling_source),
        supports,
        ..allocator.clone()
    }
}

fn lacking(capabilities: &DeviceCapabilities, error: &CollectError) -> Vec<Missing> {
    let reason = error.to_string();
    capabilities
        .counters()
        .map(|counter| Missing { field: sample_field(counter), reason: reason.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSample, ExternalCounters, Pushed};
    use std::sync::Arc;
    use stormlog_model::Counter;

    /// A driver that always fails; says so.
    struct BrokenStandIn(DeviceCapabilities);

    impl Collector for BrokenStandIn {
        fn name(&self) -> &str {
            "stand-in"
        }
        fn is_available(&self) -> bool {
            false
        }
        fn sample(&mut self) -> Result<Reading, CollectError> {
            Err(CollectError::Driver { device: "GPU-1".into(), call: "memory_info", reason: "lost".into() })
        }
        fn capabilities(&self) -> &DeviceCapabilities {
            &self.0
        }
    }

    #[test]
    fn the_allocators_idea_of_used_never_replaces_the_drivers() {
        let counters = Arc::new(ExternalCounters::default());
        let fields = [Counter::Allocated, Counter::Reserved, Counter::Used];
        let allocator = ExternalCollector::new(Arc::clone(&counters), 0, "cuda", "a", "b", &fields);
        let driver = BrokenStandIn(DeviceCapabilities::new("cuda", "x", "y", &[Counter::Used]));
        let mut both = Combined::new(Box::new(driver), allocator);
        assert!(!both.is_available());
        assert!(both.sample().unwrap_err().to_string().contains("GPU-1: memory_info failed: lost"));
        counters.push(&Pushed { allocated: Some(5), used: Some(7), ..Pushed::default() });
        let reading = both.sample().unwrap();
        let expected = DeviceSample { allocated: Some(5), pushed_at_ns: Some(0), ..DeviceSample::default() };
        assert_eq!(reading.sample, expected);
        assert_eq!(
            both.capabilities().partial_fields(&reading),
            ["allocator_reserved_bytes", "device_used_bytes"]
        );
        assert!(reading.missing.iter().any(|missing| missing.field == "used"));
    }
}
