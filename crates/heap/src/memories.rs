//! The memories of a capture, and which of them is asked: the host's and each device's. Every question of [`Heap`] is of the selected one.

use stormlog_capture::layout::flags;
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::stacks::Weight;

use crate::curve::Point;
use crate::devices::DeviceLedger;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::ledger::Ledger;
use crate::state::State;

/// A device's memory in a few figures, without a name looked up: what a live view asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Which.
    pub memory: Memory,
    /// Bytes and blocks that live at the last processed record; bytes from before the recording included.
    pub live: Weight,
    /// Bytes that lived when the program's own code had ended, or at the end.
    pub leaked: Weight,
    /// Most bytes at one time.
    pub peak_bytes: u64,
    /// When, microseconds since the start.
    pub peak_time_us: u64,
    /// What the allocator holds from the device now, and the most it held; `None` where nothing reports it.
    pub reserved_bytes: Option<u64>,
    /// The most it held.
    pub peak_reserved_bytes: Option<u64>,
    /// Bytes that were allocated before the recording began.
    pub before_recording_bytes: u64,
    /// Requests that got no memory.
    pub failed_requests: u64,
}

impl State {
    /// All ledgers.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        std::iter::once(&self.host).chain(self.devices.list.iter().map(|device| &device.ledger))
    }

    pub(crate) fn ledgers_mut(&mut self) -> impl Iterator<Item = &mut Ledger> {
        let devices = self.devices.list.iter_mut().map(|device| &mut device.ledger);
        std::iter::once(&mut self.host).chain(devices)
    }
}

impl Heap {
    /// Whether the host heap was recorded: with `run --no-heap` only devices are.
    #[must_use]
    pub fn records_host(&self) -> bool {
        self.header.flags & flags::NO_HOST == 0
    }

    /// The memories that the capture has records of: the host first, devices by name. A capture without the host heap may have none yet.
    #[must_use]
    pub fn memories(&self) -> Vec<Memory> {
        let mut list: Vec<Memory> = self.device_ledgers().map(|device| device.memory).collect();
        if !self.state.host.is_empty() || (list.is_empty() && self.records_host()) {
            list.push(Memory::Host);
        }
        list.sort_unstable();
        list.dedup();
        list
    }

    /// Asks all further questions of this memory. Of all memories only stacks can be asked ([`profile`](Heap::profile)); figures are those of the
    /// first then.
    pub fn select(&mut self, selection: Selection) -> Result<(), HeapError> {
        let memories = self.memories();
        // Of a capture that has no memory at all the host's figures are asked, which are all 0.
        if let Selection::One(memory) = selection
            && !memories.contains(&memory)
            && !(memories.is_empty() && memory == Memory::Host)
        {
            return Err(HeapError::NoMemory { memory, memories });
        }
        self.selected = Some(selection);
        Ok(())
    }

    /// What was selected; without it the host, where there are records of it, else the first device.
    #[must_use]
    pub fn selection(&self) -> Selection {
        self.selected.unwrap_or_else(|| Selection::One(self.memory()))
    }

    /// The memory that figures are of.
    #[must_use]
    pub fn memory(&self) -> Memory {
        match self.selected {
            Some(Selection::One(memory)) => memory,
            _ => self.memories().first().copied().unwrap_or_default(),
        }
    }

    /// Figures of each device.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceFigures> {
        let mut list: Vec<DeviceFigures> = self.device_ledgers().map(DeviceLedger::figures).collect();
        list.sort_by_key(|device| device.memory);
        list
    }

    /// Whether the framework's allocator reports its memory; `None` where no framework with one was seen.
    #[must_use]
    pub fn device_reports(&self) -> Option<bool> {
        self.state.devices.reports
    }

    /// What the allocator held from the device over time; empty on the host.
    #[must_use]
    pub fn reserved_curve(&self) -> &[Point] {
        let memory = self.memory();
        let device = self.device_ledgers().find(|device| device.memory == memory);
        device.filter(|device| device.reserved.peak > 0).map_or(&[], |device| &device.reserved.curve.points)
    }

    pub(crate) fn device_ledgers(&self) -> impl Iterator<Item = &DeviceLedger> {
        let list = self.state.devices.list.iter();
        list.filter(|device| !device.ledger.is_empty() || device.before.is_some())
    }

    /// The ledger that figures are of.
    pub(crate) fn ledger(&self) -> &Ledger {
        self.ledger_of(self.memory()).unwrap_or(&self.state.host)
    }

    pub(crate) fn ledger_of(&self, memory: Memory) -> Option<&Ledger> {
        match memory {
            Memory::Host => Some(&self.state.host),
            Memory::Device(_) => {
                let mut devices = self.device_ledgers();
                devices.find(|device| device.memory == memory).map(|device| &device.ledger)
            }
        }
    }

    /// The ledgers whose stacks are requested; each with its name where there may be several.
    pub(crate) fn asked(&self) -> Vec<(Option<Memory>, &Ledger)> {
        match self.selection() {
            Selection::One(_) => vec![(None, self.ledger())],
            Selection::All => {
                let memories = self.memories().into_iter();
                memories.filter_map(|memory| Some((Some(memory), self.ledger_of(memory)?))).collect()
            }
        }
    }
}

impl DeviceLedger {
    pub(crate) fn figures(&self) -> DeviceFigures {
        let Ledger { level, peak, peak_time_us, failed, .. } = &self.ledger;
        let reserved = (self.reserved.peak > 0).then_some(&self.reserved);
        DeviceFigures {
            memory: self.memory,
            live: self.ledger.weight(level.now()),
            leaked: self.ledger.weight(self.ledger.leaked()),
            peak_bytes: peak.bytes,
            peak_time_us: *peak_time_us,
            reserved_bytes: reserved.map(|reserved| reserved.now),
            peak_reserved_bytes: reserved.map(|reserved| reserved.peak),
            before_recording_bytes: self.before.unwrap_or(0),
            failed_requests: *failed,
        }
    }
}
