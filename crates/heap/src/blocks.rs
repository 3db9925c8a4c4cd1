//! Live blocks by address: a hash table whose buckets are cache lines of two entries, grown with the number of blocks; a block that
//! finds its bucket full is kept in an overflow map. Must never have an address in both.

use rustc_hash::FxHashMap;

use crate::ledger::Block;

/// Lines at first, and at most: of more living blocks than fit, the older ones are in the map.
const FIRST: u64 = 1 << 11;
const MOST: u64 = 1 << 18;
/// No site has this number: the place is empty.
const VACANT: Block = Block { size: 0, site: u32::MAX, born: 0 };

/// All blocks that live.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// A power of two, and one more: there is a block that was found in the map while it is looked at.
    lines: Vec<Line>,
    /// Their number without that one, less 1.
    mask: u64,
    far: FxHashMap<u64, Block>,
}

/// A line of the cache.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line {
    held: [Held; 2],
    /// Blocks of this line that are in the map: mostly none, and then the map is not searched.
    pushed_out: u32,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    address: u64,
    block: Block,
}

impl Held {
    /// The block at this address, not one that was there before.
    #[inline(always)]
    fn is_at(&self, address: u64) -> bool {
        (self.address == address) & !self.is_vacant()
    }

    #[inline(always)]
    fn is_vacant(&self) -> bool {
        self.block.site == VACANT.site
    }

    #[inline(always)]
    fn leave(&mut self) -> Block {
        let block = self.block;
        self.block.site = VACANT.site;
        block
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { lines: lines(FIRST), mask: FIRST - 1, far: FxHashMap::default() }
    }
}

impl Blocks {
    /// Inserts a block; returns the one that was at this address, if any.
    #[inline(always)]
    pub(crate) fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        let line = &mut self.lines[place(address, self.mask)];
        let [one, other] = &line.held;
        // Without branches: which of the two entries is vacant is unpredictable.
        let is_plain = (one.is_vacant() | other.is_vacant())
            & !(one.is_at(address) | other.is_at(address))
            & (line.pushed_out == 0);
        if !is_plain {
            let Block { size, site, born } = block;
            return self.insert_slowly(address, size, site, born);
        }
        let held = &mut line.held[usize::from(!one.is_vacant())];
        held.address = address;
        (held.block.size, held.block.site, held.block.born) = (block.size, block.site, block.born);
        None
    }

    /// A block goes.
    #[inline(always)]
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        let line = &mut self.lines[place(address, self.mask)];
        let which = usize::from(line.held[1].is_at(address));
        if line.held[which].is_at(address) {
            return Some(line.held[which].leave());
        }
        // Brought to where it is read like the others.
        if !self.bring(address) {
            return None;
        }
        self.lines.last_mut().map(|line| line.held[0].leave())
    }

    /// Is there one?
    pub(crate) fn contains(&self, address: u64) -> bool {
        let line = &self.lines[place(address, self.mask)];
        line.held.iter().any(|held| held.is_at(address)) || self.far.contains_key(&address)
    }

    /// Makes room for this many.
    pub(crate) fn reserve(&mut self, count: usize) {
        let wanted = (count as u64).next_power_of_two().clamp(self.mask + 1, MOST);
        if wanted > self.mask + 1 {
            self.widen(wanted);
        }
        self.far.reserve(count.saturating_sub(wanted as usize));
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Block)> {
        let near = self.lines.iter().flat_map(|line| &line.held).filter(|held| !held.is_vacant());
        near.map(|held| (held.address, &held.block)).chain(self.far.iter().map(|(at, block)| (*at, block)))
    }

    #[cold]
    #[inline(never)]
    fn bring(&mut self, address: u64) -> bool {
        let line = &mut self.lines[place(address, self.mask)];
        if line.pushed_out == 0 {
            return false;
        }
        let Some(block) = self.far.remove(&address) else { return false };
        line.pushed_out -= 1;
        if let Some(last) = self.lines.last_mut() {
            last.held[0] = Held { address, block };
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn insert_slowly(&mut self, address: u64, size: u64, site: u32, born: u32) -> Option<Block> {
        let block = Block { size, site, born };
        let old = self.remove(address);
        let line = &mut self.lines[place(address, self.mask)];
        if let Some(vacant) = line.held.iter_mut().find(|held| held.is_vacant()) {
            *vacant = Held { address, block };
            return old;
        }
        // The younger ones are freed sooner, mostly.
        let [younger, older] = line.held;
        line.held = [Held { address, block }, younger];
        line.pushed_out += 1;
        self.far.insert(older.address, older.block);
        if self.far.len() > self.lines.len() / 16 && self.mask + 1 < MOST {
            self.widen(2 * (self.mask + 1));
        }
        old
    }

    fn widen(&mut self, count: u64) {
        let held = std::mem::replace(&mut self.lines, lines(count));
        let far = std::mem::take(&mut self.far);
        self.mask = count - 1;
        let held = held.into_iter().flat_map(|line| line.held).filter(|held| !held.is_vacant());
        for (address, block) in far.into_iter().chain(held.map(|held| (held.address, held.block))) {
            let line = &mut self.lines[place(address, self.mask)];
            match line.held.iter_mut().find(|held| held.is_vacant()) {
                Some(vacant) => *vacant = Held { address, block },
                None => {
                    line.pushed_out += 1;
                    self.far.insert(address, block);
                }
            }
        }
    }
}

fn lines(count: u64) -> Vec<Line> {
    let held = [Held { address: 0, block: VACANT }; 2];
    vec![Line { held, pushed_out: 0 }; count as usize + 1]
}

/// The line of an address. Adjacent addresses map to adjacent lines.
#[inline(always)]
fn place(address: u64, mask: u64) -> usize {
    let region = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    ((region ^ (address >> 5 & 15)) & mask) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The same as one plain table, whatever is pushed out when.
        #[test]
        fn as_one_table(turns in prop::collection::vec((0u64..30_000, any::<bool>()), 0..40_000), spread in 0u32..12) {
            let mut blocks = Blocks::default();
            let mut plain: FxHashMap<u64, u64> = FxHashMap::default();
            for (number, (address, is_free)) in turns.into_iter().enumerate() {
                let (address, size) = (address << spread, number as u64);
                let (got, expected) = if is_free {
                    (blocks.remove(address), plain.remove(&address))
                } else {
                    (blocks.insert(address, Block { size, site: 0, born: 0 }), plain.insert(address, size))
                };
                prop_assert_eq!(got.map(|block| block.size), expected);
                prop_assert_eq!(blocks.contains(address), !is_free);
            }
            prop_assert_eq!(blocks.len(), plain.len());
            prop_assert!(blocks.iter().all(|(address, block)| plain[&address] == block.size));
        }
    }
}
