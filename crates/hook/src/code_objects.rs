//! Which code objects of Python have been written, and under which id. Must never give an id whose definition is not in the file, and never
//! leave one out without counting it.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::session;
use crate::sys;

/// A slot whose code object has died.
const GONE: usize = 1;
/// Slots of the first table.
const FIRST: usize = 4096;

struct TableSlot {
    code: AtomicUsize,
    id: AtomicU32,
    /// Not 0: the death of this code object is not reported, so it is recognised by its fingerprint.
    looks: AtomicU32,
}

/// One table; a bigger one replaces it, but it is not unmapped while a thread may read it.
struct Table {
    capacity: usize,
    used: AtomicUsize,
    previous: *mut Table,
}

/// Code object → id, for the whole process. All zeroes is an empty one.
#[repr(C)]
pub struct Codes {
    table: AtomicPtr<Table>,
    lock: AtomicU32,
    next: AtomicU32,
    /// Incremented when a code object dies: what was cached by its address is then invalid.
    generation: AtomicU32,
}

/// What an unwatched code object looks like now, and whether it could be watched this time.
#[derive(Clone, Copy)]
pub struct Recheck {
    pub watched: bool,
    pub looks: u32,
}

/// How a code object that dies will be noticed.
#[derive(Clone, Copy)]
pub enum DeathNotice {
    /// Python reports it.
    FromPython,
    /// By comparing what it looks like.
    ByLooks(u32),
}

impl Codes {
    /// Forgets everything; only while nothing is recorded.
    pub fn clear(&self) {
        // Python reports a code object's death at any time, recording or not.
        self.alone(|| {
            let mut table = self.table.swap(null_mut(), Ordering::AcqRel);
            // SAFETY: no thread reads tables without the lock while nothing is recorded; each was mapped with its capacity.
            while let Some(old) = unsafe { table.as_ref() } {
                let previous = old.previous;
                sys::unmap(table.cast(), bytes(old.capacity));
                table = previous;
            }
        });
        self.next.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// What is cached by address is invalid when this has changed; unwatched code objects must be looked up each time.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The id of the code object at `code`, and whether its death is not reported. Where there is none, `define` writes its definition
    /// under a new id, or gives it one that needs no definition, before anyone sees the id, and says how its death will be noticed. `again` is asked for one that was unwatched.
    #[inline]
    pub fn id(
        &self,
        code: usize,
        again: impl FnOnce() -> Recheck,
        define: impl FnOnce(u32) -> Option<(u32, DeathNotice)>,
    ) -> Option<(u32, bool)> {
        match self.find(code) {
            Some(slot) if slot.looks.load(Ordering::Relaxed) == 0 => {
                Some((slot.id.load(Ordering::Relaxed), false))
            }
            Some(slot) => self.unwatched(code, slot, again(), define),
            None => self.add(code, define),
        }
    }

    #[cold]
    fn unwatched(
        &self,
        code: usize,
        slot: &TableSlot,
        now: Recheck,
        define: impl FnOnce(u32) -> Option<(u32, DeathNotice)>,
    ) -> Option<(u32, bool)> {
        if slot.looks.load(Ordering::Relaxed) != now.looks.max(1) {
            self.forget(code);
            return self.add(code, define);
        }
        if now.watched {
            slot.looks.store(0, Ordering::Relaxed);
        }
        Some((slot.id.load(Ordering::Relaxed), !now.watched))
    }

    #[inline]
    fn find(&self, code: usize) -> Option<&TableSlot> {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: a published table stays mapped while anything is recorded.
        let capacity = unsafe { table.as_ref() }?.capacity;
        let mut at = hash(code) & (capacity - 1);
        loop {
            // SAFETY: the table has `capacity` slots, and `at` is below it: masked with capacity - 1 or counted up to it.
            let slot = unsafe { &*slots(table).add(at) };
            match slot.code.load(Ordering::Acquire) {
                0 => return None,
                found if found == code => return Some(slot),
                _ => at = (at + 1) & (capacity - 1),
            }
        }
    }

    #[cold]
    fn add(
        &self,
        code: usize,
        define: impl FnOnce(u32) -> Option<(u32, DeathNotice)>,
    ) -> Option<(u32, bool)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (id, watched) = define(id)?;
        let looks = match watched {
            DeathNotice::FromPython => 0,
            DeathNotice::ByLooks(looks) => looks.max(1),
        };
        self.alone(|| {
            // Another thread may have been quicker: both definitions are right.
            if let Some(known) = self.find(code) {
                if looks == 0 {
                    known.looks.store(0, Ordering::Relaxed);
                }
                return Some((known.id.load(Ordering::Relaxed), known.looks.load(Ordering::Relaxed) != 0));
            }
            let Some(table) = self.with_room() else {
                // The definition is in the file, but it could not be found again: the frame is left out of the stack.
                session::lost(1);
                return None;
            };
            // SAFETY: the table is mapped and has room; only the holder of the lock adds to it.
            unsafe { put(table, code, id, looks) };
            Some((id, looks != 0))
        })
    }

