//! The figures of a capture, as `stormlog stats` prints them. Scripts rely on the names of the fields.

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::Value;
use stormlog_capture::record::kind;
use stormlog_model::memory::Memory;
use stormlog_model::own_code::OwnCode;
use stormlog_model::stacks::{Frame, Weight};

use crate::device_stats::DeviceStats;
use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;
use crate::ledger::{Failure, Ledger};
use crate::locations::{self, GroupBy};
use crate::profile::Mode;

/// A location in the code and what it allocated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct LocationTotals {
    /// Function.
    pub function: String,
    /// File.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Requests of a range of sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SizeBucket {
    /// Smallest size.
    pub min: u64,
    /// Largest size.
    pub max: u64,
    /// Allocations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What a thread allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadStats {
    /// Kernel thread id.
    pub thread: u64,
    /// Its name, where known.
    pub name: Option<String>,
    /// Allocations.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes it held when the heap was largest.
    pub peak_bytes: u64,
    /// Bytes it left at the very end.
    pub live_bytes: u64,
    /// Bytes it held when the program's own code had ended.
    pub leaked_bytes: u64,
}

/// What one allocator handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllocatorStats {
    /// `malloc`, `calloc`, `mmap`…
    pub allocator: String,
    /// Allocations.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that lived when the heap was largest.
    pub peak_bytes: u64,
    /// Bytes that live at the very end.
    pub live_bytes: u64,
    /// Bytes that lived when the program's own code had ended.
    pub leaked_bytes: u64,
}

/// A request that got no memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRequest {
    /// What was asked.
    pub allocator: String,
    /// For how much.
    pub bytes: u64,
    /// The error number it got.
    pub errno: u32,
    /// Nanoseconds since the start.
    pub time_ns: u64,
    /// Kernel thread id.
    pub thread: u64,
    /// Limit of the address space, where there was one.
    pub limit_bytes: Option<u64>,
    /// Address space in use.
    pub address_space_bytes: Option<u64>,
    /// Resident bytes.
    pub resident_bytes: Option<u64>,
    /// On a device: bytes that its allocator had handed out, and bytes that it held from the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Bytes that it held from the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
    /// Its stack, innermost first.
    pub stack: Vec<Frame>,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// The memory that the figures are of; those of devices are in `devices` too.
    pub memory: Memory,
    /// False of a capture that knows only what was held at the peak and at the end (Memray's, aggregated): its totals are 0 here, and
    /// its places hold what they held at the peak.
    pub has_totals: bool,
    /// What wrote the file, where another tool did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<&'static str>,
    /// Whether it is known when blocks came and went.
    #[serde(skip)]
    pub has_blocks: bool,
    /// Allocations in all.
    pub total_allocations: u64,
    /// Bytes in all.
    pub total_allocated_bytes: u64,
    /// Most bytes at one time.
    pub peak_bytes: u64,
    /// Blocks at that time.
    pub peak_blocks: u64,
    /// When, nanoseconds since the start.
    pub peak_time_ns: u64,
    /// Bytes that live at the very end, after an interpreter took itself down.
    pub live_at_end_bytes: u64,
    /// Blocks that live then.
    pub live_at_end_blocks: u64,
    /// Bytes that lived when the program's own code had ended, before teardown; without that moment, at the end. What `--leaks` shows.
    pub leaked_bytes: u64,
    /// Blocks that lived then.
    pub leaked_blocks: u64,
    /// When the program's own code had ended, nanoseconds since the start; null when that was not seen.
    pub code_end_ns: Option<u64>,
    /// Allocations that were freed right after.
    pub temporary_allocations: u64,
    /// The process came to its own end; false when it was killed.
    pub complete: bool,
    /// Nanoseconds from the start to the last record.
    pub duration_ns: u64,
    /// The process.
    pub pid: u32,
    /// Mean bytes between samples; null when everything was recorded.
    pub sample_bytes: Option<u64>,
    /// Standard error of `total_allocated_bytes` in a sampled capture.
    pub standard_error_bytes: Option<u64>,
    /// Places by bytes, largest first.
    pub top_by_size: Vec<LocationTotals>,
    /// Places by allocations, most first.
    pub top_by_count: Vec<LocationTotals>,
    /// Modules whose code allocated, by bytes, largest first.
    pub top_by_module: Vec<LocationTotals>,
    /// Requests by size.
    pub size_histogram: Vec<SizeBucket>,
    /// By thread, largest first.
    pub by_thread: Vec<ThreadStats>,
    /// By allocator, largest first.
    pub by_allocator: Vec<AllocatorStats>,
    /// Requests that got no memory, at most a thousand.
    pub failed_requests: Vec<FailedRequest>,
    /// How many there were.
    pub failed_request_count: u64,
    /// Records that could not be written.
    pub lost_events: u64,
    /// Frees of blocks that are older than the recording.
    pub unknown_frees: u64,
    /// Records whose order could only be guessed.
    pub forced_events: u64,
    /// Largest resident memory seen from outside.
    pub peak_rss_bytes: Option<u64>,
    /// How it ended, where that was observed.
    pub ending: Option<Value>,
    /// The memory of each device.
    pub devices: Vec<DeviceStats>,
    /// Whether the framework's allocator reports the memory of devices; null where no framework with one was seen.
    pub device_reports: Option<bool>,
    /// Whose code the program runs, for the responsible frames of failed requests.
    #[serde(skip)]
    pub own_code: OwnCode,
}

