//! Guesses where the next block is, so that the finished file stores what was guessed wrong instead of addresses.
//!
//! An allocator hands out what was freed last in the same size class, or the bytes behind the last fresh block; and what is freed is
//! mostly among the blocks that live shortest. Both sides of the codec run this in step: the encoder asks for the guess that fits an
//! address, the decoder turns the guess into the address. It must never depend on anything but the records of its own block of chunks.

use rustc_hash::FxHashMap;

use crate::glibc::Arena;
use crate::op::is_mapping;
use crate::record::kind;

/// How many guesses of one sort are tried.
const DEPTH: usize = 48;
/// The youngest blocks are listed, so that the n-th is found at once; at most this many.
const LISTED: usize = 128;
/// How far from the block freed last a neighbour is looked for.
pub(crate) const NEAR: isize = 64;
/// Wrong guesses before the rate of right ones decides whether the model is used.
const TRIALS: u32 = 1000;
const SMALL_CLASSES: usize = 512;
const NONE: u32 = u32::MAX;

/// Where a new block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressGuess {
    /// The n-th last freed of its class.
    Freed(usize),
    /// The n-th last freed of unknown class.
    Stray(usize),
    /// Behind the last fresh block.
    Behind,
    /// Where the block was that `realloc` took last.
    Taken,
    /// Behind the n-th last block. Only in streams that were sealed.
    After(usize),
    /// Where the C library would put it. Only in streams that were sealed.
    Foreseen,
    /// At an address that no guess gives.
    Unknown,
}

/// Which block is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The n-th youngest that lives.
    Young(usize),
    /// The n-th last that was allocated. Not in streams that were sealed.
    Old(usize),
    /// As many blocks allocated later, or earlier, than the one freed last. Only in streams that were sealed.
    Apart(i64),
    /// As many living blocks from the one freed last: younger ones from 0 on, older ones from -1 down. Only in streams that were sealed.
    Near(isize),
    /// One from before.
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct Predictor {
    /// Every block allocated so far; living ones are linked by age.
    blocks: Vec<Block>,
    youngest: Option<u32>,
    /// The youngest that live, in order of age; older ones may be missing.
    listed: Vec<u32>,
    small: Vec<Vec<u64>>,
    large: FxHashMap<u32, Vec<u64>>,
    strays: Vec<u64>,
    behind: u64,
    taken: u64,
    /// The block that was freed last, and its neighbours.
    freed: u32,
    around: Link,
    /// What the C library would do, and for how many records more it is followed.
    arena: Option<Box<Arena>>,
    reach: u64,
    /// The block that `realloc` has at the moment.
    held: Option<u64>,
    hits: Hits,
    /// Only the encoder needs to find blocks by address.
    by_address: Option<FxHashMap<u64, u32>>,
    /// And by their end, when it packs a stream whole.
    by_end: Option<FxHashMap<u64, u32>>,
}

/// How often an allocation was predicted, and how often not.
#[derive(Debug, Default)]
struct Hits {
    right: u32,
    wrong: u32,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    class: u32,
    link: Link,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    younger: u32,
}

impl Default for Link {
    fn default() -> Self {
        Link { older: NONE, younger: NONE }
    }
}

impl Predictor {
    /// For about this many allocations.
    pub(crate) fn decoder(count: usize) -> Self {
        // A file may announce more than it contains.
        let count = count.min(1 << 20);
        Predictor {
            small: vec![Vec::new(); SMALL_CLASSES],
            blocks: Vec::with_capacity(count),
            ..Predictor::default()
        }
    }

    pub(crate) fn encoder() -> Self {
        Predictor { by_address: Some(FxHashMap::default()), ..Self::decoder(0) }
    }

    /// For a stream that is packed whole.
    pub(crate) fn whole_encoder(reach: u64) -> Self {
        Predictor { by_end: Some(FxHashMap::default()), ..Self::encoder() }.foreseeing(reach)
    }

    /// For the memory of devices, which nothing is known of but its addresses; `is_whole`: of a stream that is packed whole.
    pub(crate) fn device_encoder(is_whole: bool) -> Self {
        if is_whole { Self::whole_encoder(0) } else { Self::encoder() }
    }

