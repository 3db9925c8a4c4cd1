//! Interning: values stored once in a list and found by value; and the map from one stream's ids, which are mostly consecutive, to ours.
//!
//! A capture may have a hundred thousand stacks, so neither may keep a second copy of what it finds.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Places in a list, found by the values there: four bytes an entry.
#[derive(Debug, Default)]
pub(crate) struct Ids(HashTable<u32>);

impl Ids {
    /// The place of `key`; where it has none, the next one, and then `list` must grow by it.
    #[inline]
    pub(crate) fn place<T, K: Hash + Eq>(&mut self, list: &[T], key: K, key_of: impl Fn(&T) -> K) -> u32 {
        self.place_or(list, key, key_of, list.len() as u32)
    }

    /// All values of a list but the first, which is the empty value; of equal ones the first counts.
    pub(crate) fn of<T: Copy + Hash + Eq>(list: &[T]) -> Self {
        let mut ids = Ids::default();
        for (place, value) in list.iter().enumerate().skip(1) {
            ids.place_or(list, *value, |value| *value, place as u32);
        }
        ids
    }

    #[inline]
    fn place_or<T, K: Hash + Eq>(&mut self, list: &[T], key: K, key_of: impl Fn(&T) -> K, new: u32) -> u32 {
        let hash = |key: &K| FxBuildHasher.hash_one(key);
        let at = |place: &u32| key_of(&list[*place as usize]);
        *self.0.entry(hash(&key), |place| at(place) == key, |place| hash(&at(place))).or_insert(new).get()
    }
}

/// What a stream's own numbers stand for.
#[derive(Debug)]
pub(crate) struct IdMap {
    /// From 0 on, which is nothing on both sides.
    next: Vec<u32>,
    /// Numbers that followed a gap.
    apart: FxHashMap<u32, u32>,
    /// All stand for themselves.
    is_same: bool,
}

impl Default for IdMap {
    fn default() -> Self {
        IdMap { next: vec![0], apart: FxHashMap::default(), is_same: false }
    }
}

impl IdMap {
    /// Numbers that stand for themselves.
    pub(crate) fn the_same() -> Self {
        IdMap { is_same: true, ..IdMap::default() }
    }

    #[inline]
    pub(crate) fn get(&self, own: u32) -> Option<u32> {
        match self.next.get(own as usize) {
            _ if self.is_same => Some(own),
            Some(value) => Some(*value),
            None => self.apart.get(&own).copied(),
        }
    }

    pub(crate) fn insert(&mut self, own: u32, value: u32) {
        let length = self.next.len();
        match self.next.get_mut(own as usize) {
            Some(place) => *place = value,
            None if own as usize == length => self.next.push(value),
            None => {
                self.apart.insert(own, value);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.next.len() + self.apart.len()
    }

    /// Own numbers and what they stand for, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut apart: Vec<(u32, u32)> = self.apart.iter().map(|(own, value)| (*own, *value)).collect();
        apart.sort_unstable();
        self.next.iter().enumerate().map(|(own, value)| (own as u32, *value)).chain(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_a_place() {
        let mut list: Vec<(u32, char)> = Vec::new();
        let mut ids = Ids::default();
        for (value, place) in [((1, 'a'), 0), ((1, 'b'), 1), ((1, 'a'), 0), ((2, 'a'), 2)] {
            assert_eq!(ids.place(&list, value, |value| *value), place);
            if place as usize == list.len() {
                list.push(value);
            }
        }
        assert_eq!(Ids::of(&list).place(&list, (1, 'b'), |value| *value), 1);
    }

    #[test]
    fn a_gap_costs_no_room() {
        let mut known = IdMap::default();
        for own in [1, 4_000_000_000, 2, 1] {
            known.insert(own, own.wrapping_add(5));
        }
        assert_eq!(
            (known.get(4_000_000_000), known.get(2), known.get(3)),
            (Some(4_000_000_005), Some(7), None)
        );
        assert_eq!(known.iter().map(|(own, _)| own).collect::<Vec<_>>(), [0, 1, 2, 4_000_000_000]);
        assert_eq!((known.len(), known.get(0)), (4, Some(0)));
    }
}