/// Failed requests of one place and one class of sizes.
#[derive(Debug, Clone)]
pub struct DistinctFailure<'a> {
    /// The last of them.
    pub last: &'a FailedRequest,
    /// How many there were, as far as they were kept one by one.
    pub count: u64,
    /// The responsible frame.
    pub frame: Option<&'a Frame>,
}

impl Stats {
    /// Failed requests, those of the same place, allocator and class of sizes (a power of two) as one; in the order of their first.
    #[must_use]
    pub fn distinct_failures(&self) -> Vec<DistinctFailure<'_>> {
        let mut list: Vec<DistinctFailure<'_>> = Vec::new();
        let mut known: FxHashMap<(Option<&Frame>, &str, u32), usize> = FxHashMap::default();
        for last in &self.failed_requests {
            let frame = self.responsible_frame(last);
            let key = (frame, last.allocator.as_str(), last.bytes.leading_zeros());
            let at = *known.entry(key).or_insert(list.len());
            match list.get_mut(at) {
                Some(same) => (same.last, same.count) = (last, same.count + 1),
                None => list.push(DistinctFailure { last, count: 1, frame }),
            }
        }
        list
    }

    /// The responsible frame of a failed request.
    #[must_use]
    pub fn responsible_frame<'a>(&self, request: &'a FailedRequest) -> Option<&'a Frame> {
        self.own_code.responsible_frame(&request.stack)
    }

    /// For scripts: what is not known is null.
    pub fn json(&self) -> serde_json::Result<String> {
        if self.has_totals && self.has_blocks {
            return serde_json::to_string_pretty(self);
        }
        let mut all = serde_json::to_value(self)?;
        for key in ["temporary_allocations", "peak_time_ns"] {
            all[key] = Value::Null;
        }
        // Some tools count bytes alone.
        let pairs = [
            ("peak_bytes", "peak_blocks"),
            ("live_at_end_bytes", "live_at_end_blocks"),
            ("leaked_bytes", "leaked_blocks"),
        ];
        for (bytes, blocks) in pairs {
            if all[bytes] != 0 && all[blocks] == 0 {
                all[blocks] = Value::Null;
            }
        }
        let uncounted: &[&str] = if self.has_totals { &[] } else { &["by_thread", "by_allocator"] };
        if !self.has_totals {
            for key in ["total_allocations", "total_allocated_bytes"] {
                all[key] = Value::Null;
            }
        }
        for list in uncounted {
            for row in all[list].as_array_mut().into_iter().flatten() {
                (row["count"], row["bytes"]) = (Value::Null, Value::Null);
            }
        }
        serde_json::to_string_pretty(&all)
    }
}

impl Heap {
    /// All figures, with the `top` largest lines.
    pub fn stats(&self, top: usize, symbolizer: Option<&mut dyn Symbolizer>) -> Stats {
        self.stats_by(GroupBy::Line, top, symbolizer)
    }

