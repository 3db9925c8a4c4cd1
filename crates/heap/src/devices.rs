//! The memory of devices: a ledger for each, and what only devices have: bytes that are older than the recording, and what the allocator has reserved.
//! Device records are never sampled. Must take any records: a device may be defined later than another stream names it.

use stormlog_capture::op::Op;
use stormlog_capture::record::{MAX_DEVICES, definition, device_of, device_source, kind};
use stormlog_model::memory::{Device, Memory, Source};

use crate::categories::{LiveBlocks, living};
use crate::curve::{Curve, Point};
use crate::define::{device, failed_on_device, totals};
use crate::device_blocks::{BlockLog, log_of};
use crate::ledger::{Ledger, OlderMemory, SiteKey};
use crate::level::Amount;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::step_clock::StepClock;
use crate::stream::Stream;
use crate::tree::{BEFORE_RECORDING, ROOT, Step, Tree};

/// All devices of a recording.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    /// In the order in which they came.
    pub(crate) list: Vec<DeviceLedger>,
    /// Whether the framework's allocator reports: `None` where no framework with one was seen.
    pub(crate) reports: Option<bool>,
}

/// One device's memory, as one source reports it.
#[derive(Debug)]
pub(crate) struct DeviceLedger {
    /// Its number in the recording.
    pub(crate) number: u8,
    pub(crate) memory: Memory,
    pub(crate) ledger: Ledger,
    /// Bytes that were allocated before the recording began; `None` until the allocator's totals are known.
    pub(crate) before: Option<u64>,
    pub(crate) reserved: Reserved,
    /// Its single blocks, where they were requested.
    pub(crate) log: Option<BlockLog>,
    pub(crate) steps: StepClock,
    /// Blocks that lived when the program's own code had ended.
    at_code_end: Vec<LiveBlocks>,
    /// Blocks that live at the moment that is judged: that one, or the end.
    pub(crate) judged: Vec<LiveBlocks>,
}

/// What an allocator has taken from its device.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    pub(crate) now: u64,
    pub(crate) peak: u64,
    pub(crate) tick_max: u64,
    pub(crate) time_us: u64,
    pub(crate) curve: Curve,
}

impl Reserved {
    pub(crate) fn new(options: &HeapReadOptions, time_us: u64) -> Self {
        Reserved { curve: Curve::new(options.curve_points), time_us, ..Reserved::default() }
    }

    pub(crate) fn set(&mut self, bytes: u64) {
        self.now = bytes;
        self.peak = self.peak.max(bytes);
        self.tick_max = self.tick_max.max(bytes);
    }

    fn advance(&mut self, time_us: u64) {
        self.end();
        (self.time_us, self.tick_max) = (time_us, self.now);
    }

    fn end(&mut self) {
        let Reserved { now: bytes, tick_max: max_bytes, time_us, .. } = *self;
        self.curve.push(Point { time_us, bytes, max_bytes, max_change: 0 });
    }
}

impl Devices {
    pub(crate) fn advance(&mut self, time_us: u64) {
        for device in &mut self.list {
            device.ledger.advance(time_us);
            device.reserved.advance(time_us);
        }
    }

    pub(crate) fn end(&mut self) {
        for device in &mut self.list {
            if let Some(log) = &mut device.log {
                log.end(&device.ledger.blocks);
            }
            let at_end = living(&device.ledger);
            device.ledger.end();
            device.reserved.end();
            let at_code_end = std::mem::take(&mut device.at_code_end);
            device.judged = match &device.ledger.code_end {
                Some(end) if at_code_end.is_empty() => by_sites(&end.sites),
                Some(_) => at_code_end,
                None => at_end,
            };
        }
    }

    pub(crate) fn is_live(&self, address: u64) -> bool {
        !self.list.is_empty()
            && address >> 63 == 1
            && self
                .list
                .iter()
                .any(|device| device.number == device_of(address) && device.ledger.blocks.contains(address))
    }

    /// The device of a number; one that is not known yet gets a name of its own until it is defined.
    pub(crate) fn numbered(
        &mut self,
        number: u8,
        options: &HeapReadOptions,
        time_us: u64,
    ) -> &mut DeviceLedger {
        let known = self.list.iter().position(|device| device.number == number);
        let at = known.unwrap_or_else(|| {
            let memory = Memory::Device(Device { kind: u8::MAX, index: number, source: Source::Allocator });
            self.list.push(DeviceLedger {
                number,
                memory,
                ledger: Ledger::new(options, &[], 0, time_us),
                before: None,
                reserved: Reserved::new(options, time_us),
                log: None,
                steps: StepClock::default(),
                at_code_end: Vec::new(),
                judged: Vec::new(),
            });
            self.list.len() - 1
        });
        &mut self.list[at]
    }
}

/// What sites held, where single blocks are not known any more.
fn by_sites(sites: &[Amount]) -> Vec<LiveBlocks> {
    let held = sites.iter().enumerate().filter(|(_, amount)| amount.bytes > 0);
    let row = |(site, amount): (usize, &Amount)| {
        let count = amount.count.max(1);
        LiveBlocks { site: site as u32, size: amount.bytes / count, count, born: 0 }
    };
    held.map(row).collect()
}

impl DeviceLedger {
    /// The program's own code has ended.
    pub(crate) fn code_has_ended(&mut self) {
        self.ledger.code_has_ended();
        self.at_code_end = living(&self.ledger);
    }

