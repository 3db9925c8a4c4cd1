//! What the GNU C library's allocator would do next: its free lists, as far as the records of one stream tell them. Almost every
//! Linux program allocates with it, and it decides by nothing but the calls before; so most addresses need not be stored at all.
//!
//! A guess only: other threads, other allocators and other releases of the library do otherwise, and [`Arena::correct`] puts
//! right what went wrong. Both sides of the codec run this in step, so a change of anything here is a new version of the format. Must
//! take any records, and do little work for each of them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// The number of this model in a file: the library as it was in release 2.36, with a cache for each thread and lists of small blocks.
pub(crate) const MODEL: u8 = 1;

/// Most records that it is followed for.
const MOST_REACH: u64 = 1 << 20;

/// Smallest block, and what blocks are a multiple of half of.
const LEAST: u64 = 32;
const UNIT: u64 = 16;
/// Blocks below are found by their very size.
const LARGE: u64 = 1024;
/// Largest block each thread keeps for itself, and how many of a size.
const CACHED: u64 = 1040;
const CACHE: usize = 7;
/// Largest block that is not joined with its neighbours at once.
const FAST: u64 = 128;
/// A freed range of this size joins all there are.
const JOIN: u64 = 65_536;
/// Larger blocks are mappings of their own, at first.
const MAPPED: u64 = 128 << 10;
/// A block so far below the top belongs to another heap, which is the one in use now.
const ELSEWHERE: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Stands for a block whose address is not known.
const UNSEEN: u64 = 0;
/// How far down a list is looked for a block that was not expected to be taken.
const LOOK: usize = 64;

/// A free range in the list of the unsorted, or in the bin of its size: bin, size, when it came there.
type Range = (u32, u64, u64);
/// The same in the order in which ranges are looked at: the unsorted by time, all others by size.
type Key = (u32, u64, u64);
/// The list of what was freed since ranges were sorted into bins.
const UNSORTED: u32 = 1;

/// Is a model known to this release, and followed for no longer than there is memory for?
pub(crate) fn is_known(model: u8, reach: u64) -> bool {
    model == MODEL && reach <= MOST_REACH
}