    /// All figures, with the `top` largest places of one sort.
    pub fn stats_by(&self, by: GroupBy, top: usize, symbolizer: Option<&mut dyn Symbolizer>) -> Stats {
        let (state, ledger) = (&self.state, self.ledger());
        let own_code = self.own_code();
        let mut namer = Namer::new(&state.tree, symbolizer, &own_code);
        let mut total = Weight::default();
        let mut temporary = Weight::default();
        let mut by_stack: FxHashMap<(u32, u32), Weight> = FxHashMap::default();
        let mut threads: FxHashMap<u32, ThreadStats> = FxHashMap::default();
        let mut allocators: FxHashMap<u8, AllocatorStats> = FxHashMap::default();
        let has_totals = self.has_totals();
        for (index, site) in ledger.sites.iter().enumerate() {
            let weight = ledger.weight(site.total);
            let live = ledger.weight(site.now);
            let leaked = ledger.weight(ledger.amount_at(Mode::Leaks, index));
            let peak = ledger.weight(ledger.amount_at(Mode::Peak, index));
            total += weight;
            temporary += ledger.weight(site.temporary);
            *by_stack.entry((site.key.python, site.key.native)).or_default() +=
                if has_totals { weight } else { peak };
            let thread = threads.entry(site.key.thread).or_insert_with(|| {
                let share = self.thread_share(site.key.thread, Weight::default());
                let (count, bytes, peak_bytes, live_bytes, leaked_bytes) = Default::default();
                ThreadStats {
                    thread: share.thread,
                    name: share.name,
                    count,
                    bytes,
                    peak_bytes,
                    live_bytes,
                    leaked_bytes,
                }
            });
            thread.count = thread.count.saturating_add(weight.count);
            thread.bytes = thread.bytes.saturating_add(weight.bytes);
            thread.peak_bytes = thread.peak_bytes.saturating_add(peak.bytes);
            thread.live_bytes = thread.live_bytes.saturating_add(live.bytes);
            thread.leaked_bytes = thread.leaked_bytes.saturating_add(leaked.bytes);
            let allocator = allocators.entry(site.key.kind).or_insert_with(|| {
                let (count, bytes, peak_bytes, live_bytes, leaked_bytes) = Default::default();
                AllocatorStats {
                    allocator: allocator_name(site.key.kind).to_owned(),
                    count,
                    bytes,
                    peak_bytes,
                    live_bytes,
                    leaked_bytes,
                }
            });
            allocator.count = allocator.count.saturating_add(weight.count);
            allocator.bytes = allocator.bytes.saturating_add(weight.bytes);
            allocator.peak_bytes = allocator.peak_bytes.saturating_add(peak.bytes);
            allocator.live_bytes = allocator.live_bytes.saturating_add(live.bytes);
            allocator.leaked_bytes = allocator.leaked_bytes.saturating_add(leaked.bytes);
        }
        let grouped = locations::grouped(&by_stack, by, &mut namer, &state.tree);
        let modules = locations::grouped(&by_stack, GroupBy::Module, &mut namer, &state.tree);
        let (top_by_size, top_by_count) = (
            locations::top(&grouped, top, |place| place.bytes),
            locations::top(&grouped, top, |place| place.count),
        );
        let mut by_thread: Vec<ThreadStats> = threads.into_values().collect();
        by_thread.sort_by_key(|thread| (std::cmp::Reverse(thread.bytes), thread.thread));
        let mut by_allocator: Vec<AllocatorStats> = allocators.into_values().collect();
        by_allocator
            .sort_by_key(|allocator| (std::cmp::Reverse(allocator.bytes), allocator.allocator.clone()));
        let (live, leaked) = (ledger.weight(ledger.level.now()), self.leaked());
        let failed_requests =
            ledger.failures.iter().map(|failure| self.failed(failure, &mut namer)).collect();
        let devices = self.device_stats(top, &mut namer);
        Stats {
            memory: self.memory(),
            devices,
            device_reports: self.device_reports(),
            has_totals,
            imported: self.imported.as_ref().map(|imported| imported.format.name()),
            has_blocks: self.has_blocks(),
            total_allocations: total.count,
            total_allocated_bytes: total.bytes,
            peak_bytes: ledger.peak.bytes,
            peak_blocks: ledger.weight(ledger.peak).count,
            peak_time_ns: ledger.peak_time_us.saturating_mul(1000),
            live_at_end_bytes: live.bytes,
            live_at_end_blocks: live.count,
            leaked_bytes: leaked.bytes,
            leaked_blocks: leaked.count,
            code_end_ns: self.code_end().map(|(time_us, _)| time_us.saturating_mul(1000)),
            temporary_allocations: temporary.count,
            complete: self.complete,
            duration_ns: state.time_us.saturating_mul(1000),
            pid: self.header.pid,
            sample_bytes: ledger.weights.mean(),
            standard_error_bytes: (!ledger.weights.is_exact()).then(|| ledger.variance.sqrt() as u64),
            top_by_size,
            top_by_count,
            top_by_module: locations::top(&modules, top, |place| place.bytes),
            size_histogram: size_histogram(ledger),
            by_thread,
            by_allocator,
            failed_requests,
            failed_request_count: ledger.failed,
            lost_events: self.lost_events,
            unknown_frees: ledger.unknown_frees,
            forced_events: ledger.forced,
            peak_rss_bytes: self.samples.iter().map(|sample| sample.rss).max(),
            ending: self.ending.clone(),
            own_code,
        }
    }

