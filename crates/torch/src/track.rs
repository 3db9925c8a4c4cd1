//! The allocator's state as it follows a recording event by event: every block, where it really was, at any moment.
//!
//! The recording says where each block was put; the allocator's rules say how large it really was and what was
//! left beside it. Nothing is predicted here.

use rustc_hash::FxHashMap;

use crate::intern::StackId;
use crate::model::Totals;
use crate::model::heap::{Heap, NONE, State};
use crate::recording::Recording;
use crate::rewind::{MAX_ADDR, MAX_HELD, MAX_SIZE, SegmentPool};
use crate::snapshot::{BlockState, PoolId};
use crate::trace::{Action, Event};

/// Owners from this on are blocks of the start state.
pub(crate) const START: u32 = 1 << 31;

/// A block as it was at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedBlock {
    /// Where it starts.
    pub addr: u64,
    /// Its real size.
    pub size: u64,
    /// What was requested; 0 when free.
    pub requested: u64,
    /// Whether it was allocated, awaited or free.
    pub state: BlockState,
    /// The event that allocated it, when recorded.
    pub event: Option<u32>,
    /// Who allocated it.
    pub stack: StackId,
}

/// A segment as it was at some moment, with its blocks by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedSegment {
    /// Raw stream pointer.
    pub stream: u64,
    /// Its pool.
    pub pool: PoolId,
    /// Small or large.
    pub small: bool,
    /// Part of an expandable segment.
    pub expandable: bool,
    /// Where that starts, or this one.
    pub base: u64,
    /// Its blocks, without gaps.
    pub blocks: Vec<TrackedBlock>,
}

impl TrackedSegment {
    /// Where it starts.
    pub fn addr(&self) -> u64 {
        self.blocks.first().map_or(0, |block| block.addr)
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.blocks.iter().map(|block| block.size).sum()
    }
}

/// The allocator's state between two events of a recording.
#[derive(Debug, Clone)]
pub struct Tracker<'a> {
    recording: &'a Recording<'a>,
    pub(crate) heap: Heap,
    /// Blocks by their first address.
    starts: FxHashMap<u64, u32>,
    /// Events that could not be followed.
    anomalies: u64,
    /// Start blocks that turned out larger, and by how much.
    pub(crate) slack: FxHashMap<u32, u64>,
}

impl<'a> Tracker<'a> {
    pub(crate) fn new(recording: &'a Recording<'a>) -> Self {
        let mut tracker = Tracker {
            recording,
            heap: Heap::new(recording.settings.clone()),
            starts: FxHashMap::default(),
            anomalies: recording.start.anomalies,
            slack: FxHashMap::default(),
        };
        for &(base, length, home) in &recording.reservations {
            let pool = tracker.heap.pool(home.pool, home.small);
            tracker.heap.add_reservation(base, length, home.stream, pool);
        }
        for segment in &recording.start.segments {
            if segment.expandable {
                tracker.map(segment.addr, segment.size, segment.home);
            } else {
                tracker.add_segment(segment.addr, segment.size, segment.home);
            }
        }
        for (index, block) in recording.start.blocks.iter().enumerate() {
            let owner = START | index as u32;
            if let Some(found) = tracker.place(block.addr, block.size, block.requested, owner)
                && block.pending
            {
                tracker.heap.request_free(found);
            }
        }
        tracker.slack.clear();
        tracker
    }

    /// Bytes at this moment.
    pub fn totals(&self) -> Totals {
        self.heap.totals
    }

    /// Events so far that contradict the rules or each other.
    pub fn anomalies(&self) -> u64 {
        self.anomalies
    }

    /// The block that starts at `addr`.
    fn at(&self, addr: u64) -> Option<u32> {
        // In a recording that contradicts itself, an entry may have outlived its block.
        let found = self.starts.get(&addr).copied()?;
        let block = self.heap.block(found);
        (block.addr == addr && !matches!(block.state, State::Gone | State::Unmapped)).then_some(found)
    }

    /// Everything held at this moment, by address.
    pub fn segments(&self) -> Vec<TrackedSegment> {
        let heap = &self.heap;
        let mapped = |index: u32| index != NONE && heap.block(index).state != State::Unmapped;
        let mut segments: Vec<TrackedSegment> = Vec::new();
        for (index, first) in heap.blocks.iter().enumerate() {
            if matches!(first.state, State::Gone | State::Unmapped) || mapped(first.prev) {
                continue;
            }
            let pool = &heap.pools[usize::from(first.pool)];
            let mut segment = TrackedSegment {
                stream: first.stream,
                pool: pool.id,
                small: pool.small,
                expandable: first.expandable,
                base: self.base(index as u32),
                blocks: Vec::new(),
            };
            let mut at = index as u32;
            while mapped(at) {
                segment.blocks.push(self.tracked(at));
                at = heap.block(at).next;
            }
            segments.push(segment);
        }
        segments.sort_unstable_by_key(TrackedSegment::addr);
        segments
    }

