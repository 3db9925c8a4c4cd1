//! The memory of devices: numbers for them, and the records of what is reported. Must never ask a device, take a lock that a report may hold, or leave a
//! report out in silence.
//!
//! The reports of one device come one at a time, under its allocator's lock, but from several threads. Where another thread reports than the one
//! before, a new moment begins, so that a reader knows the order of all reports of a device.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use stormlog_capture::record::{MAX_DEVICES, definition, device_address, kind};

use crate::backward;
use crate::clock;
use crate::code_end;
use crate::ends;
use crate::injected::UNRECORDED_NODE;
use crate::native;
use crate::session::{self, EPOCH};
use crate::stacks;
use crate::thread::{Inside, Thread};

/// Definitions that may come before a record of a device, and their bytes at most.
const DEFINITIONS: usize = 2;
const PAYLOAD: usize = 64;

/// A device and the source that reports its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// As PyTorch numbers them.
    pub sort: u8,
    pub index: u8,
    /// One of `device_source`.
    pub source: u8,
}

impl Name {
    /// A number that is not 0.
    fn key(self) -> u32 {
        1 << 24 | u32::from(self.source) << 16 | u32::from(self.sort) << 8 | u32::from(self.index)
    }
}

/// A block that comes (`bytes` above 0) or goes.
pub struct Report {
    pub device: Name,
    pub block: u64,
    pub bytes: i64,
    /// What the allocator counts as allocated and reserved, this block included.
    pub totals: Option<(u64, u64)>,
    /// An address in the code that asked, for where no native stack is walked; 0: none.
    pub caller: u64,
}

/// A request that got nothing.
pub struct Request {
    pub device: Name,
    pub bytes: u64,
    pub allocated: u64,
    pub reserved: u64,
}

/// Whether the framework reports.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reports {
    Made = 1,
    Missing = 2,
}

/// The devices of a recording. All zeroes: none.
#[repr(C)]
pub struct Devices {
    known: [Device; MAX_DEVICES as usize],
    /// What the stream says of the framework; 0: nothing.
    announced: AtomicU32,
}

#[repr(C)]
struct Device {
    /// [`Name::key`]; 0: no device has this number.
    key: AtomicU32,
    /// The stream of the last report, plus 1.
    stream: AtomicU32,
    /// The reserved bytes last written, plus 1.
    reserved: AtomicU64,
    /// There are blocks from before the recording: the reader does not know how large they are.
    has_older: AtomicBool,
}

impl Devices {
    /// Forgets all; only while nothing is recorded.
    pub fn clear(&self) {
        for device in &self.known {
            device.key.store(0, Ordering::Relaxed);
            device.stream.store(0, Ordering::Relaxed);
            device.reserved.store(0, Ordering::Relaxed);
            device.has_older.store(false, Ordering::Relaxed);
        }
        self.announced.store(0, Ordering::Relaxed);
    }

    /// Number and entry of a device, which gets one here. `None`: there are too many.
    fn find(&self, name: Name) -> Option<(u8, &Device)> {
        let key = name.key();
        let mut all = (0..).zip(&self.known);
        all.find(|(_, device)| match device.key.load(Ordering::Acquire) {
            0 => match device.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => true,
                Err(taken) => taken == key,
            },
            known => known == key,
        })
    }
}

/// Enters the recorder for a report of device memory; `None` when device memory is not recorded.
fn enter() -> Option<Inside> {
    let wanted = EPOCH.load(Ordering::Acquire) != 0 && session::options().gpu;
    if wanted { Inside::enter_report() } else { None }
}

/// Records a block that comes or goes.
pub fn report(report: &Report) {
    if report.bytes == 0 {
        return;
    }
    if let Some(mut inside) = enter() {
        let caller = match report.caller {
            0 => 0,
            caller if native::name_module_of(&mut inside, caller) => caller,
            _ => 0,
        };
        inside.record(|thread| write(thread, report, caller));
    }
}