    /// Whether allocations were counted: what is held was allocated.
    #[must_use]
    pub fn has_totals(&self) -> bool {
        let ledger = self.ledger();
        ledger.peak.bytes == 0 || ledger.sites.iter().any(|site| site.total.count > 0)
    }

    /// The last request that got no memory.
    pub fn last_failed_request(&self, symbolizer: Option<&mut dyn Symbolizer>) -> Option<FailedRequest> {
        let failure = self.ledger().failures.last()?;
        let own_code = self.own_code();
        Some(self.failed(failure, &mut Namer::new(&self.state.tree, symbolizer, &own_code)))
    }

    fn failed(&self, failure: &Failure, namer: &mut Namer<'_, '_>) -> FailedRequest {
        let is_device = failure.site.kind == kind::DEVICE_ALLOCATION;
        let limit =
            |index: usize| failure.limits.map(|limits| limits[index]).filter(|value| *value != u64::MAX);
        let known = |index: usize| limit(index).filter(|_| !is_device);
        let on_device = |index: usize| limit(index).filter(|_| is_device);
        let stack = namer.stack(failure.site);
        FailedRequest {
            allocator: allocator_name(failure.site.kind).to_owned(),
            bytes: failure.bytes,
            errno: failure.errno,
            time_ns: failure.time_us.saturating_mul(1000),
            thread: self.state.threads.get(failure.site.thread as usize).copied().unwrap_or(0),
            limit_bytes: known(0),
            address_space_bytes: known(1),
            resident_bytes: known(2),
            allocated_bytes: on_device(0),
            reserved_bytes: on_device(1),
            stack: stack.into_iter().map(|frame| namer.frames[frame as usize].clone()).collect(),
        }
    }
}

fn size_histogram(ledger: &Ledger) -> Vec<SizeBucket> {
    let used = ledger.sizes.iter().enumerate().filter(|(_, amount)| amount.count > 0);
    used.map(|(bits, amount)| {
        let weight = ledger.weight(*amount);
        let min = if bits == 0 { 0 } else { 1 << (bits - 1) };
        let max = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        SizeBucket { min, max, count: weight.count, bytes: weight.bytes }
    })
    .collect()
}

/// The name of an allocator.
#[must_use]
pub fn allocator_name(allocator: u8) -> &'static str {
    match allocator {
        kind::MALLOC => "malloc",
        kind::CALLOC => "calloc",
        kind::REALLOC => "realloc",
        kind::POSIX_MEMALIGN => "posix_memalign",
        kind::ALIGNED_ALLOC => "aligned_alloc",
        kind::MEMALIGN => "memalign",
        kind::VALLOC => "valloc",
        kind::PVALLOC => "pvalloc",
        kind::MMAP => "mmap",
        kind::MREMAP => "mremap",
        kind::BRK => "brk",
        kind::PY_MALLOC => "pymalloc_malloc",
        kind::PY_CALLOC => "pymalloc_calloc",
        kind::PY_REALLOC => "pymalloc_realloc",
        kind::TENSOR => "tensor",
        kind::DEVICE_ALLOCATION => "device",
        _ => "unknown",
    }
}
