//! What the allocator held before the first recorded event: the final state, with every event undone.
//!
//! Recording usually starts mid-run, or its ring lost the beginning. The file says nothing about that state, but it
//! follows from the end and the way there, except for one thing: how much larger than its rounded size a
//! large block was that was live at the start and freed later ("slack", at most 1 MiB). See `Start::slack`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::intern::StackId;
use crate::settings::AllocatorSettings;
use crate::snapshot::{BlockState, PoolId, Snapshot};
use crate::trace::Action;

/// No address or size of a real device is beyond this; what is gets ignored and counted.
pub(crate) const MAX_SIZE: u64 = 1 << 46;
pub(crate) const MAX_ADDR: u64 = 1 << 62;
/// Nor are all segments of one.
pub(crate) const MAX_HELD: u64 = 1 << 56;

/// Which pool a segment belongs to, as far as the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentPool {
    pub(crate) stream: u64,
    pub(crate) pool: PoolId,
    pub(crate) small: bool,
}

/// A segment, or a mapped stretch of an expandable one, at the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartSegment {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) home: SegmentPool,
    pub(crate) expandable: bool,
}

/// A block that was live at the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartBlock {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) pending: bool,
    /// Who allocated it, where the file still says it.
    pub(crate) stack: StackId,
    /// Its real size is read off the final state, not derived.
    pub(crate) certain: bool,
}

/// The state before the first event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Start {
    pub(crate) segments: Vec<StartSegment>,
    pub(crate) blocks: Vec<StartBlock>,
    /// Pool of each segment that a recorded event brought, by the event's index.
    pub(crate) homes: FxHashMap<u32, SegmentPool>,
    /// Events that contradict each other or the final state.
    pub(crate) anomalies: u64,
}

struct Range {
    size: u64,
    home: Option<SegmentPool>,
    expandable: bool,
}

struct Live {
    size: Option<u64>,
    requested: u64,
    pending: bool,
    stack: StackId,
}

pub(crate) fn rewind(snapshot: &Snapshot, device: usize, settings: &AllocatorSettings) -> Start {
    let mut ranges: BTreeMap<u64, Range> = BTreeMap::new();
    let mut live: BTreeMap<u64, Live> = BTreeMap::new();
    let mut anomalies = 0;
    let sane = |addr: u64, size: u64| size > 0 && size < MAX_SIZE && addr < MAX_ADDR;
    for segment in snapshot.segments.iter().filter(|segment| segment.device as usize == device) {
        if !sane(segment.address, segment.total_size) {
            anomalies += 1;
            continue;
        }
        let home = SegmentPool { stream: segment.stream, pool: segment.pool, small: segment.small };
        ranges.insert(
            segment.address,
            Range { size: segment.total_size, home: Some(home), expandable: segment.expandable },
        );
        for block in snapshot.blocks_of(segment) {
            if matches!(block.state, BlockState::Allocated | BlockState::PendingFree)
                && sane(block.address, block.size)
            {
                let pending = block.state == BlockState::PendingFree;
                let entry =
                    Live { size: Some(block.size), requested: block.requested, pending, stack: block.stack };
                live.insert(block.address, entry);
            }
        }
    }
    // A history may be recorded without the requests; then nothing in it is known to have waited for its completion.
    let mut events = (0..snapshot.event_count(device)).filter_map(|index| snapshot.event(device, index));
    let has_requests = events.any(|event| event.action == Action::FreeRequested);
    let mut homes = FxHashMap::default();
    for index in (0..snapshot.event_count(device)).rev() {
        let Some(event) = snapshot.event(device, index) else { continue };
        if !sane(event.addr, event.size.max(1)) {
            continue;
        }
        let context = snapshot.context(&event);
        let guess =
            |small| SegmentPool { stream: context.stream, pool: context.pool.unwrap_or((0, 0)), small };
        match event.action {
            Action::Alloc => {
                if live.remove(&event.addr).is_none() {
                    anomalies += 1;
                }
            }
            Action::FreeCompleted | Action::Free => {
                let entry = Live {
                    size: None,
                    requested: event.size,
                    pending: event.action == Action::FreeCompleted && has_requests,
                    stack: StackId::EMPTY,
                };
                if live.insert(event.addr, entry).is_some() {
                    anomalies += 1;
                }
            }
            Action::FreeRequested => match live.get_mut(&event.addr) {
                Some(block) => block.pending = false,
                None => anomalies += 1,
            },
            Action::SegmentAlloc => match ranges.remove(&event.addr) {
                Some(range) => {
                    let home = range.home.unwrap_or_else(|| guess(event.size <= 2 << 20));
                    homes.insert(index as u32, home);
                }
                None => anomalies += 1,
            },
            Action::SegmentFree => {
                ranges.insert(event.addr, Range { size: event.size, home: None, expandable: false });
            }
            Action::SegmentMap => {
                let home = take_range(&mut ranges, event.addr, event.size).flatten();
                let small = !event.size.is_multiple_of(settings.large_segment_size);
                homes.insert(index as u32, home.unwrap_or_else(|| guess(small)));
            }
            Action::SegmentUnmap => give_range(&mut ranges, event.addr, event.size, context.stream),
            Action::Snapshot | Action::Oom | Action::Other => {}
        }
    }
    let mut segments: Vec<StartSegment> = Vec::with_capacity(ranges.len());
    for (addr, range) in ranges {
        // Two cannot be in the same place.
        if segments.last().is_some_and(|before| addr < before.addr + before.size) {
            anomalies += 1;
            continue;
        }
        let small = if range.expandable {
            !range.size.is_multiple_of(settings.large_segment_size)
        } else {
            range.size <= 2 << 20
        };
        let home = range.home.unwrap_or(SegmentPool { stream: 0, pool: (0, 0), small });
        segments.push(StartSegment { addr, size: range.size, home, expandable: range.expandable });
    }
    let blocks = start_blocks(&segments, live, settings, &mut anomalies);
    Start { segments, blocks, homes, anomalies }
}

