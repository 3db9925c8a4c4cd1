//! The stack tree of one stream: (parent, what) → node id, in memory of its own. Must never allocate but by growing with one mapping, and never leave a
//! frame out in silence.

use core::ptr::null_mut;

use crate::session;
use crate::sys;

/// Entries of the first table.
const FIRST: usize = 512;

/// A node and what it stands for. Id 0 marks an empty place.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    what: u64,
    parent: u32,
    detail: u32,
    id: u32,
}

/// An open-addressing table of nodes.
#[repr(C)]
pub struct Nodes {
    entries: *mut Entry,
    capacity: usize,
    used: usize,
}

impl Nodes {
    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        if !self.entries.is_null() {
            sys::unmap(self.entries.cast(), self.capacity * size_of::<Entry>());
        }
        *self = Self { entries: null_mut(), capacity: 0, used: 0 };
    }

    /// The id of the node, which `define` makes where there is none. `None` when it could not be made.
    #[inline]
    pub fn find(
        &mut self,
        parent: u32,
        what: u64,
        detail: u32,
        define: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        // What a full table knows is found although it cannot grow.
        if self.used * 4 >= self.capacity * 3 && !self.grow() && self.capacity == 0 {
            session::lost(1);
            return None;
        }
        let mask = self.capacity - 1;
        let mut place = hash(parent, what, detail) & mask;
        loop {
            // SAFETY: `place` is below the capacity, and there is always an empty place to end at.
            let entry = unsafe { &mut *self.entries.add(place) };
            if entry.id == 0 {
                if self.used + 1 >= self.capacity {
                    session::lost(1);
                    return None;
                }
                let id = define()?;
                *entry = Entry { what, parent, detail, id };
                self.used += 1;
                return Some(id);
            }
            if entry.what == what && entry.parent == parent && entry.detail == detail {
                return Some(entry.id);
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = if self.capacity == 0 { FIRST } else { self.capacity * 2 };
        let entries = sys::map_private(capacity * size_of::<Entry>()).cast::<Entry>();
        if entries.is_null() {
            return false;
        }
        for old in 0..self.capacity {
            // SAFETY: `old` is below the old capacity; the new table has room for twice as many.
            unsafe {
                let entry = *self.entries.add(old);
                if entry.id == 0 {
                    continue;
                }
                let mut place = hash(entry.parent, entry.what, entry.detail) & (capacity - 1);
                while (*entries.add(place)).id != 0 {
                    place = (place + 1) & (capacity - 1);
                }
                *entries.add(place) = entry;
            }
        }
        let used = self.used;
        self.clear();
        *self = Self { entries, capacity, used };
        true
    }
}

#[inline(always)]
const fn hash(parent: u32, what: u64, detail: u32) -> usize {
    let key = what ^ ((parent as u64) << 32 | detail as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = key.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_again_after_growth() {
        let mut nodes = Nodes { entries: null_mut(), capacity: 0, used: 0 };
        for round in 0..2 {
            for id in 1..5000_u32 {
                let found = nodes.find(id / 2, u64::from(id) << 20, id & 7, || (round == 0).then_some(id));
                assert_eq!(found, Some(id));
            }
        }
        nodes.clear();
        assert_eq!(nodes.find(1, 1, 1, || None), None);
        nodes.clear();
    }
}