/// The memory of one thread's allocator. Addresses are those of chunks: what is handed out begins [`UNIT`] bytes behind.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// Sizes of blocks in use, or in the lists of blocks that are kept ready.
    used: FxHashMap<u64, u64>,
    free: BTreeMap<u64, Range>,
    bins: BTreeMap<Key, u64>,
    cache: Vec<Vec<u64>>,
    fast: Vec<Vec<u64>>,
    /// Where all that was never handed out begins.
    top: Option<u64>,
    remainder: Option<u64>,
    /// The last block came from a list of blocks that are kept ready.
    was_ready: bool,
    /// The last range that was guessed wrong.
    doubted: Option<u64>,
    clock: u64,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Arena {
            cache: vec![Vec::new(); (CACHED / UNIT) as usize + 1],
            fast: vec![Vec::new(); (FAST / UNIT) as usize + 1],
            ..Arena::default()
        }
    }

    /// Where a new block is. `is_cleared`: by `calloc`, which does not look into the cache.
    pub(crate) fn allocate(&mut self, bytes: u64, is_cleared: bool) -> Option<u64> {
        let size = chunk(bytes).filter(|size| *size < MAPPED)?;
        self.was_ready = true;
        if !is_cleared && let Some(address) = self.cache.get_mut(slot(size)).and_then(Vec::pop) {
            return Some(address.wrapping_add(UNIT));
        }
        self.carve(size).map(|address| address.wrapping_add(UNIT))
    }

    /// Where the block at `old` is after `realloc`.
    pub(crate) fn reallocate(&mut self, old: u64, bytes: u64) -> Option<u64> {
        let at = old.wrapping_sub(UNIT);
        self.was_ready = true;
        let (size, before) = (chunk(bytes)?, self.used.get(&at).copied());
        // A mapping of its own, most likely: that grows where it is, if it can.
        let Some(before) = before else { return Some(old) };
        let mut room = before;
        if before < size {
            let end = at.wrapping_add(before);
            if self.top == Some(end) {
                self.top = Some(at.wrapping_add(size));
                self.used.insert(at, size);
                return Some(old);
            }
            match self.free.get(&end) {
                Some(next) if before.saturating_add(next.1) >= size => {
                    room = before.saturating_add(next.1);
                    self.unlink(end);
                }
                _ => {
                    let new = if size < MAPPED { self.carve(size) } else { None };
                    self.release(at);
                    return new.map(|address| address.wrapping_add(UNIT));
                }
            }
        }
        if room - size >= LEAST {
            self.used.insert(at, size);
            self.used.insert(at.wrapping_add(size), room - size);
            self.release(at.wrapping_add(size));
        } else {
            self.used.insert(at, room);
        }
        Some(old)
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, address: u64) {
        self.release(address.wrapping_sub(UNIT));
    }

    /// A block is elsewhere than was guessed.
    pub(crate) fn correct(&mut self, guess: Option<u64>, address: u64, bytes: u64) {
        let guess = guess.map(|guess| guess.wrapping_sub(UNIT));
        self.take_back(guess);
        let (Some(size), at) = (chunk(bytes), address.wrapping_sub(UNIT)) else { return };
        if !address.is_multiple_of(UNIT) || size >= MAPPED && address % PAGE == UNIT {
            return;
        }
        if let Some(known) = self.used.get(&at).copied() {
            forget(self.fast.get_mut(slot(known)), at);
            let was_cached = forget(self.cache.get_mut(slot(known)), at);
            // The cache holds a block that was freed without a record, or it would have had room for the one that was guessed.
            if was_cached
                && self.was_ready
                && guess.is_some_and(|guess| guess != UNSEEN)
                && self.has_room(known)
            {
                self.cache[slot(known)].insert(0, UNSEEN);
            }
            if known >= size {
                return;
            }
        }
        let end = at.saturating_add(size);
        let below =
            self.free.range(..=at).next_back().map(|(start, range)| (*start, start.saturating_add(range.1)));
        if let Some((start, whole)) = below.filter(|(_, whole)| *whole >= end) {
            self.unlink(start);
            self.put(start, at - start);
            self.put(end, whole - end);
            self.used.insert(at, if whole - end < LEAST { whole - at } else { size });
            return;
        }
        self.used.insert(at, size);
        if self.top.is_none_or(|top| top < end || top - end > ELSEWHERE) {
            self.top = Some(end);
        }
    }

    /// Undoes a wrong guess. A block from the cache or a fast bin is not put back: if it were really there, `malloc` would have returned it. A range cut from
    /// the free ranges is free again, unless the guess before this one was wrong about the same range.
    fn take_back(&mut self, guess: Option<u64>) {
        let Some((at, size)) = guess.and_then(|at| Some((at, *self.used.get(&at)?))) else { return };
        if !self.was_ready && self.doubted != Some(at) {
            self.doubted = Some(at);
            self.used.remove(&at);
            self.join(at, size);
        }
    }

    /// A block from the lists or from the top.
    fn carve(&mut self, size: u64) -> Option<u64> {
        if let Some(address) = self.fast.get_mut(slot(size)).and_then(Vec::pop) {
            while self.has_room(size)
                && let Some(more) = self.fast[slot(size)].pop()
            {
                self.cache[slot(size)].push(more);
            }
            return Some(address);
        }
        self.was_ready = false;
        if size < LARGE {
            if let Some(address) = self.exact(size) {
                while self.has_room(size)
                    && let Some(more) = self.exact(size)
                {
                    self.cache[slot(size)].push(more);
                }
                return Some(address);
            }
        } else {
            self.join_all();
        }
        if let Some(address) = self.sort(size) {
            return Some(address);
        }
        if let Some(address) = self.fit(size) {
            let whole = self.unlink(address)?;
            let rest = whole - size;
            if rest < LEAST {
                self.used.insert(address, whole);
                return Some(address);
            }
            self.used.insert(address, size);
            self.put(address.wrapping_add(size), rest);
            if size < LARGE {
                self.remainder = Some(address.wrapping_add(size));
            }
            return Some(address);
        }
        let address = self.top?;
        self.top = Some(address.checked_add(size)?);
        self.used.insert(address, size);
        Some(address)
    }

    /// Goes through what was freed since: a block that fits is taken, the others go into their bins.
    fn sort(&mut self, size: u64) -> Option<u64> {
        let mut is_cached = false;
        while let Some((key, address)) = self.bins.first_key_value().map(|(key, address)| (*key, *address)) {
            let (UNSORTED, _, whole) = key else { break };
            let is_last = self.bins.range((UNSORTED, 0, 0)..(UNSORTED + 1, 0, 0)).nth(1).is_none();
            if size < LARGE && is_last && self.remainder == Some(address) && whole - LEAST > size {
                self.unlink(address);
                self.used.insert(address, size);
                self.put(address.wrapping_add(size), whole - size);
                self.remainder = Some(address.wrapping_add(size));
                return Some(address);
            }
            self.unlink(address);
            if whole != size {
                self.insert(address, bin_of(whole), whole);
            } else if self.has_room(size) {
                self.used.insert(address, size);
                self.cache[slot(size)].push(address);
                is_cached = true;
            } else {
                self.used.insert(address, size);
                return Some(address);
            }
        }
        if is_cached { self.cache[slot(size)].pop() } else { None }
    }

    /// The oldest free range of this very size.
    fn exact(&mut self, size: u64) -> Option<u64> {
        let bin = bin_of(size);
        let (_, address) = self.bins.range((bin, size, 0)..(bin, size + 1, 0)).next()?;
        let address = *address;
        self.unlink(address);
        self.used.insert(address, size);
        Some(address)
    }

    /// The smallest free range that is large enough.
    fn fit(&self, size: u64) -> Option<u64> {
        let own = bin_of(size);
        let ((bin, whole, order), first) = self.bins.range((own, size, 0)..).next()?;
        if *whole < LARGE {
            return Some(*first);
        }
        // Of several of one size the first is the last to go.
        let mut same = self.bins.range((*bin, *whole, *order + 1)..(*bin, whole.saturating_add(1), 0));
        let other = if *bin == own { same.next_back() } else { same.next() };
        Some(other.map_or(*first, |(_, address)| *address))
    }

    fn release(&mut self, at: u64) {
        let Some(size) = self.used.get(&at).copied() else { return };
        if self.has_room(size) {
            self.cache[slot(size)].push(at);
            return;
        }
        if let Some(list) = self.fast.get_mut(slot(size)) {
            list.push(at);
            return;
        }
        self.used.remove(&at);
        if self.join(at, size) >= JOIN {
            self.join_all();
        }
    }

    /// Joins what is in the lists of small blocks with its neighbours.
    fn join_all(&mut self) {
        for index in 0..self.fast.len() {
            for at in std::mem::take(&mut self.fast[index]).into_iter().rev() {
                if let Some(size) = self.used.remove(&at) {
                    self.join(at, size);
                }
            }
        }
    }

    /// A range is free: with its neighbours, or with the top. Gives how large it has become.
    fn join(&mut self, mut at: u64, mut size: u64) -> u64 {
        if let Some((start, key)) = self.free.range(..at).next_back().map(|(start, key)| (*start, *key))
            && start.saturating_add(key.1) == at
        {
            self.unlink(start);
            (at, size) = (start, size.saturating_add(key.1));
        }
        let end = at.saturating_add(size);
        if self.top == Some(end) {
            self.top = Some(at);
            return size;
        }
        if let Some(more) = self.unlink(end) {
            size = size.saturating_add(more);
        }
        self.put(at, size);
        size
    }

    /// Into the list of the unsorted.
    fn put(&mut self, at: u64, size: u64) {
        self.insert(at, UNSORTED, size);
    }

    fn insert(&mut self, at: u64, bin: u32, size: u64) {
        if size < LEAST {
            return;
        }
        self.clock += 1;
        // Forged records may free what is free: one range has one entry.
        self.unlink(at);
        self.bins.insert(key((bin, size, self.clock)), at);
        self.free.insert(at, (bin, size, self.clock));
    }

    /// Takes a free range out of its bin and gives its size.
    fn unlink(&mut self, at: u64) -> Option<u64> {
        let range = self.free.remove(&at)?;
        self.bins.remove(&key(range));
        Some(range.1)
    }

    fn has_room(&self, size: u64) -> bool {
        self.cache.get(slot(size)).is_some_and(|list| list.len() < CACHE)
    }
}