    /// Follows the C library's allocator for this many allocations and frees.
    pub(crate) fn foreseeing(self, reach: u64) -> Self {
        Predictor { arena: (reach > 0).then(|| Box::new(Arena::new())), reach, ..self }
    }

    /// The guess that fits, and the allocation done.
    pub(crate) fn guess(&mut self, kind: u8, size: u64, address: u64) -> AddressGuess {
        let class = class(kind, size);
        let foreseen = self.foresee(kind, size);
        let find = |list: &[u64]| list.iter().rev().take(DEPTH).position(|freed| *freed == address);
        let guess = if foreseen == Some(address) {
            AddressGuess::Foreseen
        } else if let Some(rank) = find(self.class(class)) {
            AddressGuess::Freed(rank)
        } else if address == self.behind {
            AddressGuess::Behind
        } else if address == self.taken {
            AddressGuess::Taken
        } else if let Some(rank) = find(&self.strays) {
            AddressGuess::Stray(rank)
        } else if let Some(index) = self.by_end.as_ref().and_then(|ends| ends.get(&address)) {
            AddressGuess::After(self.blocks.len() - 1 - *index as usize)
        } else {
            AddressGuess::Unknown
        };
        self.settle(kind, size, guess, address, foreseen);
        let index = self.blocks.len() as u32 - 1;
        if let Some(by_address) = &mut self.by_address {
            by_address.insert(address, index);
        }
        if let Some(by_end) = &mut self.by_end {
            by_end.insert(end_of(address, class), index);
        }
        guess
    }

