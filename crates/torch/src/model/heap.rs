//! The allocator's blocks: how they split, merge, and come and go with their segments.
//!
//! No policy here: which block a request gets is decided by the model (`allocate.rs`) or by a recording
//! (`crate::track`). Both keep the same books.

use std::collections::{BTreeMap, BTreeSet};

use crate::settings::AllocatorSettings;
use crate::snapshot::PoolId;

pub(crate) const NONE: u32 = u32::MAX;
pub(crate) const MIB: u64 = 1 << 20;
/// Requests up to this size come from the small pools; large blocks keep a remainder up to it.
pub(crate) const SMALL: u64 = MIB;
const MIN_BLOCK: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Allocated,
    /// Given back, but another stream may still use it.
    Pending,
    /// Address space without memory, in an expandable segment.
    Unmapped,
    /// Not in use as a record.
    Gone,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) stream: u64,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Whose it is, in the words of the caller.
    pub(crate) owner: u32,
    pub(crate) pool: u16,
    pub(crate) state: State,
    pub(crate) expandable: bool,
    /// The pool's lookups when it became free: its age for garbage collection.
    pub(crate) freed_at: u64,
}

impl Block {
    pub(crate) fn is_whole(&self) -> bool {
        self.prev == NONE && self.next == NONE
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Allocated | State::Pending)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) small: bool,
    /// By stream, size, address: the allocator's best-fit order.
    pub(crate) free: BTreeSet<(u64, u64, u64, u32)>,
    /// By stream and address.
    pub(crate) unmapped: BTreeSet<(u64, u64, u32)>,
    pub(crate) lookups: u64,
}

impl Pool {
    pub(crate) fn page(&self, settings: &AllocatorSettings) -> u64 {
        if self.small { 2 * MIB } else { settings.large_segment_size }
    }
}

/// Bytes, as the allocator's own counters count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Held from the driver.
    pub reserved: u64,
    /// Allocated, or given back but still awaited by another stream.
    pub active: u64,
    /// In the program's hands.
    pub allocated: u64,
    /// What the program asked for, of what is active.
    pub requested: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Heap {
    pub(crate) settings: AllocatorSettings,
    pub(crate) blocks: Vec<Block>,
    spare: Vec<u32>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) totals: Totals,
    /// Free blocks by address, kept from the first query on.
    free_at: Option<BTreeMap<u64, u32>>,
}

impl Heap {
    pub(crate) fn new(settings: AllocatorSettings) -> Self {
        let (blocks, spare, pools) = (Vec::new(), Vec::new(), Vec::new());
        Heap { settings, blocks, spare, pools, totals: Totals::default(), free_at: None }
    }

    pub(crate) fn pool(&mut self, id: PoolId, small: bool) -> u16 {
        if let Some(index) = self.pools.iter().position(|pool| pool.id == id && pool.small == small) {
            return index as u16;
        }
        self.pools.push(Pool { id, small, free: BTreeSet::new(), unmapped: BTreeSet::new(), lookups: 0 });
        self.pools.len() as u16 - 1
    }