/// Takes a block out of a list, where it is near the end.
fn forget(list: Option<&mut Vec<u64>>, at: u64) -> bool {
    let Some(list) = list else { return false };
    let found = list.iter().rev().take(LOOK).position(|kept| *kept == at);
    if let Some(place) = found {
        list.remove(list.len() - 1 - place);
    }
    found.is_some()
}

fn key((bin, size, time): Range) -> Key {
    if bin == UNSORTED { (bin, time, size) } else { (bin, size, time) }
}

/// Bytes of a block with its header.
fn chunk(bytes: u64) -> Option<u64> {
    bytes.checked_add(8 + UNIT - 1).map(|bytes| (bytes & !(UNIT - 1)).max(LEAST))
}

/// Of lists by size.
fn slot(size: u64) -> usize {
    usize::try_from(size / UNIT).unwrap_or(usize::MAX)
}

/// As the library numbers them; the unsorted come before all.
fn bin_of(size: u64) -> u32 {
    let shifted = |shift: u32| size >> shift;
    (match size {
        _ if size < LARGE => size >> 4,
        _ if shifted(6) <= 48 => 48 + shifted(6),
        _ if shifted(9) <= 20 => 91 + shifted(9),
        _ if shifted(12) <= 10 => 110 + shifted(12),
        _ if shifted(15) <= 4 => 119 + shifted(15),
        _ if shifted(18) <= 2 => 124 + shifted(18),
        _ => 126,
    }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heap as `malloc` has it: what comes next is known from what was freed.
    #[test]
    fn blocks_come_from_where_the_library_takes_them() {
        let mut arena = Arena::new();
        arena.correct(None, 0x1010, 100);
        let mut next = |bytes: u64| arena.allocate(bytes, false);
        // From the top, one behind the other.
        assert_eq!((next(24), next(25), next(2000)), (Some(0x1080), Some(0x10a0), Some(0x10d0)));
        assert_eq!((next(600), next(100)), (Some(0x18b0), Some(0x1b10)));
        // The last of a size that was freed comes first, but not to `calloc`.
        arena.free(0x1080);
        assert_eq!(arena.allocate(24, true), Some(0x1b80));
        assert_eq!(arena.allocate(10, false), Some(0x1080));
        // Large ones are joined with their neighbours and cut to size.
        arena.free(0x10d0);
        assert_eq!(arena.allocate(1032, true), Some(0x10d0));
        assert_eq!(arena.allocate(700, false), Some(0x14e0));
        // A block grows where it is when there is room behind it.
        assert_eq!(arena.reallocate(0x14e0, 900), Some(0x14e0));
        assert_eq!(arena.reallocate(0x1b80, 5000), Some(0x1b80), "into the top");
        assert_eq!(arena.allocate(2000, false), Some(0x2f10));
    }

    #[test]
    fn a_wrong_guess_is_put_right() {
        let mut arena = Arena::new();
        arena.correct(None, 0x1010, 24);
        assert_eq!(arena.allocate(40, false), Some(0x1030));
        arena.correct(Some(0x1030), 0x2010, 40);
        assert_eq!(arena.allocate(24, false), Some(0x2040), "the top is behind the last block");
        // Another allocator, or nonsense: no address is out of reach, and nothing overflows.
        for (address, bytes) in [(u64::MAX - 15, u64::MAX), (0, 0), (16, u64::MAX - 40), (!15, 1 << 20)] {
            arena.correct(Some(address ^ 0x40), address, bytes);
            arena.free(address);
            arena.free(address);
            let guess = arena.allocate(bytes, false);
            arena.correct(guess, address, 64);
            arena.reallocate(address, bytes);
        }
    }
}
