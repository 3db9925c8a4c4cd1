//! The failed request of a recording: what it needed, what was there, and why that did not help. The judgement is `request`'s.

use serde::Serialize;

use super::decompose::Decomposition;
use super::request::{FailedRequest, OomCause, ProcessLimit, SMALL};
use super::text;
use crate::program::{LimitBounds, Op, Program};
use crate::recording::Recording;
use crate::snapshot::PoolId;

/// One out-of-memory event, explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OomReport {
    /// Its place in the trace.
    pub event: usize,
    /// Microseconds since the epoch.
    pub time_us: Option<i64>,
    /// What was requested, rounded.
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
    let pool = context.pool.unwrap_or((0, 0));
    let mut failed = FailedRequest::new(event.size, (context.stream, pool), &segments, &recording.settings);
    let parts = &mut failed.decomposition;
    parts.device_free_bytes = event.device_free;
    parts.device_total_bytes = device_total;
    let used = device_total.zip(event.device_free).map(|(total, free)| total.saturating_sub(free));
    parts.outside_bytes = used.map(|used| used.saturating_sub(parts.reserved_bytes));
    failed.allocated_bytes = tracker.totals().allocated;
    failed.device_free_bytes = event.device_free;
    failed.limit = program.limit.below.map(ProcessLimit::Below);
    let reserved_before = reserved_before_retry(recording, index);
    Some(OomReport {
        event: index as usize,
        time_us: event.time_us,
        request_bytes: event.size,
        segment_bytes: failed.segment_bytes,
        pool,
        small: event.size <= SMALL,
        stream: context.stream,
        largest_usable_free_bytes: failed.largest_usable_free_bytes,
        usable_free_bytes: failed.usable_free_bytes,
        allocated_bytes: failed.allocated_bytes,
        released_by_retry_bytes: reserved_before.saturating_sub(failed.decomposition.reserved_bytes),
        retries: program.ops.iter().filter(|op| matches!(op, Op::Pressure(_))).count() as u64,
        device_free_bytes: event.device_free,
        limit: program.limit,
        site: text::responsible_frame(&recording.snapshot.tables, event.stack),
        cause: failed.cause(),
        sentence: failed.sentence(),
        decomposition: failed.decomposition,
    })
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
