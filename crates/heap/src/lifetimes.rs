//! When blocks were allocated and freed, at the resolution of a few moments: for each allocation site, how much came before and went before each.
//! From it follow the heap at each moment, and what a span between two of them left behind.
//!
//! A moment is the number of a change of the heap, so it is exactly where the first reading found a maximum. Must stay bounded: when
//! there are too many, every second moment is dropped.

use rustc_hash::FxHashMap;

use crate::ledger::Ledger;
use crate::level::Amount;

/// More than this is not distinguished.
const MOST: usize = 1 << 20;

/// Blocks that came and went between the same moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) site: u32,
    /// First moment at which they are there.
    pub(crate) birth: u32,
    /// First moment at which they are gone; the number of moments when they never went.
    pub(crate) death: u32,
    pub(crate) amount: Amount,
}

/// The lives so far.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Changes after which to look, ascending.
    moments: Vec<u64>,
    /// Moments that are past.
    pub(crate) step: u32,
    /// Every 2^coarse-th moment is kept.
    coarse: u32,
    ended: FxHashMap<(u32, u32, u32), Amount>,
}

impl Lives {
    pub(crate) fn new(moments: &[u64]) -> Self {
        Lives { moments: moments.to_vec(), ..Lives::default() }
    }

    /// The change that is about to happen has this number; gives the next moment to come.
    pub(crate) fn pass(&mut self, change: u64) -> u64 {
        while self.moments.get(self.step as usize).is_some_and(|moment| *moment < change) {
            self.step += 1;
        }
        self.next()
    }

    pub(crate) fn next(&self) -> u64 {
        self.moments.get(self.step as usize).copied().unwrap_or(u64::MAX)
    }

    /// Something that came at `birth` goes now.
    #[inline]
    pub(crate) fn end(&mut self, site: u32, birth: u32, amount: Amount) {
        if birth == self.step {
            return;
        }
        let (birth, death) = (self.kept(birth), self.kept(self.step));
        if birth == death {
            return;
        }
        self.ended.entry((site, birth, death)).or_default().gain(amount);
        while self.ended.len() > MOST && self.moments.len() >> self.coarse > 2 {
            self.give_up_half();
        }
    }

    /// A moment's number among those that are kept: the first kept one that is not before it.
    fn kept(&self, moment: u32) -> u32 {
        (moment + (1 << self.coarse) - 1) >> self.coarse
    }

    fn give_up_half(&mut self) {
        self.coarse += 1;
        for ((site, birth, death), amount) in std::mem::take(&mut self.ended) {
            let (birth, death) = (birth.div_ceil(2), death.div_ceil(2));
            if birth < death {
                self.ended.entry((site, birth, death)).or_default().gain(amount);
            }
        }
    }

    /// The moments that were kept, as places in the list that was requested.
    pub(crate) fn moments(&self) -> Vec<usize> {
        (0..self.moments.len()).step_by(1 << self.coarse).collect()
    }

    /// All lives, those that never ended included.
    pub(crate) fn all(&self, ledger: &Ledger) -> Vec<Life> {
        let last = self.moments().len() as u32;
        let mut open: FxHashMap<(u32, u32), Amount> = FxHashMap::default();
        let mut live = |site: u32, birth: u32, amount: Amount| {
            let birth = self.kept(birth);
            if birth < last {
                open.entry((site, birth)).or_default().gain(amount);
            }
        };
        for (_, block) in ledger.blocks.iter() {
            live(block.site, block.born >> 1, ledger.weights.amount(block.size));
        }
        for mapping in ledger.mappings.ranges.values() {
            live(mapping.site, mapping.step, Amount { bytes: mapping.bytes, count: mapping.count });
        }
        if let Some(before) = &ledger.before {
            live(before.site, before.step, Amount { bytes: before.bytes, count: 0 });
        }
        let open = open.into_iter().map(|((site, birth), amount)| Life { site, birth, death: last, amount });
        // What went after the last kept moment was there at it.
        let ended = self.ended.iter();
        let ended = ended.map(|(&(site, birth, death), &amount)| Life {
            site,
            birth,
            death: death.min(last),
            amount,
        });
        let mut all: Vec<Life> = open.chain(ended).filter(|life| life.birth < life.death).collect();
        all.sort_unstable_by_key(|life| (life.site, life.birth, life.death));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_moments_keeps_what_is_seen_at_the_others() {
        let mut lives = Lives::new(&[10, 20, 30, 40]);
        let amount = Amount { bytes: 8, count: 1 };
        assert_eq!(lives.pass(11), 20);
        let birth = lives.step;
        lives.pass(35);
        lives.end(1, birth, amount);
        lives.end(1, lives.step, amount);
        assert_eq!(lives.ended.keys().copied().collect::<Vec<_>>(), [(1, 1, 3)]);
        lives.give_up_half();
        assert_eq!(lives.moments(), [0, 2]);
        // Seen at 30, the second of the two that are left, and at no other.
        assert_eq!(lives.ended.keys().copied().collect::<Vec<_>>(), [(1, 1, 2)]);
    }
}