    /// A table that takes one more: the last slots of one that cannot grow are slow to find, but usable.
    fn with_room(&self) -> Option<*mut Table> {
        let table = self.table.load(Ordering::Relaxed);
        // SAFETY: null or a published table; `clear`, which alone unmaps tables, waits for the lock that is held here.
        let (used, capacity) = unsafe { table.as_ref() }
            .map_or((0, 0), |table| (table.used.load(Ordering::Relaxed), table.capacity));
        if used * 4 < capacity * 3 {
            return Some(table);
        }
        // An empty slot is left, so that a search for a missing entry ends.
        self.grow(table).or_else(|| (used + 1 < capacity).then_some(table))
    }

    fn grow(&self, old: *mut Table) -> Option<*mut Table> {
        // SAFETY: null or a published table; `clear`, which alone unmaps tables, waits for the lock that is held here.
        let capacity = unsafe { old.as_ref() }.map_or(FIRST, |old| old.capacity * 2);
        let table = sys::map_private(bytes(capacity)).cast::<Table>();
        if table.is_null() {
            return None;
        }
        // SAFETY: a fresh mapping of the right length; zeroed slots are empty ones.
        unsafe {
            table.write(Table { capacity, used: AtomicUsize::new(0), previous: old });
            if let Some(known) = old.as_ref() {
                for at in 0..known.capacity {
                    let slot = &*slots(old).add(at);
                    let code = slot.code.load(Ordering::Relaxed);
                    if code > GONE {
                        put(table, code, slot.id.load(Ordering::Relaxed), slot.looks.load(Ordering::Relaxed));
                    }
                }
            }
        }
        self.table.store(table, Ordering::Release);
        Some(table)
    }

