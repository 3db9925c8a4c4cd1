//! A recording as a list of requests: what the program did, without what the allocator did about it.
//!
//! Only this can be replayed under other settings. Frees stay where they were recorded, `empty_cache()` stays a
//! command; what the allocator released on its own is left to the model.

use rustc_hash::FxHashMap;

use crate::model::Totals;
use crate::recording::Recording;
use crate::rewind::{MAX_ADDR, MAX_SIZE};
use crate::snapshot::PoolId;
use crate::trace::{Action, Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// The next block, by the event that asked for it.
    Alloc {
        event: u32,
        pool: u16,
    },
    /// A block by number: those of the start come first, then one for each `Alloc`.
    FreeRequested(u32),
    FreeCompleted(u32),
    /// The program emptied the cache; the entry of `released` says what the recording gave back.
    EmptyCache(u32),
    /// The allocator itself gave memory back.
    Pressure(u32),
    /// A request that failed.
    Oom {
        event: u32,
    },
}

/// What the recording says about how much the process could hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LimitBounds {
    /// The most that was held.
    pub at_least: u64,
    /// The least total that was refused, if any was.
    pub below: Option<u64>,
}

/// The requests of one device.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) pools: Vec<PoolId>,
    /// The segment each request brought in the recording.
    pub(crate) hints: FxHashMap<u32, (u64, u64)>,
    /// Addresses given back together, as ranges of `addresses`.
    pub(crate) released: Vec<std::ops::Range<usize>>,
    pub(crate) addresses: Vec<u64>,
    pub(crate) limit: LimitBounds,
    pub(crate) recorded: Totals,
    /// Segments taken, in order.
    pub(crate) segments: Vec<(u64, u64)>,
}

impl Program {
    pub(crate) fn new(recording: &Recording<'_>) -> Self {
        let snapshot = recording.snapshot;
        let trace = snapshot.trace(recording.device);
        let mut program = Program {
            ops: Vec::with_capacity(trace.len()),
            pools: vec![(0, 0)],
            hints: FxHashMap::default(),
            released: Vec::new(),
            addresses: Vec::new(),
            limit: LimitBounds { at_least: 0, below: None },
            recorded: Totals::default(),
            segments: Vec::new(),
        };
        let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
        for (number, block) in recording.start.blocks.iter().enumerate() {
            numbers.insert(block.addr, number as u32);
        }
        let mut next = recording.start.blocks.len() as u32;
        let mut hint = None;
        let mut run: Option<Run> = None;
        let mut tracker = recording.tracker();
        program.note_totals(tracker.totals());
        for (index, event) in trace.enumerate() {
            let index = index as u32;
            if !matches!(event.action, Action::SegmentFree | Action::SegmentUnmap)
                && let Some(run) = run.take()
            {
                program.finish_run(run, &event, recording);
            }
            match event.action {
                Action::Alloc if event.addr >= MAX_ADDR || event.size >= MAX_SIZE => {}
                Action::Alloc => {
                    let pool = program.pool(tracker_pool(recording, &tracker, &event));
                    if let Some(hint) = hint.take() {
                        program.hints.insert(index, hint);
                    }
                    numbers.insert(event.addr, next);
                    next += 1;
                    program.ops.push(Op::Alloc { event: index, pool });
                }
                Action::FreeRequested => {
                    program.ops.extend(numbers.get(&event.addr).map(|&number| Op::FreeRequested(number)));
                }
                Action::FreeCompleted | Action::Free => {
                    program.ops.extend(numbers.remove(&event.addr).map(Op::FreeCompleted));
                }
                Action::SegmentAlloc | Action::SegmentMap => {
                    if event.action == Action::SegmentAlloc && event.addr < MAX_ADDR && event.size < MAX_SIZE
                    {
                        program.segments.push((event.addr, event.size));
                    }
                    hint.get_or_insert((event.addr, event.size));
                }
                Action::SegmentFree | Action::SegmentUnmap => {
                    let reserved = tracker.totals().reserved;
                    let run = run.get_or_insert_with(|| {
                        Run::new(recording, &event, program.addresses.len(), reserved)
                    });
                    run.end += 1;
                    program.addresses.push(event.addr);
                }
                Action::Oom => {
                    let held = tracker.totals().reserved;
                    program.refused(held, recording.settings.segment_size(event.size));
                    program.ops.push(Op::Oom { event: index });
                }
                Action::Snapshot | Action::Other => {}
            }
            tracker.apply(index, &event);
            program.note_totals(tracker.totals());
        }
        if let Some(run) = run {
            program.give_back(run, Op::EmptyCache);
        }
        program.limit.at_least = program.recorded.reserved;
        program
    }

    fn note_totals(&mut self, now: Totals) {
        self.recorded.reserved = self.recorded.reserved.max(now.reserved);
        self.recorded.active = self.recorded.active.max(now.active);
        self.recorded.allocated = self.recorded.allocated.max(now.allocated);
        self.recorded.requested = self.recorded.requested.max(now.requested);
    }

    fn pool(&mut self, id: PoolId) -> u16 {
        let known = self.pools.iter().position(|&pool| pool == id);
        known.unwrap_or_else(|| {
            self.pools.push(id);
            self.pools.len() - 1
        }) as u16
    }

    fn refused(&mut self, held: u64, wanted: u64) {
        let bound = held.saturating_add(wanted);
        self.limit.below = Some(self.limit.below.map_or(bound, |below| below.min(bound)));
    }

    /// Memory went back right before `event`: by the program's command, or by the allocator in need for `event`.
    fn finish_run(&mut self, run: Run, event: &Event, recording: &Recording<'_>) {
        let wants =
            matches!(event.action, Action::SegmentAlloc | Action::SegmentMap | Action::Alloc | Action::Oom);
        let stack = event.stack;
        if run.by_user || !wants || stack != run.stack || recording.snapshot.tables.stack(stack).len() == 0 {
            self.give_back(run, Op::EmptyCache);
            return;
        }
        // With a threshold, memory goes back before it is refused.
        if recording.settings.garbage_collection_threshold == 0.0 && event.action == Action::SegmentAlloc {
            self.refused(run.reserved, event.size);
        }
        self.give_back(run, Op::Pressure);
    }

    fn give_back(&mut self, run: Run, op: fn(u32) -> Op) {
        self.ops.push(op(self.released.len() as u32));
        self.released.push(run.start..run.end);
    }
}

/// Segments given back one after the other.
struct Run {
    by_user: bool,
    stack: crate::intern::StackId,
    start: usize,
    end: usize,
    reserved: u64,
}

impl Run {
    fn new(recording: &Recording<'_>, event: &Event, start: usize, reserved: u64) -> Self {
        let tables = &recording.snapshot.tables;
        let by_user =
            tables.stack(event.stack).any(|frame| tables.text(tables.frame(frame).name) == "empty_cache");
        Run { by_user, stack: event.stack, start, end: start, reserved }
    }
}

/// The pool a recorded block came from: what the event says, or the pool of the segment it is in.
fn tracker_pool(recording: &Recording<'_>, tracker: &crate::track::Tracker<'_>, event: &Event) -> PoolId {
    recording.snapshot.context(event).pool.or_else(|| tracker.pool_at(event.addr)).unwrap_or((0, 0))
}
