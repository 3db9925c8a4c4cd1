//! The living blocks by address. Most blocks die young: the last ones lie in a small table that stays in the processor's cache, and only what
//! is pushed out of it goes into the large one. Must be the one or the other, never both.

use rustc_hash::FxHashMap;

use crate::state::Block;

const NEAR_BITS: u32 = 12;
/// No site has this number: nobody lies there.
const NOBODY: Block = Block { size: 0, site: u32::MAX, born: 0 };

/// All blocks that live.
#[derive(Debug)]
pub(crate) struct Blocks {
    near: Vec<Near>,
    far: FxHashMap<u64, Block>,
}

/// A place of the small table: half a line of the cache.
#[derive(Debug, Clone)]
#[repr(align(32))]
struct Near {
    address: u64,
    block: Block,
    /// Blocks of this place that lie in the large table: mostly none, and then nobody looks there.
    pushed_out: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        let near = Near { address: 0, block: NOBODY, pushed_out: 0 };
        Blocks { near: vec![near; 1 << NEAR_BITS], far: FxHashMap::default() }
    }
}

impl Blocks {
    /// A block comes; gives the one that lay there, if any.
    #[inline(always)]
    pub(crate) fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        let near = &mut self.near[place(address)];
        let other = std::mem::replace(&mut near.address, address);
        let old = std::mem::replace(&mut near.block, block);
        if old.site != NOBODY.site && other == address {
            return Some(old);
        }
        if old.site == NOBODY.site && near.pushed_out == 0 {
            return None;
        }
        near.exchange(&mut self.far, address, (other, old))
    }

    /// A block goes.
    #[inline(always)]
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        let near = &mut self.near[place(address)];
        if near.address == address && near.block.site != NOBODY.site {
            return Some(std::mem::replace(&mut near.block, NOBODY));
        }
        if near.pushed_out == 0 { None } else { near.take(&mut self.far, address) }
    }

    /// Is there one?
    pub(crate) fn contains(&self, address: u64) -> bool {
        let near = &self.near[place(address)];
        (near.address == address && near.block.site != NOBODY.site) || self.far.contains_key(&address)
    }

    /// Makes room for so many.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.far.reserve(count);
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Block)> {
        let near = self.near.iter().filter(|near| near.block.site != NOBODY.site);
        near.map(|near| (near.address, &near.block)).chain(self.far.iter().map(|(at, block)| (*at, block)))
    }
}

impl Near {
    /// Takes a block of this place out of the large table.
    #[inline(never)]
    fn take(&mut self, far: &mut FxHashMap<u64, Block>, address: u64) -> Option<Block> {
        let taken = far.remove(&address);
        self.pushed_out -= u32::from(taken.is_some());
        taken
    }

    /// The same, and puts the block in that lay in the small table, if any.
    #[inline(never)]
    fn exchange(
        &mut self,
        far: &mut FxHashMap<u64, Block>,
        address: u64,
        (other, old): (u64, Block),
    ) -> Option<Block> {
        let taken = if self.pushed_out == 0 { None } else { self.take(far, address) };
        if old.site != NOBODY.site {
            far.insert(other, old);
            self.pushed_out += 1;
        }
        taken
    }
}

#[inline]
fn place(address: u64) -> usize {
    ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NEAR_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as one plain table, whatever is pushed out when.
        #[test]
        fn as_one_table(turns in prop::collection::vec((0u64..3000, any::<bool>()), 0..4000)) {
            let mut blocks = Blocks::default();
            let mut plain: FxHashMap<u64, u64> = FxHashMap::default();
            for (number, (address, is_free)) in turns.into_iter().enumerate() {
                let (address, size) = (address * 16, number as u64);
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