    /// The code object at `code` dies; its address may soon be another's.
    pub fn forget(&self, code: usize) {
        let known = self.alone(|| {
            let table = self.table.load(Ordering::Relaxed);
            // SAFETY: null or a published table; `clear`, which alone unmaps tables, waits for the lock that is held here.
            let Some(capacity) = unsafe { table.as_ref() }.map(|t| t.capacity) else { return false };
            let mut at = hash(code) & (capacity - 1);
            loop {
                // SAFETY: the table has `capacity` slots, and `at` is below it: masked with capacity - 1 or counted up to it.
                let slot = unsafe { &*slots(table).add(at) };
                match slot.code.load(Ordering::Relaxed) {
                    0 => return false,
                    found if found == code => {
                        slot.code.store(GONE, Ordering::Release);
                        return true;
                    }
                    _ => at = (at + 1) & (capacity - 1),
                }
            }
        });
        if known {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Every code object has died.
    pub fn forget_all(&self) {
        self.alone(|| {
            let table = self.table.load(Ordering::Relaxed);
            // SAFETY: null or a published table; `clear`, which alone unmaps tables, waits for the lock that is held here.
            let capacity = unsafe { table.as_ref() }.map_or(0, |t| t.capacity);
            for at in 0..capacity {
                // SAFETY: the table has `capacity` slots, and `at` is below it: masked with capacity - 1 or counted up to it.
                let slot = unsafe { &*slots(table).add(at) };
                if slot.code.load(Ordering::Relaxed) != 0 {
                    slot.code.store(GONE, Ordering::Release);
                }
            }
        });
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The lock is only ever held for a few memory accesses (and one mapping when the table grows).
    fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        while self.lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            sys::give_way();
        }
        let result = work();
        self.lock.store(0, Ordering::Release);
        result
    }
}

/// # Safety
/// `table` is mapped, has an empty slot, and the lock is held.
unsafe fn put(table: *mut Table, code: usize, id: u32, looks: u32) {
    // SAFETY: the caller guarantees that `table` is mapped and has an empty slot, and that the lock is held.
    unsafe {
        let capacity = (*table).capacity;
        let mut at = hash(code) & (capacity - 1);
        while (*slots(table).add(at)).code.load(Ordering::Relaxed) != 0 {
            at = (at + 1) & (capacity - 1);
        }
        let slot = &*slots(table).add(at);
        slot.id.store(id, Ordering::Relaxed);
        slot.looks.store(looks, Ordering::Relaxed);
        slot.code.store(code, Ordering::Release);
        (*table).used.fetch_add(1, Ordering::Relaxed);
    }
}

/// # Safety
/// `table` is mapped.
unsafe fn slots(table: *mut Table) -> *mut TableSlot {
    // SAFETY: the slots are behind the table's head in the same mapping.
    unsafe { table.add(1).cast() }
}

const fn bytes(capacity: usize) -> usize {
    size_of::<Table>() + capacity * size_of::<TableSlot>()
}

#[inline(always)]
const fn hash(code: usize) -> usize {
    let mixed = (code as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Codes {
        // SAFETY: all fields are atomics, for which all zeroes is a value (an empty table).
        unsafe { core::mem::zeroed() }
    }

    fn watched(id: u32) -> Option<(u32, DeathNotice)> {
        Some((id, DeathNotice::FromPython))
    }

    fn never() -> Recheck {
        panic!("a watched code object is not looked at")
    }

    #[test]
    fn ids_are_kept_forgotten_and_given_again() {
        let codes = none();
        for round in 0..2 {
            for code in 1..10_000_usize {
                let define = |id| (round == 0).then_some((id, DeathNotice::FromPython));
                assert_eq!(codes.id(code * 64, never, define), Some((code as u32 - 1, false)));
            }
        }
        assert_eq!(codes.id(7, never, |_| None), None, "no id without a definition");
        let before = codes.generation();
        codes.forget(64 * 5);
        assert_ne!(codes.generation(), before);
        let (renewed, _) = codes.id(64 * 5, never, watched).unwrap();
        assert!(renewed >= 10_000);
        assert_eq!(codes.id(64 * 5, never, |_| None), Some((renewed, false)));
        let before = codes.generation();
        codes.forget_all();
        assert_ne!(codes.generation(), before);
        assert_eq!(codes.id(64 * 7, never, |_| None), None);
        codes.clear();
        assert_eq!(codes.id(64, never, |_| None), None);
    }

    #[test]
    fn an_unwatched_code_object_is_known_by_its_looks_until_it_is_watched() {
        let codes = none();
        let looks = |looks| move || Recheck { watched: false, looks };
        let (first, unwatched) = codes.id(64, never, |id| Some((id, DeathNotice::ByLooks(9)))).unwrap();
        assert!(unwatched);
        assert_eq!(codes.id(64, looks(9), |_| None), Some((first, true)));
        let before = codes.generation();
        let (second, _) = codes.id(64, looks(8), |id| Some((id, DeathNotice::ByLooks(8)))).unwrap();
        assert_ne!(second, first, "another one at that address");
        assert_ne!(codes.generation(), before);
        let now_watched = || Recheck { watched: true, looks: 8 };
        assert_eq!(codes.id(64, now_watched, |_| None), Some((second, false)));
        assert_eq!(codes.id(64, never, |_| None), Some((second, false)), "never looked at again");
        codes.clear();
    }
}
