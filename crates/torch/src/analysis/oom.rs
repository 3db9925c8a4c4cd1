//! Why a request failed: what it needed, what was there, and why that did not help.

use serde::Serialize;
use stormlog_model::format_bytes as size;

use super::decompose::{Decomposition, Wanted, decompose};
use super::text;
use crate::model::heap::SMALL;
use crate::program::{LimitBounds, Op, Program};
use crate::recording::Recording;
use crate::snapshot::{BlockState, PoolId};
use crate::track::TrackedSegment;

/// The cause of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OomCause {
    /// Enough was free in the request's pool, but in pieces.
    Fragmentation,
    /// Enough was free, but reserved to private pools.
    WalledOff,
    /// Enough was free, but cached for other streams.
    OtherStreams,
    /// Enough had been given back, but other streams still held it.
    PendingFrees,
    /// All that was held was in use.
    Full,
    /// The allocator could hold no more because others used the device.
    OutsideMemory,
    /// A block that fits was free: the rules of the settings forbade it, or the recording is incomplete.
    Refused,
}

/// One out-of-memory event, explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OomReport {
    /// Its place in the trace.
    pub event: usize,
    /// Microseconds since the epoch.
    pub time_us: Option<i64>,
    /// What was asked for, rounded.
    pub request_bytes: u64,
    /// What the allocator wanted from the driver for it.
    pub segment_bytes: u64,
    /// The pool it fell into.
    pub pool: PoolId,
    /// Small or large requests.
    pub small: bool,
    /// The stream it fell into.
    pub stream: u64,
    /// The largest free block it could have used.
    pub largest_usable_free_bytes: u64,
    /// Everything free in its pool and stream.
    pub usable_free_bytes: u64,
    /// Where all bytes were.
    pub decomposition: Decomposition,
    /// In the program's hands.
    pub allocated_bytes: u64,
    /// Given back to the driver in the attempt to serve it.
    pub released_by_retry_bytes: u64,
    /// Attempts in the whole recording that gave cached memory back.
    pub retries: u64,
    /// What the driver said was free.
    pub device_free_bytes: Option<u64>,
    /// What the recording shows about the memory this process could have.
    pub limit: LimitBounds,
    /// Who asked.
    pub site: Option<String>,
    /// The cause.
    pub cause: OomCause,
    /// The cause in words.
    pub sentence: String,
}

/// Explains the last out-of-memory event of a recording.
pub(crate) fn explain(
    recording: &Recording<'_>,
    program: &Program,
    device_total: Option<u64>,
) -> Option<OomReport> {
    let index = program
        .ops
        .iter()
        .rev()
        .find_map(|op| if let Op::Oom { event } = op { Some(*event) } else { None })?;
    let event = recording.snapshot.event(recording.device, index as usize)?;
    let tracker = recording.state_after(index as usize);
    let segments = tracker.segments();
    let context = recording.snapshot.context(&event);
    let wanted = Wanted { stream: context.stream, pool: context.pool.unwrap_or((0, 0)) };
    let small = event.size <= SMALL;
    let mut decomposition = decompose(&segments, &recording.settings, Some(wanted));
    decomposition.device_free_bytes = event.device_free;
    decomposition.device_total_bytes = device_total;
    let used = device_total.zip(event.device_free).map(|(total, free)| total.saturating_sub(free));
    decomposition.outside_bytes = used.map(|used| used.saturating_sub(decomposition.reserved_bytes));
    let usable: Vec<u64> = usable(&segments, wanted, small);
    let reserved_before = reserved_before_retry(recording, index);
    let mut report = OomReport {
        event: index as usize,
        time_us: event.time_us,
        request_bytes: event.size,
        segment_bytes: recording.settings.segment_size(event.size),
        pool: wanted.pool,
        small,
        stream: wanted.stream,
        largest_usable_free_bytes: usable.iter().copied().max().unwrap_or(0),
        usable_free_bytes: usable.iter().sum(),
        allocated_bytes: tracker.totals().allocated,
        released_by_retry_bytes: reserved_before.saturating_sub(decomposition.reserved_bytes),
        retries: program.ops.iter().filter(|op| matches!(op, Op::Pressure(_))).count() as u64,
        device_free_bytes: event.device_free,
        limit: program.limit,
        site: text::responsible_frame(&recording.snapshot.tables, event.stack),
        cause: OomCause::Full,
        sentence: String::new(),
        decomposition,
    };
    report.cause = cause(&report);
    report.sentence = sentence(&report, recording.settings.max_split_size.is_some());
    Some(report)
}