    /// Where the reservation starts that a block belongs to.
    fn base(&self, index: u32) -> u64 {
        let addr = self.heap.block(index).addr;
        let reservations = &self.recording.reservations;
        reservations.iter().rev().map(|reservation| reservation.0).find(|&base| base <= addr).unwrap_or(addr)
    }

    fn tracked(&self, index: u32) -> TrackedBlock {
        let block = self.heap.block(index);
        let state = match block.state {
            State::Allocated => BlockState::Allocated,
            State::Pending => BlockState::PendingFree,
            _ => BlockState::Inactive,
        };
        let live = block.is_live();
        let (event, stack) = match block.owner {
            _ if !live => (None, StackId::EMPTY),
            owner if owner & START != 0 => {
                let start = self.recording.start.blocks.get((owner & !START) as usize);
                (None, start.map_or(StackId::EMPTY, |block| block.stack))
            }
            owner => {
                let event = self.recording.snapshot.event(self.recording.device, owner as usize);
                (Some(owner), event.map_or(StackId::EMPTY, |event| event.stack))
            }
        };
        let requested = if live { block.requested } else { 0 };
        TrackedBlock { addr: block.addr, size: block.size, requested, state, event, stack }
    }

    /// The real size of the live block that starts at `addr`.
    pub(crate) fn live_size(&self, addr: u64) -> Option<u64> {
        self.at(addr)
            .map(|block| self.heap.block(block))
            .filter(|block| block.is_live())
            .map(|block| block.size)
    }

    /// The pool of the free block that starts at `addr`.
    pub(crate) fn pool_at(&self, addr: u64) -> Option<PoolId> {
        let block = self.at(addr)?;
        Some(self.heap.pools[usize::from(self.heap.block(block).pool)].id)
    }

    /// The blocks of the start state, in its order; none for those that could not be placed.
    pub(crate) fn start_blocks(&self) -> Vec<Option<u32>> {
        let blocks = self.recording.start.blocks.iter();
        blocks.map(|block| self.at(block.addr).filter(|&found| self.heap.block(found).is_live())).collect()
    }

    fn add_segment(&mut self, addr: u64, size: u64, home: SegmentPool) {
        if self.totals().reserved > MAX_HELD {
            self.anomalies += 1;
            return;
        }
        let pool = self.heap.pool(home.pool, home.small);
        let index = self.heap.add_segment(addr, size, home.stream, pool);
        self.starts.insert(addr, index);
    }

    /// Takes the next event in.
    pub fn apply(&mut self, index: u32, event: &Event) {
        if event.addr >= MAX_ADDR || event.size >= MAX_SIZE {
            self.anomalies += 1;
            return;
        }
        match event.action {
            Action::Alloc => {
                let rounded = self.heap.settings.round(event.size);
                if self.place(event.addr, rounded, event.size, index).is_none() {
                    self.anomalies += 1;
                }
            }
            Action::FreeRequested | Action::FreeCompleted | Action::Free => {
                match self.at(event.addr).filter(|&block| self.heap.block(block).is_live()) {
                    Some(block) if event.action == Action::FreeRequested => self.heap.request_free(block),
                    Some(block) => self.complete(block),
                    None => self.anomalies += 1,
                }
            }
            Action::SegmentAlloc => match self.recording.start.homes.get(&index) {
                Some(&home) if event.size > 0 && self.at(event.addr).is_none() => {
                    self.add_segment(event.addr, event.size, home);
                }
                _ => self.anomalies += 1,
            },
            Action::SegmentFree => match self.at(event.addr) {
                Some(block)
                    if self.heap.block(block).state == State::Free && self.heap.block(block).is_whole() =>
                {
                    self.heap.remove_segment(block);
                    self.starts.remove(&event.addr);
                }
                _ => self.anomalies += 1,
            },
            Action::SegmentMap => match self.recording.start.homes.get(&index) {
                Some(&home) => self.map(event.addr, event.size, home),
                None => self.anomalies += 1,
            },
            Action::SegmentUnmap => self.unmap(event.addr, event.size),
            Action::Snapshot | Action::Oom | Action::Other => {}
        }
    }