    /// The address a guess stands for, and the allocation done. `literal` is for `Unknown`. `None`: no such guess.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, kind: u8, size: u64, guess: AddressGuess, literal: u64) -> Option<u64> {
        let foreseen = if self.arena.is_some() { self.foresee(kind, size) } else { None };
        self.settle(kind, size, guess, literal, foreseen)
    }

    #[inline(always)]
    fn settle(
        &mut self,
        kind: u8,
        size: u64,
        guess: AddressGuess,
        literal: u64,
        foreseen: Option<u64>,
    ) -> Option<u64> {
        let class = class(kind, size);
        let pick = |list: &mut Vec<u64>, rank: usize| {
            if rank == 0 {
                return list.pop();
            }
            let index = list.len().checked_sub(rank + 1)?;
            Some(list.remove(index))
        };
        let address = match guess {
            AddressGuess::Freed(rank) => pick(self.class(class), rank)?,
            AddressGuess::Stray(rank) => pick(&mut self.strays, rank)?,
            AddressGuess::Behind => self.behind,
            AddressGuess::Taken => self.taken,
            AddressGuess::After(rank) => {
                let index = self.blocks.len().checked_sub(rank.checked_add(1)?)?;
                let block = self.blocks.get(index)?;
                end_of(block.address, block.class)
            }
            AddressGuess::Foreseen => {
                let address = foreseen?;
                self.take_freed(class, address);
                address
            }
            AddressGuess::Unknown => literal,
        };
        if self.arena.is_some() {
            self.learn(kind, size, address, foreseen);
        }
        if matches!(guess, AddressGuess::Behind | AddressGuess::After(_) | AddressGuess::Unknown) {
            self.behind = address.wrapping_add(extent(kind, size));
        }
        let index = self.blocks.len() as u32;
        let older = self.youngest.unwrap_or(NONE);
        if let Some(block) = self.blocks.get_mut(older as usize) {
            block.link.younger = index;
        }
        self.blocks.push(Block { address, class, link: Link { older, younger: NONE } });
        self.youngest = Some(index);
        if self.listed.len() == LISTED {
            self.listed.drain(..LISTED / 2);
        }
        self.listed.push(index);
        Some(address)
    }

    /// Where the C library would put a block; only some ask it for memory. Outlined, so that the path of most records stays short.
    #[inline(never)]
    fn foresee(&mut self, kind: u8, size: u64) -> Option<u64> {
        let arena = self.arena.as_mut()?;
        match kind {
            _ if !asks_library(kind, size) => None,
            kind::MALLOC | kind::PY_MALLOC => arena.allocate(size, false),
            kind::CALLOC | kind::PY_CALLOC => arena.allocate(size, true),
            kind::REALLOC | kind::PY_REALLOC => match self.held {
                Some(held) => arena.reallocate(held, size),
                None => arena.allocate(size, false),
            },
            _ => None,
        }
    }

    /// A predicted block may be in a list of freed ones: it must not stay there.
    #[inline(never)]
    fn take_freed(&mut self, class: u32, address: u64) {
        let list = self.class(class);
        if let Some(rank) = list.iter().rev().take(DEPTH).position(|freed| *freed == address) {
            list.remove(list.len() - 1 - rank);
        }
    }

    /// Corrects the model of the library with the real address of a block, and drops the model where it is of no use.
    #[inline(never)]
    fn learn(&mut self, kind: u8, size: u64, address: u64, foreseen: Option<u64>) {
        let held = if matches!(kind, kind::REALLOC | kind::PY_REALLOC) { self.held.take() } else { None };
        let Some(arena) = self.arena.as_mut() else { return };
        if asks_library(kind, size) {
            if foreseen == Some(address) {
                self.hits.right = self.hits.right.saturating_add(1);
            } else {
                self.hits.wrong = self.hits.wrong.saturating_add(1);
                arena.correct(foreseen, address, size);
                if let Some(held) = held.filter(|held| foreseen == Some(*held)) {
                    arena.free(held);
                }
            }
        }
        self.reach = self.reach.saturating_sub(1);
        if self.reach == 0 || self.hits.wrong > TRIALS && self.hits.wrong / 2 > self.hits.right {
            self.arena = None;
        }
    }

    /// The guess that fits a free, and the free done.
    pub(crate) fn victim(&mut self, kind: u8, address: u64) -> Victim {
        let found = self.by_address.as_mut().and_then(|blocks| blocks.remove(&address));
        let victim = found.map_or(Victim::Unknown, |index| match self.listed.binary_search(&index) {
            Ok(place) if self.listed.len() - place <= DEPTH => Victim::Young(self.listed.len() - 1 - place),
            _ => self.distance(index).unwrap_or(match self.by_end {
                Some(_) => Victim::Apart(i64::from(index) - i64::from(self.freed)),
                None => Victim::Old(self.blocks.len() - 1 - index as usize),
            }),
        });
        self.free(kind, victim, address);
        victim
    }

    /// The address of a freed block, and the free done. `None`: no such block.
    #[inline(always)]
    pub(crate) fn free(&mut self, kind: u8, victim: Victim, literal: u64) -> Option<u64> {
        let index = match victim {
            Victim::Young(rank) => Some(self.young(rank)?),
            Victim::Old(age) => {
                let index = self.blocks.len().checked_sub(age.checked_add(1)?)? as u32;
                self.delist(index);
                Some(index)
            }
            Victim::Apart(difference) => {
                let index = u32::try_from(i64::from(self.freed).checked_add(difference)?).ok()?;
                self.delist(index);
                Some(index)
            }
            Victim::Near(distance) => {
                let index = self.near(distance)?;
                self.delist(index);
                Some(index)
            }
            Victim::Unknown => None,
        };
        let address = match index {
            Some(index) => {
                let Block { address, class, .. } = *self.blocks.get(index as usize)?;
                self.unlink(index);
                self.freed = index;
                self.class(class).push(address);
                address
            }
            None => {
                self.strays.push(literal);
                literal
            }
        };
        if kind == kind::REALLOC_TAKE {
            self.taken = address;
            self.held = Some(address);
        } else if let Some(arena) = &mut self.arena {
            arena.free(address);
            self.reach = self.reach.saturating_sub(1);
        }
        Some(address)
    }

    /// `realloc` gave its block back.
    pub(crate) fn undo(&mut self) {
        self.held = None;
    }

    fn delist(&mut self, index: u32) {
        if self.listed.first().is_some_and(|first| *first <= index)
            && let Ok(place) = self.listed.binary_search(&index)
        {
            self.listed.remove(place);
        }
    }

    /// The living block so far from the one that was freed last.
    fn near(&self, distance: isize) -> Option<u32> {
        let mut at = self.around;
        let mut found = NONE;
        for _ in 0..if distance < 0 { -distance } else { distance + 1 } {
            found = if distance < 0 { at.older } else { at.younger };
            at = self.blocks.get(found as usize)?.link;
        }
        Some(found)
    }

    /// How far a block is from the one that was freed last, for an encoder that packs a stream as one unit.
    fn distance(&self, index: u32) -> Option<Victim> {
        self.by_end.as_ref()?;
        let Link { mut older, mut younger } = self.around;
        for step in 0..NEAR {
            if younger == index {
                return Some(Victim::Near(step));
            }
            if older == index {
                return Some(Victim::Near(-1 - step));
            }
            younger = self.blocks.get(younger as usize).map_or(NONE, |block| block.link.younger);
            older = self.older(older).unwrap_or(NONE);
        }
        None
    }

    /// The n-th youngest, off the list.
    #[inline(always)]
    fn young(&mut self, rank: usize) -> Option<u32> {
        if rank == 0 && !self.listed.is_empty() {
            return self.listed.pop();
        }
        if let Some(place) = self.listed.len().checked_sub(rank + 1) {
            return Some(self.listed.remove(place));
        }
        self.young_unlisted(rank)
    }

    #[cold]
    fn young_unlisted(&self, rank: usize) -> Option<u32> {
        let mut at = self.youngest?;
        for _ in 0..rank {
            at = self.older(at)?;
        }
        Some(at)
    }

    fn older(&self, index: u32) -> Option<u32> {
        self.blocks.get(index as usize).map(|block| block.link.older).filter(|older| *older != NONE)
    }

    #[inline(always)]
    fn unlink(&mut self, index: u32) {
        let Some(block) = self.blocks.get_mut(index as usize) else { return };
        // A block freed twice (a foreign file may say so) must not unlink its old neighbours again.
        let link = std::mem::take(&mut block.link);
        self.around = link;
        if let Some(younger) = self.blocks.get_mut(link.younger as usize) {
            younger.link.older = link.older;
        } else if self.youngest == Some(index) {
            self.youngest = (link.older != NONE).then_some(link.older);
        }
        if let Some(older) = self.blocks.get_mut(link.older as usize) {
            older.link.younger = link.younger;
        }
    }

    #[inline(always)]
    fn class(&mut self, class: u32) -> &mut Vec<u64> {
        if (class as usize) < SMALL_CLASSES {
            &mut self.small[class as usize]
        } else {
            self.large.entry(class).or_default()
        }
    }
}