/// Free blocks of the request's pool, size class and stream.
fn usable(segments: &[TrackedSegment], wanted: Wanted, small: bool) -> Vec<u64> {
    let fitting = |segment: &&TrackedSegment| {
        segment.pool == wanted.pool && segment.small == small && segment.stream == wanted.stream
    };
    let blocks = segments.iter().filter(fitting).flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state == BlockState::Inactive).map(|block| block.size).collect()
}

/// What was held before the allocator gave its cache back for the request.
fn reserved_before_retry(recording: &Recording<'_>, oom: u32) -> u64 {
    use crate::trace::Action;
    let mut first = oom as usize;
    while let Some(before) = first.checked_sub(1)
        && let Some(event) = recording.snapshot.event(recording.device, before)
        && matches!(event.action, Action::SegmentFree | Action::SegmentUnmap)
    {
        first = before;
    }
    recording.state_after(first).totals().reserved
}

fn cause(report: &OomReport) -> OomCause {
    let request = report.request_bytes;
    let parts = &report.decomposition;
    if report.largest_usable_free_bytes >= request {
        OomCause::Refused
    } else if report.usable_free_bytes >= request {
        OomCause::Fragmentation
    } else if parts.pending_free_bytes >= request {
        OomCause::PendingFrees
    } else if parts.walled_off_bytes >= request {
        OomCause::WalledOff
    } else if parts.other_stream_bytes >= request {
        OomCause::OtherStreams
    } else if parts.outside_bytes.is_some_and(|outside| outside > parts.reserved_bytes && outside >= request)
        && report.device_free_bytes.is_some_and(|free| free < report.segment_bytes)
    {
        OomCause::OutsideMemory
    } else {
        OomCause::Full
    }
}

fn sentence(report: &OomReport, splits_are_limited: bool) -> String {
    let request = size(report.request_bytes);
    let parts = &report.decomposition;
    let class = if report.small { "small" } else { "large" };
    let mut text = match report.cause {
        OomCause::Fragmentation => format!(
            "fragmentation: {request} were asked for and {} are free in this pool, but the largest block is {}",
            size(report.usable_free_bytes),
            size(report.largest_usable_free_bytes)
        ),
        OomCause::WalledOff => format!(
            "walled off: {request} were asked for and {} are free, but in private pools (CUDA graphs, MemPool)",
            size(parts.walled_off_bytes)
        ),
        OomCause::OtherStreams => format!(
            "wrong stream: {request} were asked for and {} are free, but cached for other streams",
            size(parts.other_stream_bytes)
        ),
        OomCause::PendingFrees => format!(
            "pending frees: {request} were asked for and {} had been given back, but record_stream keeps them until other streams are done",
            size(parts.pending_free_bytes)
        ),
        OomCause::OutsideMemory => format!(
            "used elsewhere: {request} were asked for, but {} of the device are used outside this allocator",
            size(parts.outside_bytes.unwrap_or(0))
        ),
        OomCause::Refused => format!(
            "refused although it fits: {request} were asked for and a free {class} block of {} is there; {}",
            size(report.largest_usable_free_bytes),
            if splits_are_limited {
                "the rule of max_split_size_mb forbids it"
            } else {
                "the recording does not show why: some of it is missing, or contradicts itself"
            }
        ),
        OomCause::Full => format!(
            "really full: {request} were asked for while {} of {} held were in use; {} free in this pool, the largest block {}",
            size(report.allocated_bytes + parts.pending_free_bytes),
            size(parts.reserved_bytes),
            size(report.usable_free_bytes),
            size(report.largest_usable_free_bytes)
        ),
    };
    if let Some(free) = report.device_free_bytes
        && free >= report.segment_bytes
    {
        let below = report.limit.below.map(|below| format!(" below {}", size(below))).unwrap_or_default();
        text.push_str(&format!(
            "; the driver still had {} free, so this process was limited{below} (a memory fraction)",
            size(free)
        ));
    }
    text
}
