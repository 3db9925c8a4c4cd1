//! What a capture says in a few lines: its peak, what lived when it mattered and where, the request that failed. Must name the lines that every other
//! view names, and read the capture once.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use stormlog_heap::{FailedRequest, Heap, LocationTotals, Mode, Names};
use stormlog_model::format_bytes;
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::own_code::OwnCode;

use crate::find::Chosen;
use crate::heap_query::HeapQuery;
use crate::reading::Reading;

/// When memory was held that is shown as of a failed request.
pub const AT_FAILURE: &str = "when the request failed";
/// Places named.
const PLACES: usize = 5;

/// A line of the program and what it held of one memory. Scripts know these names (`held` of `oom show --json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Of which memory.
    pub memory: Memory,
    /// How much.
    pub bytes: u64,
    /// File.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
    /// Function.
    pub function: String,
}

impl Holder {
    fn new(memory: Memory, place: LocationTotals) -> Self {
        let LocationTotals { function, file, line, bytes, .. } = place;
        Holder { memory, bytes, file, line, function }
    }

    /// `dataset.py:88 Cache.put`, or what of it is known.
    #[must_use]
    pub fn words(&self) -> String {
        LocationTotals::words_of(&self.file, self.line, &self.function)
    }
}

/// The memory of one device in a few lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceDigest {
    /// Which.
    pub memory: Memory,
    /// Most bytes at one time.
    pub peak_bytes: u64,
    /// Bytes that lived when the program's own code had ended, or at the end.
    pub live_bytes: u64,
    /// The most that its allocator held from the device, where that is reported.
    pub peak_reserved_bytes: Option<u64>,
    /// What is held is that of the last failed request, not of the end.
    pub is_held_at_failure: bool,
    /// The last request that got no memory, in words.
    pub failed_request: Option<String>,
    /// What the live bytes are for, the largest first; empty where that is not known.
    pub categories: Vec<(String, u64)>,
}

/// A capture in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapDigest {
    /// The capture.
    pub path: PathBuf,
    /// Whether the host's heap was recorded; the figures without a device are its own.
    pub has_host: bool,
    /// Most bytes on the heap at one time.
    pub peak_bytes: u64,
    /// Bytes that lived when the program's own code had ended, or at the end.
    pub live_bytes: u64,
    /// What lived at the moment that matters and where it was allocated, largest first: bytes and place.
    pub held: Vec<(u64, String)>,
    /// That moment is when the last request failed, not the end.
    pub is_held_at_failure: bool,
    /// The last request that got no memory, in words.
    pub failed: Option<String>,
    /// What to do about that request, where no release of other memory could have helped.
    pub outsized: Option<String>,
    /// The devices.
    pub devices: Vec<DeviceDigest>,
    /// Lines that held memory at the moment that matters, of every memory: those of a memory whose request failed first, then the largest.
    pub holders: Vec<Holder>,
    /// Lines that held memory when each memory was fullest, the largest first.
    pub peak_holders: Vec<Holder>,
    /// Records that could not be written.
    pub lost_events: u64,
    /// Mean bytes between the allocations that were recorded: the numbers are estimates. `None` where all were.
    pub sample_bytes: Option<u64>,
}

impl HeapDigest {
    /// Reads the capture at `path`; `None` when it cannot be read. A process that died of a failed request lived on until its exception had let
    /// go of everything: `of_failure` asks what held the memory when the request failed.
    #[must_use]
    pub fn read(path: &Path, of_failure: bool) -> Option<Self> {
        let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
        let mut reading = Reading::with(chosen, HeapQuery::Leaks, 2, |_| false).ok()?;
        Some(Self::of(&mut reading, of_failure))
    }

    /// As [`read`](Self::read), of a capture whose process has ended and which no compactor works on.
    #[must_use]
    pub fn read_still(path: &Path, of_failure: bool) -> Option<Self> {
        Some(Self::of(&mut Reading::still(path, HeapQuery::Leaks).ok()?, of_failure))
    }