/// Blocks that an allocator would exchange for each other. CPython's small objects never mix with `malloc`'s blocks.
fn class(allocator: u8, size: u64) -> u32 {
    let python = is_small_object(allocator, size);
    let units = match allocator {
        kind::DEVICE_ALLOCATION => on_device(size) / 16,
        _ if python => size.div_ceil(16),
        _ => size.saturating_add(8).div_ceil(16).max(2),
    };
    (units.min(u64::from(u32::MAX >> 1)) as u32) << 1 | u32::from(python)
}

/// Is the memory from the C library? Mappings are not, nor are CPython's small objects.
fn asks_library(allocator: u8, size: u64) -> bool {
    !is_mapping(allocator) && !is_small_object(allocator, size)
}

/// Is it one of CPython's small objects?
fn is_small_object(allocator: u8, size: u64) -> bool {
    (kind::PY_MALLOC..=kind::PY_REALLOC).contains(&allocator) && size <= 512
}

/// Bytes a block takes on a device: allocators of devices give multiples of this.
fn on_device(size: u64) -> u64 {
    size.max(1).saturating_add(511) & !511
}

/// Where the memory of a block ends, by its class.
fn end_of(address: u64, class: u32) -> u64 {
    address.wrapping_add(u64::from(class >> 1).max(1) << 4)
}

/// Bytes a fresh block takes.
fn extent(allocator: u8, size: u64) -> u64 {
    match allocator {
        kind::MMAP | kind::MREMAP => size.saturating_add(4095) & !4095,
        kind::DEVICE_ALLOCATION => on_device(size),
        _ if is_small_object(allocator, size) => size.div_ceil(16).max(1) * 16,
        _ => size.saturating_add(8).div_ceil(16).max(2).saturating_mul(16),
    }
}
