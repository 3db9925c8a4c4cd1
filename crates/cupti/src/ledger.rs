//! The driver's allocations that are alive, by the stack that made them.
//!
//! Written inside the program's own allocations: nothing here waits, and what grows is bounded. What is beside the framework's
//! segments is passed on to the heap recording, in the order in which the ledger took it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;

use crate::origin::Origin;
use crate::recording::{self, Address};

/// Frames of a stack, and the limits of what is remembered; the rest is counted as lost.
const FRAMES: usize = 24;
const MOST_LIVE: usize = 1 << 20;
const MOST_STACKS: usize = 1 << 14;

pub(crate) type Stack = [usize; FRAMES];

struct Live {
    device: i32,
    bytes: u64,
    stack: usize,
    /// Known to the heap recording.
    is_recorded: bool,
}

/// Memory of `cuMemCreate`: it ends when its handle has been released as often as it was given out, and it is mapped nowhere.
struct Created {
    block: Live,
    handle: usize,
    references: u32,
    mappings: u32,
}

/// A new allocation.
pub(crate) struct Request<'a> {
    pub(crate) device: i32,
    pub(crate) bytes: u64,
    pub(crate) stack: &'a Stack,
    /// Ordered by a stream, from a pool of the driver's.
    pub(crate) is_from_drivers_pool: bool,
}

/// What CUPTI reported so far.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Blocks by address.
    live: HashMap<usize, Live>,
    /// Memory without an address of its own, by the number of its creation: a handle may be given out again while memory it stood
    /// for is still mapped.
    created: HashMap<u64, Created>,
    by_handle: HashMap<usize, u64>,
    mapped: BTreeMap<usize, u64>,
    next_created: u64,
    stacks: Vec<(Stack, Origin)>,
    number_of: HashMap<Stack, usize>,
    counts: Counts,
}

/// How often the driver was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Allocations that were recorded.
    pub allocations: u64,
    /// Frees of recorded allocations.
    pub frees: u64,
    /// Allocations that were not recorded because a limit was reached.
    pub lost: u64,
    /// Modules of kernels that were loaded.
    pub modules: u64,
    /// Their size.
    pub module_bytes: u64,
}

impl Ledger {
    /// A block at an address. The same one is reported by the runtime and by the driver; it counts once.
    pub(crate) fn allocate(&mut self, address: usize, request: &Request<'_>) {
        match self.live.get(&address) {
            Some(known) if known.bytes == request.bytes && known.device == request.device => return,
            Some(_) => self.free(address), // its free was not reported
            None => {}
        }
        if let Some(block) = self.block(Address::Device(address), request) {
            self.live.insert(address, block);
        }
    }

    /// A free; an allocation that was never reported is ignored.
    pub(crate) fn free(&mut self, address: usize) {
        if let Some(block) = self.live.remove(&address) {
            self.end(Address::Device(address), &block);
        }
    }

    /// Memory without an address, under a handle.
    pub(crate) fn create(&mut self, handle: usize, request: &Request<'_>) {
        let number = self.next_created;
        if let Some(block) = self.block(Address::Created(number), request) {
            self.next_created += 1;
            self.by_handle.insert(handle, number);
            self.created.insert(number, Created { block, handle, references: 1, mappings: 0 });
        }
    }

    /// The handle of mapped memory was asked for once more.
    pub(crate) fn retain(&mut self, handle: usize) {
        if let Some(created) = self.by_handle.get(&handle).and_then(|number| self.created.get_mut(number)) {
            created.references += 1;
        }
    }

    /// A handle was given up.
    pub(crate) fn release(&mut self, handle: usize) {
        let Some(&number) = self.by_handle.get(&handle) else { return };
        if let Some(created) = self.created.get_mut(&number) {
            created.references = created.references.saturating_sub(1);
            self.end_if_unused(number);
        }
    }

    /// Memory was mapped at an address.
    pub(crate) fn map(&mut self, address: usize, handle: usize) {
        let Some(&number) = self.by_handle.get(&handle) else { return };
        if self.mapped.len() < MOST_LIVE
            && let Some(created) = self.created.get_mut(&number)
        {
            created.mappings += 1;
            self.mapped.insert(address, number);
        }
    }

    /// Whole mappings in a range come to their end.
    pub(crate) fn unmap(&mut self, address: usize, bytes: usize) {
        let ended: Vec<(usize, u64)> = self
            .mapped
            .range(address..address.saturating_add(bytes))
            .map(|(address, number)| (*address, *number))
            .collect();
        for (address, number) in ended {
            self.mapped.remove(&address);
            if let Some(created) = self.created.get_mut(&number) {
                created.mappings = created.mappings.saturating_sub(1);
                self.end_if_unused(number);
            }
        }
    }