    /// Of a capture that was read for [`HeapQuery::Leaks`].
    #[must_use]
    pub fn of(reading: &mut Reading, of_failure: bool) -> Self {
        let mut names = Names::default();
        let mut holders = Vec::new();
        let memories = reading.heap.memories();
        let devices = memories.iter().filter(|memory| memory.is_device());
        let devices: Vec<DeviceDigest> = devices
            .filter_map(|memory| device(&mut reading.heap, *memory, of_failure, &mut names, &mut holders))
            .collect();
        let has_host = memories.contains(&Memory::Host);
        let mut digest = match has_host && reading.heap.select(Selection::One(Memory::Host)).is_ok() {
            true => Self::of_host(reading, of_failure, &mut names, &mut holders),
            false => HeapDigest {
                path: reading.chosen.path.clone(),
                has_host,
                peak_bytes: 0,
                live_bytes: 0,
                held: Vec::new(),
                is_held_at_failure: false,
                failed: None,
                outsized: None,
                devices: Vec::new(),
                holders: Vec::new(),
                peak_holders: Vec::new(),
                lost_events: reading.heap.lost_events,
                sample_bytes: Some(reading.heap.header.sample_bytes).filter(|mean| *mean > 0),
            },
        };
        digest.devices = devices;
        let failed = digest.failed_memory();
        holders.sort_by_key(|holder| (Some(holder.memory) != failed, std::cmp::Reverse(holder.bytes)));
        digest.holders = holders;
        for memory in memories {
            let at_peak = reading.heap.holders_of(memory, Mode::Peak, PLACES, Some(&mut names));
            digest.peak_holders.extend(at_peak.into_iter().map(|place| Holder::new(memory, place)));
        }
        digest.peak_holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        digest
    }

    /// Nothing to show: of a program that allocates little a sample may have met nothing, and without the heap there are devices only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peak_bytes == 0 && self.devices.is_empty() && self.failed.is_none() && self.lost_events == 0
    }

    /// The memory whose request failed, where what is held is that of the failure: a device's before the host's.
    #[must_use]
    pub fn failed_memory(&self) -> Option<Memory> {
        let device = self.devices.iter().find(|device| device.is_held_at_failure);
        device.map(|device| device.memory).or(self.is_held_at_failure.then_some(Memory::Host))
    }

    /// Whether what is held of a memory is that of a failed request.
    #[must_use]
    pub fn is_at_failure(&self, memory: Memory) -> bool {
        match self.devices.iter().find(|device| device.memory == memory) {
            Some(device) => device.is_held_at_failure,
            None => self.is_held_at_failure,
        }
    }

    fn of_host(reading: &Reading, of_failure: bool, names: &mut Names, all: &mut Vec<Holder>) -> Self {
        let heap = &reading.heap;
        let mut holders = Vec::new();
        if of_failure && heap.knows_failure() {
            holders = heap.holders(Mode::Failure, PLACES, Some(names));
        }
        let is_held_at_failure = !holders.is_empty();
        if !is_held_at_failure {
            holders = heap.holders(Mode::Leaks, PLACES, Some(names));
        }
        let last = heap.last_failed_request(Some(names));
        let releasable = match is_held_at_failure {
            true => holders.iter().map(|place| place.bytes).sum(),
            false => heap.leaked().bytes,
        };
        all.extend(holders.iter().map(|place| Holder::new(Memory::Host, place.clone())));
        HeapDigest {
            path: reading.chosen.path.clone(),
            has_host: true,
            devices: Vec::new(),
            holders: Vec::new(),
            peak_holders: Vec::new(),
            peak_bytes: heap.peak_bytes(),
            live_bytes: heap.leaked().bytes,
            held: holders.into_iter().map(|place| (place.bytes, place.words())).collect(),
            is_held_at_failure,
            outsized: last.as_ref().and_then(|request| outsized(request, releasable, &heap.own_code())),
            failed: last.map(|request| failed(&request, &heap.own_code())),
            lost_events: heap.lost_events,
            sample_bytes: Some(heap.header.sample_bytes).filter(|mean| *mean > 0),
        }
    }

    /// When what is [`held`](Self::held) was held.
    #[must_use]
    pub fn held_when(&self) -> &'static str {
        if self.is_held_at_failure { AT_FAILURE } else { "at the end" }
    }

    /// What is held of all memories, the largest first: `held` of `oom show --json`.
    fn largest_first(&self) -> Vec<&Holder> {
        let mut holders: Vec<&Holder> = self.holders.iter().collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }

    /// Before a number that is an estimate.
    #[must_use]
    pub fn about(&self) -> &'static str {
        if self.sample_bytes.is_some() { "about " } else { "" }
    }

    /// Whether what is held of a memory is an estimate: devices are never sampled.
    #[must_use]
    pub fn is_sampled(&self, memory: Memory) -> bool {
        self.sample_bytes.is_some() && memory == Memory::Host
    }

    /// What is to be known of each of the [`holders`](Self::holders) of a memory beside its bytes.
    #[must_use]
    pub fn held_note(&self, memory: Memory) -> Option<String> {
        let when = self.is_at_failure(memory).then_some(AT_FAILURE);
        let how = self.is_sampled(memory).then_some("estimated from a sample");
        let words: Vec<&str> = when.into_iter().chain(how).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// For `evidence.json` and the outcome.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let held: Vec<Value> =
            self.held.iter().map(|(bytes, place)| json!({"bytes": bytes, "place": place})).collect();
        json!({
            "path": self.path.display().to_string(), "peak_bytes": self.peak_bytes, "live_bytes": self.live_bytes,
            "held_by": held, "held_when": self.held_when(), "failed_request": self.failed, "lost_events": self.lost_events,
            "sample_bytes": self.sample_bytes,
            "devices": self.devices, "held": self.largest_first(), "failed_memory": self.failed_memory(),
        })
    }
}