    fn add(&mut self, block: Block) -> u32 {
        match self.spare.pop() {
            Some(index) => {
                self.blocks[index as usize] = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        }
    }

    fn drop_block(&mut self, index: u32) {
        self.blocks[index as usize].state = State::Gone;
        self.spare.push(index);
    }

    #[inline]
    pub(crate) fn block(&self, index: u32) -> &Block {
        &self.blocks[index as usize]
    }

    #[inline]
    pub(crate) fn block_mut(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    pub(crate) fn set_free(&mut self, index: u32) {
        let Block { stream, size, addr, pool, .. } = *self.block(index);
        let pool = &mut self.pools[usize::from(pool)];
        pool.free.insert((stream, size, addr, index));
        if let Some(free) = &mut self.free_at {
            free.insert(addr, index);
        }
        let lookups = pool.lookups;
        let block = self.block_mut(index);
        block.state = State::Free;
        block.freed_at = lookups;
    }

    pub(crate) fn unset_free(&mut self, index: u32) {
        let Block { stream, size, addr, pool, .. } = *self.block(index);
        self.pools[usize::from(pool)].free.remove(&(stream, size, addr, index));
        // Where a recording contradicts itself, another block may have been put at the same address.
        if let Some(free) = &mut self.free_at
            && free.get(&addr) == Some(&index)
        {
            free.remove(&addr);
        }
    }

    /// The free block that `addr` is in.
    pub(crate) fn free_around(&mut self, addr: u64) -> Option<u32> {
        let free = self.free_at.get_or_insert_with(|| {
            self.pools.iter().flat_map(|pool| &pool.free).map(|entry| (entry.2, entry.3)).collect()
        });
        let (&start, &index) = free.range(..=addr).next_back()?;
        (addr - start < self.block(index).size).then_some(index)
    }

    fn set_unmapped(&mut self, index: u32) {
        let Block { stream, addr, pool, .. } = *self.block(index);
        self.pools[usize::from(pool)].unmapped.insert((stream, addr, index));
        self.block_mut(index).state = State::Unmapped;
    }

    fn unset_unmapped(&mut self, index: u32) {
        let Block { stream, addr, pool, .. } = *self.block(index);
        self.pools[usize::from(pool)].unmapped.remove(&(stream, addr, index));
    }

    /// A new block of the same segment between `prev` and `next`.
    fn splice(&mut self, like: Block, addr: u64, size: u64, prev: u32, next: u32) -> u32 {
        let index =
            self.add(Block { addr, size, prev, next, requested: 0, owner: NONE, freed_at: 0, ..like });
        if prev != NONE {
            self.block_mut(prev).next = index;
        }
        if next != NONE {
            self.block_mut(next).prev = index;
        }
        index
    }

    /// Memory of its own from the driver: one free block.
    pub(crate) fn add_segment(&mut self, addr: u64, size: u64, stream: u64, pool: u16) -> u32 {
        let index = self.add(Block {
            addr,
            size,
            requested: 0,
            stream,
            prev: NONE,
            next: NONE,
            owner: NONE,
            pool,
            state: State::Free,
            expandable: false,
            freed_at: 0,
        });
        self.set_free(index);
        self.totals.reserved += size;
        index
    }

    /// Address space for an expandable segment: one unmapped block.
    pub(crate) fn add_reservation(&mut self, addr: u64, size: u64, stream: u64, pool: u16) -> u32 {
        let index = self.add_segment(addr, size, stream, pool);
        self.unset_free(index);
        self.totals.reserved -= size;
        self.block_mut(index).expandable = true;
        self.set_unmapped(index);
        index
    }

    /// Gives a segment that is one free block, or a reservation without memory, back to the driver.
    pub(crate) fn remove_segment(&mut self, index: u32) {
        match self.block(index).state {
            State::Unmapped => self.unset_unmapped(index),
            _ => {
                self.unset_free(index);
                self.totals.reserved -= self.block(index).size;
            }
        }
        self.drop_block(index);
    }

    pub(crate) fn should_split(&self, index: u32, size: u64) -> bool {
        let block = self.block(index);
        let left = block.size.saturating_sub(size);
        if self.pools[usize::from(block.pool)].small || self.settings.expandable_segments {
            left >= MIN_BLOCK
        } else {
            left > SMALL && self.settings.max_split_size.is_none_or(|limit| size < limit)
        }
    }

    /// Hands out the low part of a block that is in no free set, and returns the rest to its pool.
    pub(crate) fn hand_out(&mut self, index: u32, size: u64, requested: u64, owner: u32) {
        if self.should_split(index, size) {
            self.cut(index, size);
        }
        let block = self.block_mut(index);
        block.state = State::Allocated;
        block.requested = requested;
        block.owner = owner;
        let size = block.size;
        self.totals.active += size;
        self.totals.allocated += size;
        self.totals.requested += requested;
    }

    /// Shortens a block to `size`; what is behind becomes a free block.
    pub(crate) fn cut(&mut self, index: u32, size: u64) -> u32 {
        let block = *self.block(index);
        self.block_mut(index).size = size;
        let rest = self.splice(block, block.addr + size, block.size - size, index, block.next);
        self.set_free(rest);
        rest
    }

    pub(crate) fn request_free(&mut self, index: u32) {
        let block = self.block_mut(index);
        if block.state == State::Allocated {
            block.state = State::Pending;
            let size = block.size;
            self.totals.allocated -= size;
        }
    }

    pub(crate) fn complete_free(&mut self, index: u32) {
        self.request_free(index);
        let block = self.block(index);
        if block.state != State::Pending {
            return;
        }
        let (size, requested) = (block.size, block.requested);
        self.totals.active -= size;
        self.totals.requested -= requested;
        let index = self.merge(index, State::Free);
        self.set_free(index);
    }

    /// Joins a block that is in no set with neighbours in `state`, and returns the result, in no set either.
    fn merge(&mut self, index: u32, state: State) -> u32 {
        let Block { prev, next, .. } = *self.block(index);
        self.block_mut(index).owner = NONE;
        if next != NONE && self.block(next).state == state {
            self.unset(next, state);
            let after = *self.block(next);
            let block = self.block_mut(index);
            block.size += after.size;
            block.next = after.next;
            if after.next != NONE {
                self.block_mut(after.next).prev = index;
            }
            self.drop_block(next);
        }
        if prev != NONE && self.block(prev).state == state {
            self.unset(prev, state);
            let before = *self.block(prev);
            let block = self.block_mut(index);
            block.addr = before.addr;
            block.size += before.size;
            block.prev = before.prev;
            if before.prev != NONE {
                self.block_mut(before.prev).next = index;
            }
            self.drop_block(prev);
        }
        index
    }

    fn unset(&mut self, index: u32, state: State) {
        match state {
            State::Unmapped => self.unset_unmapped(index),
            _ => self.unset_free(index),
        }
    }

    /// Maps `size` bytes from the start of an unmapped block on; returns the free block they are now part of.
    pub(crate) fn map(&mut self, index: u32, size: u64) -> u32 {
        self.unset_unmapped(index);
        let block = *self.block(index);
        let size = size.min(block.size);
        if size < block.size {
            self.block_mut(index).size = size;
            let rest = self.splice(block, block.addr + size, block.size - size, index, block.next);
            self.set_unmapped(rest);
        }
        self.totals.reserved += size;
        let index = self.merge(index, State::Free);
        self.set_free(index);
        index
    }

    /// Cuts an unmapped block in two; returns the second.
    pub(crate) fn cut_unmapped(&mut self, index: u32, size: u64) -> u32 {
        let block = *self.block(index);
        self.block_mut(index).size = size;
        let rest = self.splice(block, block.addr + size, block.size - size, index, block.next);
        self.set_unmapped(rest);
        rest
    }

    /// Unmaps a range inside a free block; returns the unmapped block it is now part of.
    pub(crate) fn unmap(&mut self, index: u32, addr: u64, size: u64) -> u32 {
        self.unset_free(index);
        let block = *self.block(index);
        if addr > block.addr {
            let before = self.splice(block, block.addr, addr - block.addr, block.prev, index);
            self.set_free(before);
        }
        let end = block.addr + block.size;
        if addr + size < end {
            let after = self.splice(block, addr + size, end - addr - size, index, block.next);
            self.set_free(after);
        }
        let middle = self.block_mut(index);
        middle.addr = addr;
        middle.size = size;
        self.totals.reserved -= size;
        let index = self.merge(index, State::Unmapped);
        self.set_unmapped(index);
        index
    }
}