    fn end_if_unused(&mut self, number: u64) {
        let Some(created) = self.created.get(&number) else { return };
        if created.references == 0 && self.by_handle.get(&created.handle) == Some(&number) {
            self.by_handle.remove(&created.handle);
        }
        if created.references == 0
            && created.mappings == 0
            && let Some(created) = self.created.remove(&number)
        {
            self.end(Address::Created(number), &created.block);
        }
    }

    /// A block for the tables, counted and recorded; `None` where a limit was reached.
    fn block(&mut self, address: Address, request: &Request<'_>) -> Option<Live> {
        let known = self.number_of.get(request.stack).copied();
        if self.live.len() + self.created.len() >= MOST_LIVE
            || (known.is_none() && self.stacks.len() >= MOST_STACKS)
        {
            self.counts.lost += 1;
            return None;
        }
        let stack = known.unwrap_or_else(|| {
            self.stacks.push((*request.stack, Origin::of(request.stack)));
            self.number_of.insert(*request.stack, self.stacks.len() - 1);
            self.stacks.len() - 1
        });
        let origin = self.stacks.get(stack).map(|(_, origin)| origin)?;
        let is_recorded = !origin.is_segment(request.is_from_drivers_pool);
        if is_recorded {
            recording::allocated(address, request.device, request.bytes, origin.caller);
        }
        self.counts.allocations += 1;
        Some(Live { device: request.device, bytes: request.bytes, stack, is_recorded })
    }

    fn end(&mut self, address: Address, block: &Live) {
        self.counts.frees += 1;
        if block.is_recorded {
            recording::freed(address, block.device, block.bytes);
        }
    }

    /// A module of kernels was loaded.
    pub(crate) fn load(&mut self, bytes: u64) {
        self.counts.modules += 1;
        self.counts.module_bytes += bytes;
    }

    /// Bytes and number of the allocations that are alive, by device and library.
    pub(crate) fn held(&self) -> HashMap<(i32, String), (u64, u64)> {
        let mut by_stack: HashMap<(i32, usize), (u64, u64)> = HashMap::new();
        for block in self.live.values().chain(self.created.values().map(|created| &created.block)) {
            let sum = by_stack.entry((block.device, block.stack)).or_default();
            *sum = (sum.0 + block.bytes, sum.1 + 1);
        }
        let mut sums: HashMap<(i32, String), (u64, u64)> = HashMap::new();
        for ((device, stack), (bytes, pieces)) in by_stack {
            let Some((_, origin)) = self.stacks.get(stack) else { continue };
            let sum = sums.entry((device, origin.library.clone())).or_default();
            *sum = (sum.0 + bytes, sum.1 + pieces);
        }
        sums
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}

/// The stack of this thread, as addresses.
pub(crate) fn here() -> Stack {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: writes at most `FRAMES` frames, the length of the array. `Listener::subscribe` called it once before there was
    // a subscriber, so the unwinder is loaded and this allocates nothing.
    unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    frames.map(|frame| frame as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u64, stack: &Stack) -> Request<'_> {
        Request { device: 0, bytes, stack, is_from_drivers_pool: false }
    }

    fn total(ledger: &Ledger) -> u64 {
        ledger.held().values().map(|(bytes, _)| bytes).sum()
    }

    #[test]
    fn an_allocation_reported_twice_counts_once() {
        let (mut ledger, stack) = (Ledger::default(), here());
        ledger.allocate(0x1000, &request(64, &stack));
        ledger.allocate(0x1000, &request(64, &stack));
        assert_eq!((total(&ledger), ledger.counts().allocations), (64, 1));
        ledger.allocate(0x1000, &request(32, &stack));
        assert_eq!((total(&ledger), ledger.counts().frees), (32, 1), "a free that was not reported");
    }

    #[test]
    fn created_memory_lives_while_it_is_mapped_or_its_handle_is_held() {
        let (mut ledger, stack) = (Ledger::default(), here());
        ledger.create(7, &request(64, &stack));
        ledger.map(0x1000, 7);
        ledger.retain(7);
        ledger.release(7);
        ledger.release(7);
        assert_eq!(total(&ledger), 64, "mapped");
        ledger.create(7, &request(32, &stack));
        assert_eq!(total(&ledger), 96, "the handle's number stands for other memory now");
        ledger.unmap(0x1000, 64);
        assert_eq!(total(&ledger), 32);
        ledger.release(7);
        assert_eq!((total(&ledger), ledger.counts().frees), (0, 2));
    }
}