fn write(thread: &mut Thread, report: &Report, caller: u64) {
    let Some((number, device)) = begin(thread, report.device) else { return };
    let bytes = report.bytes.unsigned_abs();
    if let Some((allocated, reserved)) = report.totals {
        let last = device.reserved.load(Ordering::Relaxed);
        if last == 0 {
            let others = (i128::from(allocated) - i128::from(report.bytes)) > 0;
            device.has_older.store(others, Ordering::Relaxed);
        }
        if last != reserved.wrapping_add(1) {
            let payload = [allocated.to_le_bytes(), reserved.to_le_bytes()];
            let written = thread.writer.definition(
                definition::DEVICE_TOTALS,
                u64::from(number),
                &[payload.as_flattened()],
            );
            if written {
                device.reserved.store(reserved.wrapping_add(1), Ordering::Relaxed);
            }
        }
    }
    let address = device_address(number, report.block) as usize;
    if report.bytes > 0 {
        if !thread.writer.room() {
            return;
        }
        let (python, native) = stack(thread, caller);
        thread.writer.allocation(kind::DEVICE_ALLOCATION, address, bytes as usize, python, native);
    } else {
        let bytes = if device.has_older.load(Ordering::Relaxed) { bytes as usize } else { 0 };
        thread.writer.release(kind::DEVICE_FREE, address, bytes);
    }
}

/// Records a request that got nothing.
#[cold]
pub fn failed(request: &Request) {
    let Some(mut inside) = enter() else { return };
    inside.record(|thread| {
        let Some((number, _)) = begin(thread, request.device) else { return };
        let (python, native) = stack(thread, 0);
        if !thread.writer.ready_for(DEFINITIONS, PAYLOAD) {
            return;
        }
        let numbers = [request.bytes, request.allocated, request.reserved].map(u64::to_le_bytes);
        let nodes = [python, native].map(u32::to_le_bytes);
        thread.writer.definition(
            definition::DEVICE_FAILED,
            u64::from(number),
            &[numbers.as_flattened(), nodes.as_flattened()],
        );
        ends::failed_request(true, request.bytes);
    });
}

/// Makes the stream ready for a record of the device: it knows its number, and its time is after that of the device's last report in another.
fn begin(thread: &mut Thread, name: Name) -> Option<(u8, &'static Device)> {
    code_end::note(thread);
    let Some((number, device)) = session::current().and_then(|state| state.devices.find(name)) else {
        session::lost(1);
        return None;
    };
    let stream = thread.writer.stream() + 1;
    if device.stream.load(Ordering::Relaxed) != stream {
        device.stream.store(stream, Ordering::Relaxed);
        clock::begin_turn();
    }
    if !thread.writer.ready_for(DEFINITIONS, PAYLOAD) {
        return None;
    }
    if thread.devices >> number & 1 == 0 {
        let payload = [name.sort, name.index, name.source];
        if !thread.writer.definition(definition::DEVICE, u64::from(number), &[&payload]) {
            return None;
        }
        thread.devices |= 1 << number;
    }
    Some((number, device))
}

/// The stack of a report: the thread's own; in a thread of an autograd engine, below that of the thread that runs backward.
fn stack(thread: &mut Thread, caller: u64) -> (u32, u32) {
    let (python, mut native) = stacks::current(thread);
    if native == 0 && caller != 0 {
        native = stacks::native_leaf(thread, caller);
    }
    match python {
        0 => (backward::node(thread), native),
        // The blocks of a device are recorded without gaps, whatever asked.
        UNRECORDED_NODE => (0, native),
        _ => (backward::below_caller(thread, python), native),
    }
}

/// Says in the stream whether the framework reports, where that is news.
pub fn announce(thread: &mut Thread, reports: Reports) {
    let Some(state) = session::current() else { return };
    let announced = &state.devices.announced;
    let known = announced.load(Ordering::Acquire);
    let is_news = known == 0 || (known == Reports::Missing as u32 && reports == Reports::Made);
    if is_news
        && announced.compare_exchange(known, reports as u32, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        thread.writer.definition(definition::DEVICE_REPORTS, reports as u64, &[]);
    }
}
