//! The figures of each device, as `stormlog stats` prints them. Scripts rely on the names of the fields.

use std::collections::BTreeMap;

use serde::Serialize;
use stormlog_model::memory::Memory;

use crate::categories::CategoryAmount;
use crate::devices::DeviceLedger;
use crate::frames::Namer;
use crate::heap::Heap;
use crate::profile::Mode;
use crate::stats::LocationTotals;

/// One device's memory, as one source reports it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeviceStats {
    /// `cuda:0`, or `cuda:0/driver`.
    pub device: Memory,
    /// Allocations in all.
    pub allocations: u64,
    /// Bytes in all.
    pub total_allocated_bytes: u64,
    /// Most bytes at one time.
    pub peak_bytes: u64,
    /// When, nanoseconds since the start.
    pub peak_time_ns: u64,
    /// Most bytes that the allocator held from the device; null where nothing reports it.
    pub peak_reserved_bytes: Option<u64>,
    /// Bytes that it holds at the end.
    pub reserved_bytes: Option<u64>,
    /// Bytes that lived when the program's own code had ended; without that moment, at the end.
    pub live_bytes: u64,
    /// Blocks that lived then.
    pub live_blocks: u64,
    /// Requests that got no memory.
    pub failed_requests: u64,
    /// Bytes that were allocated before the recording began.
    pub before_recording_bytes: u64,
    /// Frees of blocks that are older than the recording and whose size is not known.
    pub unknown_frees: u64,
    /// What the live bytes are for, by the words of `docs/gpu-memory-categories.md`.
    pub categories: BTreeMap<&'static str, CategoryAmount>,
    /// Steps of training that were seen: passes of autograd.
    pub steps: u64,
    /// Bytes that a step leaves behind; null while memory does not grow.
    pub growth_bytes_per_step: Option<u64>,
    /// Steps until the device is full, while memory grows and where the device's size is known ([`DeviceStats::forecast`]).
    pub steps_to_oom: Option<u64>,
    /// When the places of `top` held what they hold: `end` where memory lived then, else `peak`.
    pub top_at: &'static str,
    /// The places that held most, the largest first.
    pub top: Vec<LocationTotals>,
}

impl DeviceStats {
    /// Takes in how many bytes of the device the allocator can have.
    pub fn forecast(&mut self, usable_bytes: u64) {
        let left = usable_bytes.saturating_sub(self.peak_bytes);
        self.steps_to_oom = self.growth_bytes_per_step.map(|growth| left / growth.max(1));
    }
}

impl Heap {
    pub(crate) fn device_stats(&self, top: usize, namer: &mut Namer<'_, '_>) -> Vec<DeviceStats> {
        let mut list: Vec<DeviceStats> =
            self.device_ledgers().map(|device| self.device(device, top, namer)).collect();
        list.sort_by_key(|device| device.device);
        list
    }

    /// What the live bytes of a device are for; empty where it is not in the capture.
    #[must_use]
    pub fn device_categories(&self, memory: Memory) -> Vec<(&'static str, u64)> {
        let device = self.device_ledgers().find(|device| device.memory == memory);
        let found = device.map(|device| device.categories(&self.state.tree)).unwrap_or_default();
        found.into_iter().map(|(name, amount)| (name, amount.bytes)).collect()
    }

    fn device(&self, device: &DeviceLedger, top: usize, namer: &mut Namer<'_, '_>) -> DeviceStats {
        let (ledger, figures) = (&device.ledger, device.figures());
        let total = ledger.allocated();
        let (mode, top_at) =
            if figures.leaked.bytes > 0 { (Mode::Leaks, "end") } else { (Mode::Peak, "peak") };
        DeviceStats {
            device: device.memory,
            allocations: total.count,
            total_allocated_bytes: total.bytes,
            peak_bytes: figures.peak_bytes,
            peak_time_ns: figures.peak_time_us.saturating_mul(1000),
            peak_reserved_bytes: figures.peak_reserved_bytes,
            reserved_bytes: figures.reserved_bytes,
            live_bytes: figures.leaked.bytes,
            live_blocks: figures.leaked.count,
            failed_requests: figures.failed_requests,
            before_recording_bytes: figures.before_recording_bytes,
            unknown_frees: ledger.unknown_frees,
            categories: match self.has_blocks() {
                true => device.categories(&self.state.tree),
                false => BTreeMap::new(),
            },
            steps: device.steps.count,
            growth_bytes_per_step: device.steps.growth(),
            steps_to_oom: None,
            top_at,
            top: self.places_of(ledger, mode, top, namer),
        }
    }
}