    fn complete(&mut self, block: u32) {
        let before = *self.heap.block(block);
        let (prev, next) = (before.prev, before.next);
        for neighbour in [prev, next] {
            if neighbour != NONE && self.heap.block(neighbour).state == State::Free {
                self.starts.remove(&self.heap.block(neighbour).addr);
            }
        }
        self.starts.remove(&before.addr);
        self.heap.complete_free(block);
        self.starts.insert(self.heap.block(block).addr, block);
    }

    /// Puts a block where the recording has it.
    fn place(&mut self, addr: u64, rounded: u64, requested: u64, owner: u32) -> Option<u32> {
        let found = self.at(addr).filter(|&block| self.heap.block(block).state == State::Free);
        let block = match found {
            Some(block) => block,
            None => self.uncover(addr, owner)?,
        };
        let rounded = rounded.min(self.heap.block(block).size);
        self.heap.unset_free(block);
        if owner & START != 0 && self.heap.block(block).size > rounded {
            // Sizes of the start state are what they are: nothing may be rounded up again.
            self.heap.cut(block, rounded);
        }
        self.heap.hand_out(block, rounded, requested, owner);
        let next = self.heap.block(block).next;
        if next != NONE && self.heap.block(next).state == State::Free {
            self.starts.insert(self.heap.block(next).addr, next);
        }
        Some(block)
    }

    /// Finds the free block around `addr` and splits off what is before it: the end of the block before, if that was
    /// there at the start and its real size is unknown.
    fn uncover(&mut self, addr: u64, owner: u32) -> Option<u32> {
        let block = self.heap.free_around(addr)?;
        let before = *self.heap.block(block);
        if before.addr == addr {
            return None;
        }
        let gap = addr - before.addr;
        if owner & START == 0 {
            let prev = before.prev;
            let unknown = prev != NONE
                && self.heap.block(prev).owner & START != 0
                && self.heap.block(prev).is_live()
                && !before.expandable
                && !self
                    .recording
                    .start
                    .blocks
                    .get((self.heap.block(prev).owner & !START) as usize)
                    .is_none_or(|b| b.certain);
            match unknown {
                true if gap <= 1 << 20 => {
                    // Seen again after what is behind was freed and merged: the nearest is the block's end.
                    let known = self.slack.entry(self.heap.block(prev).owner & !START).or_insert(gap);
                    *known = gap.min(*known);
                }
                _ => self.anomalies += 1,
            }
        }
        self.heap.unset_free(block);
        let rest = self.heap.cut(block, gap);
        self.heap.set_free(block);
        self.starts.insert(addr, rest);
        Some(rest)
    }

    fn map(&mut self, addr: u64, size: u64, home: SegmentPool) {
        let unmapped = self.heap.pools.iter().find_map(|pool| {
            let &(stream, start, block) =
                pool.unmapped.range(..=(home.stream, addr, u32::MAX)).next_back()?;
            let inside =
                stream == home.stream && start <= addr && addr + size <= start + self.heap.block(block).size;
            inside.then_some((start, block))
        });
        let Some((start, block)) = unmapped.filter(|_| size > 0 && self.totals().reserved < MAX_HELD) else {
            self.anomalies += 1;
            return;
        };
        let block = if start < addr { self.heap.cut_unmapped(block, addr - start) } else { block };
        for neighbour in [self.heap.block(block).prev, self.after(block, size)] {
            if neighbour != NONE && self.heap.block(neighbour).state == State::Free {
                self.starts.remove(&self.heap.block(neighbour).addr);
            }
        }
        let index = self.heap.map(block, size);
        self.starts.insert(self.heap.block(index).addr, index);
    }

    /// The block behind an unmapped one, if mapping `size` bytes would reach it.
    fn after(&self, block: u32, size: u64) -> u32 {
        let block = self.heap.block(block);
        if size == block.size { block.next } else { NONE }
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        let found = self.heap.free_around(addr);
        let is_whole = |block: &u32| {
            let around = self.heap.block(*block);
            size > 0 && around.expandable && addr + size <= around.addr + around.size
        };
        let Some(block) = found.filter(is_whole) else {
            self.anomalies += 1;
            return;
        };
        let before = *self.heap.block(block);
        self.starts.remove(&before.addr);
        self.heap.unmap(block, addr, size);
        for start in [before.addr, addr + size] {
            if let Some(rest) =
                self.heap.free_around(start).filter(|&rest| self.heap.block(rest).addr == start)
            {
                self.starts.insert(start, rest);
            }
        }
    }
}