    /// It has a name now.
    pub(crate) fn define(&mut self, memory: Memory, options: &HeapReadOptions) {
        let moments = options.device_moments.iter().find(|(other, _)| *other == memory);
        if let Some((_, moments)) = moments.filter(|_| self.ledger.is_empty()) {
            self.ledger = Ledger::new(options, moments, 0, self.ledger.time_us);
        }
        self.memory = memory;
        if self.log.is_none() {
            self.log = log_of(options.device_blocks, memory);
        }
    }

    /// Sets the bytes that the allocator had handed out before the first report.
    fn begin(&mut self, tree: &mut Tree, thread: u32, allocated: u64) {
        if self.before.is_some() {
            return;
        }
        let bytes = allocated.saturating_sub(self.ledger.level.bytes);
        self.before = Some(bytes);
        if bytes > 0 {
            let python = tree.node(ROOT, Step::Mark { mark: BEFORE_RECORDING });
            let key = SiteKey { python, native: ROOT, thread, kind: kind::DEVICE_ALLOCATION };
            let site = self.ledger.site_of(key);
            self.ledger.begin_before(site, bytes);
        }
    }

    fn free(&mut self, stream: &Stream, op: &Op) {
        let Stream { thread, device_allocations, .. } = *stream;
        let block = match self.ledger.is_simple() {
            true => self.ledger.remove::<true>(op.address, thread, device_allocations),
            false => self.ledger.remove::<false>(op.address, thread, device_allocations),
        };
        if block.is_none() && !self.ledger.lose_before(op.size) {
            self.ledger.unknown_frees = self.ledger.unknown_frees.saturating_add(1);
        }
    }
}

impl State {
    /// A block of a device comes or goes.
    pub(crate) fn on_device(&mut self, stream: &mut Stream, op: &Op) {
        let number = device_of(op.address);
        let device = self.devices.numbered(number, &self.options, self.time_us);
        let totals = stream.totals.take_if(|(other, _)| *other == number);
        if op.kind == kind::DEVICE_FREE {
            if let Some((_, allocated)) = totals {
                device.begin(&mut self.tree, stream.thread, allocated.saturating_add(op.size));
            }
            return device.free(stream, op);
        }
        if let Some((_, allocated)) = totals {
            device.begin(&mut self.tree, stream.thread, allocated.saturating_sub(op.size));
        }
        stream.device_allocations = stream.device_allocations.wrapping_add(1);
        let site = device.ledger.site(stream, op, u32::from(op.kind) | u32::from(number) << 8);
        device.steps.note(site, &device.ledger.sites, &self.tree, device.ledger.level.bytes);
        match device.ledger.is_simple() {
            true => device.ledger.insert::<true>(site, op, stream.device_allocations),
            false => device.ledger.insert::<false>(site, op, stream.device_allocations),
        }
        if let Some(log) = &mut device.log {
            log.push(op.address, op.size, site);
        }
    }

    /// Takes in a definition that is about devices; false when it is not.
    pub(crate) fn define_device(&mut self, stream: &mut Stream, what: u64, id: u64, payload: &[u8]) -> bool {
        if !(definition::DEVICE..=definition::DEVICE_REPORTS).contains(&what) {
            return false;
        }
        if what == definition::DEVICE_REPORTS {
            self.devices.reports = Some(id == 1);
            return true;
        }
        let Some(number) = u8::try_from(id).ok().filter(|number| *number < MAX_DEVICES) else { return true };
        let known = self.devices.numbered(number, &self.options, self.time_us);
        match what {
            definition::DEVICE => {
                if let Some((kind, index, source)) = device(payload) {
                    let is_driver = source == device_source::DRIVER;
                    let source = if is_driver { Source::Driver } else { Source::Allocator };
                    known.define(Memory::Device(Device { kind, index, source }), &self.options);
                }
            }
            definition::DEVICE_TOTALS => {
                if let Some((allocated, reserved)) = totals(payload) {
                    if known.before.is_none() {
                        stream.totals = Some((number, allocated));
                    }
                    known.reserved.set(reserved);
                }
            }
            _ => {
                if let Some(([bytes, allocated, reserved], [python, native])) = failed_on_device(payload) {
                    let site = stream.key(python, native, kind::DEVICE_ALLOCATION);
                    known.ledger.fail(site, 0, bytes, Some([allocated, reserved, u64::MAX]));
                }
            }
        }
        true
    }
}

impl Ledger {
    /// Bytes that are older than the recording.
    fn begin_before(&mut self, site: u32, bytes: u64) {
        let step = self.step().unwrap_or(0);
        self.before = Some(OlderMemory { site, step, bytes });
        self.gain(site, Amount { bytes, count: 0 });
    }

    /// A block of unknown address goes: false when it can be none of those that are older than the recording.
    fn lose_before(&mut self, bytes: u64) -> bool {
        let Some(before) = self.before.as_mut().filter(|before| bytes > 0 && before.bytes >= bytes) else {
            return false;
        };
        before.bytes -= bytes;
        let (OlderMemory { site, step, .. }, amount) = (*before, Amount { bytes, count: 0 });
        self.lose::<false>(site, amount);
        if let Some(lives) = &mut self.lives {
            lives.end(site, step, amount);
        }
        true
    }
}