/// Cuts `[addr, addr + size)` out of the mapped ranges; `None` when it was not mapped.
fn take_range(ranges: &mut BTreeMap<u64, Range>, addr: u64, size: u64) -> Option<Option<SegmentPool>> {
    let (&start, range) = ranges.range(..=addr).next_back()?;
    let (length, home) = (range.size, range.home);
    if addr + size > start + length {
        return None;
    }
    ranges.remove(&start);
    if addr > start {
        ranges.insert(start, Range { size: addr - start, home, expandable: true });
    }
    if addr + size < start + length {
        ranges.insert(addr + size, Range { size: start + length - addr - size, home, expandable: true });
    }
    Some(home)
}

/// Adds a mapped range and joins it with its neighbours.
fn give_range(ranges: &mut BTreeMap<u64, Range>, addr: u64, size: u64, stream: u64) {
    let (mut addr, mut size, mut home) = (addr, size, None::<SegmentPool>);
    let fits = |range: &Range| range.expandable && range.home.is_none_or(|home| home.stream == stream);
    if let Some((&start, range)) = ranges.range(..addr).next_back()
        && start + range.size == addr
        && fits(range)
    {
        (addr, size, home) = (start, size + range.size, range.home);
        ranges.remove(&start);
    }
    if let Some(range) = ranges.get(&(addr + size))
        && fits(range)
    {
        let next = addr + size;
        home = home.or(range.home);
        size += range.size;
        ranges.remove(&next);
    }
    ranges.insert(addr, Range { size, home, expandable: true });
}

/// Gives the live blocks their real sizes and drops what is in no segment.
fn start_blocks(
    segments: &[StartSegment],
    live: BTreeMap<u64, Live>,
    settings: &AllocatorSettings,
    anomalies: &mut u64,
) -> Vec<StartBlock> {
    let mut blocks: Vec<StartBlock> = Vec::new();
    for segment in segments {
        let end = segment.addr + segment.size;
        let mut inside = live.range(segment.addr..end).peekable();
        while let Some((&addr, block)) = inside.next() {
            let next = inside.peek().map_or(end, |&(&next, _)| next);
            let rounded = block.size.unwrap_or_else(|| settings.round(block.requested));
            let mut size = rounded.min(next - addr);
            if rounded > next - addr {
                *anomalies += 1;
            }
            // No free block of a large pool is that small: it can only be the end of this one.
            let gap = next - addr - size;
            let unsplit = settings.max_split_size.is_some_and(|limit| rounded >= limit);
            if block.size.is_none()
                && !segment.home.small
                && !segment.expandable
                && (gap <= 1 << 20 || unsplit)
            {
                size += gap;
            }
            blocks.push(StartBlock {
                addr,
                size,
                requested: block.requested,
                pending: block.pending,
                stack: block.stack,
                certain: block.size.is_some(),
            });
        }
    }
    *anomalies += (live.len() - blocks.len()) as u64;
    blocks
}
