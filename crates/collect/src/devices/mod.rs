//! All devices of this machine, whatever their drivers.

pub mod drm;
pub mod nvml;

use crate::{Collector, DeviceIdentity, Roots};

/// A device and what names it.
pub struct FoundDevice {
    /// What names it.
    pub identity: DeviceIdentity,
    /// Its readings.
    pub collector: Box<dyn Collector>,
}

/// Every GPU and MIG instance that can be read, NVIDIA's first. None is a fact, not a failure.
pub fn discover_devices(roots: &Roots) -> Vec<FoundDevice> {
    let mut found = Vec::new();
    for device in nvml::devices().unwrap_or_default() {
        found.push(FoundDevice { identity: device.identity().clone(), collector: Box::new(device) });
    }
    for device in drm::devices(roots) {
        found.push(FoundDevice { identity: device.identity().clone(), collector: Box::new(device) });
    }
    found
}