/// One device; what its lines hold goes into `all`.
fn device(
    heap: &mut Heap,
    memory: Memory,
    of_failure: bool,
    names: &mut Names,
    all: &mut Vec<Holder>,
) -> Option<DeviceDigest> {
    heap.select(Selection::One(memory)).ok()?;
    let figures = heap.devices().into_iter().find(|device| device.memory == memory)?;
    let mut held = Vec::new();
    if of_failure && heap.knows_failure() {
        held = heap.holders(Mode::Failure, PLACES, Some(names));
    }
    let is_held_at_failure = !held.is_empty();
    if !is_held_at_failure {
        held = heap.holders(Mode::Leaks, PLACES, Some(names));
    }
    all.extend(held.into_iter().map(|place| Holder::new(memory, place)));
    let mut categories: Vec<(String, u64)> =
        heap.device_categories(memory).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let last = heap.last_failed_request(Some(names));
    Some(DeviceDigest {
        memory,
        peak_bytes: figures.peak_bytes,
        live_bytes: figures.leaked.bytes,
        peak_reserved_bytes: figures.peak_reserved_bytes,
        is_held_at_failure,
        categories,
        failed_request: last.map(|request| format!("{memory}: {}", failed(&request, &heap.own_code()))),
    })
}

/// A request that would not have fitted under the limit if all that the heap held (`releasable`) had been released before it.
fn outsized(request: &FailedRequest, releasable: u64, own_code: &OwnCode) -> Option<String> {
    let limit = request.limit_bytes?;
    let rest = request.address_space_bytes.unwrap_or(0).saturating_sub(releasable);
    if request.bytes.saturating_add(rest) <= limit {
        return None;
    }
    let frame = own_code.responsible_frame(&request.stack).filter(|frame| frame.line > 0);
    let place = frame.map(|frame| format!(" at {}:{} {}", frame.file, frame.line, frame.function));
    Some(format!(
        "request less{}: {} does not fit under the limit of {}, whatever else is released",
        place.unwrap_or_default(),
        format_bytes(request.bytes),
        format_bytes(limit)
    ))
}

fn failed(request: &FailedRequest, own_code: &OwnCode) -> String {
    let mut text = match request.allocated_bytes {
        Some(_) => format!("a request for {}", format_bytes(request.bytes)),
        None => format!("{} for {}", request.allocator, format_bytes(request.bytes)),
    };
    match own_code.responsible_frame(&request.stack) {
        Some(frame) if frame.line > 0 => {
            text.push_str(&format!(" at {}:{} {}", frame.file, frame.line, frame.function));
        }
        Some(frame) => text.push_str(format!(" at {} {}", frame.file, frame.function).trim_end()),
        None => text.push_str(" at native code without a Python stack"),
    }
    match (request.limit_bytes, request.address_space_bytes) {
        (Some(limit), Some(used)) => {
            text.push_str(&format!(" (address space {} of {})", format_bytes(used), format_bytes(limit)));
        }
        (Some(limit), None) => text.push_str(&format!(" (limit {})", format_bytes(limit))),
        _ => {}
    }
    if let (Some(allocated), Some(reserved)) = (request.allocated_bytes, request.reserved_bytes) {
        let (allocated, reserved) = (format_bytes(allocated), format_bytes(reserved));
        text.push_str(&format!(" ({allocated} allocated, {reserved} reserved)"));
    }
    text
}
