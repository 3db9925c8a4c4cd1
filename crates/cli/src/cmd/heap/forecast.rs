//! Steps until a device is full: what the capture says of growth, and what the process's samples say of the device.

use std::path::Path;

use stormlog_catalog::run::Process;
use stormlog_heap::Stats;
use stormlog_model::memory::{Memory, Source};

/// `c10::DeviceType::CUDA`.
const CUDA: u8 = 1;

/// Fills in `steps_to_oom` of the devices that grow, where the capture is part of a run that sampled them.
pub(crate) fn forecast(stats: &mut Stats, capture: &Path) {
    let mut growing =
        stats.devices.iter_mut().filter(|device| device.growth_bytes_per_step.is_some()).peekable();
    if growing.peek().is_none() {
        return;
    }
    let Some(process) = Process::of_part(capture) else { return };
    for device in growing {
        if let Memory::Device(found) = device.device
            && (found.kind, found.source) == (CUDA, Source::Allocator)
            && let Some(usable) = process.usable_device_bytes(found.index.into())
        {
            device.forecast(usable);
        }
    }
}
