//! What device memory is for, and the steps until a device is full: what the capture says of growth, and what the process's samples say of the
//! device.

use std::path::Path;

use stormlog_catalog::run::Process;
use stormlog_heap::{DeviceStats, Stats};
use stormlog_model::format_bytes;
use stormlog_model::memory::{Memory, Source};
use stormlog_model::text::grouped;

/// `c10::DeviceType::CUDA`.
const CUDA: u8 = 1;

/// Fills in `steps_to_oom` of the devices that grow, where the capture is part of a run that sampled them.
pub fn forecast(stats: &mut Stats, capture: &Path) {
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

/// What a device's memory is for, the largest first, and how it grows with each step of training; a label and a text each.
#[must_use]
pub fn purposes(device: &DeviceStats) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&str, u64)> =
        device.categories.iter().map(|(name, amount)| (*name, amount.bytes)).collect();
    parts.retain(|(_, bytes)| *bytes > 0);
    parts.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
    let words: Vec<String> = parts
        .iter()
        .map(|(name, bytes)| format!("{} {}", name.replace('_', " "), format_bytes(*bytes)))
        .collect();
    let mut lines = Vec::new();
    if !words.is_empty() {
        lines.push(("for", words.join(", ")));
    }
    if device.steps > 0 {
        let growth =
            device.growth_bytes_per_step.map(|bytes| format!(", each leaves {} behind", format_bytes(bytes)));
        let left =
            device.steps_to_oom.map(|steps| format!("; the device is full in {} steps", grouped(steps)));
        let steps = grouped(device.steps);
        lines.push(("steps", format!("{steps}{}{}", growth.unwrap_or_default(), left.unwrap_or_default())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stormlog_heap::CategoryAmount;

    use super::*;

    #[test]
    fn purposes_name_the_largest_category_first_and_the_steps_that_are_left() {
        let amount = |bytes| CategoryAmount { bytes, blocks: 1 };
        let categories = BTreeMap::from([
            ("gradients", amount(1 << 20)),
            ("optimizer_state", amount(2 << 20)),
            ("temporaries", amount(0)),
        ]);
        let mut device = DeviceStats {
            categories,
            steps: 1200,
            growth_bytes_per_step: Some(1 << 20),
            peak_bytes: 10 << 20,
            ..DeviceStats::default()
        };
        device.forecast(3 << 30);
        let lines = purposes(&device);
        assert_eq!(lines[0], ("for", "optimizer state 2.00 MiB, gradients 1.00 MiB".to_owned()));
        let steps = "1 200, each leaves 1.00 MiB behind; the device is full in 3 062 steps";
        assert_eq!(lines[1], ("steps", steps.to_owned()));
        assert_eq!(purposes(&DeviceStats::default()), []);
    }
}
