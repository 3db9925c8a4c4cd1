//! The slots a writer writes into: taken from the file, mapped, begun and handed over. Must never wait; without a slot events are counted as lost.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stormlog_capture::layout::{SLOT_HEADER, SLOT_MAGIC, SLOT_SIZE, slot};
use stormlog_capture::record::MAX_RECORD;

use super::{OVERHANG, Writer};
use crate::logical_clock::LogicalTime;
use crate::session;
use crate::sys;

/// Events between two attempts to get a slot, while there is no room for one.
const RETRY_AFTER: u32 = 1024;
/// Disk space for the first slot of a thread: most threads need little.
const FIRST_RESERVE: usize = 8192;
/// A thread that filled this many slots gets several at a time from then on: the system calls cost as much for one.
const BUSY_AFTER: u64 = 8;
const SLOTS_AT_A_TIME: u32 = 4;

impl Writer {
    /// Where the mapped slots begin, and their bytes.
    pub fn mapping(&self) -> (usize, usize) {
        (self.mapping as usize, self.mapped as usize * SLOT_SIZE)
    }

    /// Hands the slot over as complete.
    pub fn seal(&mut self) {
        if !self.cursor.is_null() {
            self.cursor = null_mut();
            self.limit = null_mut();
            session::give_slot(self.index);
        }
    }

    /// Hands the slot over and those that were not begun back: the thread has no more to say.
    pub fn close(&mut self) {
        self.seal();
        for ahead in 1..=self.spare {
            session::return_slot(self.index + ahead);
        }
        self.spare = 0;
    }

    /// Gives the mapping back; nothing can be written until the next slot.
    pub fn unmap(&mut self) {
        if !self.mapping.is_null() {
            sys::unmap(self.mapping, self.mapped as usize * SLOT_SIZE);
            (self.mapping, self.base, self.mapped) = (null_mut(), null_mut(), 0);
        }
    }

    pub(super) fn room_for(&mut self, payload: usize) -> bool {
        let needed = MAX_RECORD + payload + OVERHANG;
        let fits = |writer: &Self| {
            !writer.cursor.is_null() && {
                // SAFETY: `begin_slot` sets `cursor` to `base`, and writing moves it only within the mapped slot.
                let used = unsafe { writer.cursor.offset_from(writer.base) } as usize;
                used + needed <= writer.reserved as usize
            }
        };
        fits(self)
            || (self.extend() && fits(self))
            || (self.next_slot() && (fits(self) || (self.extend() && fits(self))))
    }

    /// Takes a slot for the records to come. Called once every few thousand records.
    #[cold]
    #[inline(never)]
    pub(super) fn next_slot(&mut self) -> bool {
        if self.extend() {
            return true;
        }
        self.seal();
        if self.events_until_retry > 0 {
            self.events_until_retry -= 1;
            session::lost(1);
            return false;
        }
        if self.map_slot() {
            return true;
        }
        self.events_until_retry = RETRY_AFTER;
        self.gaps = self.gaps.wrapping_add(1);
        session::lost(1);
        false
    }

    /// Gets disk space for all of a slot that began with less. False: it has that already, or there is none.
    fn extend(&mut self) -> bool {
        if self.cursor.is_null()
            || self.reserved as usize == SLOT_SIZE
            || !session::reserve_slot(self.index, self.reserved as usize, SLOT_SIZE)
        {
            return false;
        }
        self.set_reserved(SLOT_SIZE);
        true
    }

    fn set_reserved(&mut self, bytes: usize) {
        self.reserved = bytes as u32;
        // SAFETY: callers pass at most SLOT_SIZE, the mapped length from `base`, and at least MAX_RECORD + OVERHANG.
        self.limit = unsafe { self.base.add(bytes - MAX_RECORD - OVERHANG) };
    }

    fn map_slot(&mut self) -> bool {
        if self.spare > 0 {
            self.spare -= 1;
            self.index += 1;
            // SAFETY: `spare` counts the mapped slots after this one, and was above 0.
            self.base = unsafe { self.base.add(SLOT_SIZE) };
            self.begin_slot(SLOT_SIZE);
            return true;
        }
        // Of a bounded file every slot that a thread holds is one that others wait for.
        let is_busy = !self.first && self.sequence >= BUSY_AFTER && session::options().max == 0;
        let many = is_busy && self.map(SLOTS_AT_A_TIME, SLOT_SIZE);
        let reserve = if self.first { FIRST_RESERVE } else { SLOT_SIZE };
        if !many && !self.map(1, reserve) {
            return false;
        }
        self.first = false;
        self.begin_slot(reserve);
        true
    }

    /// Takes and maps slots, with this many bytes of each on disk.
    fn map(&mut self, slots: u32, reserve: usize) -> bool {
        let bytes = slots as usize * SLOT_SIZE;
        let place = if self.mapped == slots { self.mapping } else { null_mut() };
        let Some((index, mapping)) = session::take_slots(slots, reserve, place) else { return false };
        if place.is_null() {
            self.unmap();
        }
        if reserve == SLOT_SIZE {
            sys::populate(mapping, bytes);
        }
        (self.mapping, self.mapped, self.spare) = (mapping, slots, slots - 1);
        (self.base, self.index) = (mapping, index);
        for ahead in 1..slots as usize {
            // SAFETY: the slots are mapped and, by the directory, this thread's alone.
            unsafe { mark(mapping.add(ahead * SLOT_SIZE)) }.store(0, Ordering::Release);
        }
        true
    }

    /// Begins a chunk at `base`, of whose slot `reserve` bytes are on disk.
    fn begin_slot(&mut self, reserve: usize) {
        let base = self.base;
        // SAFETY: the slot is mapped and, by the directory, this thread's alone. The mark goes last: a reader takes nothing before it.
        unsafe {
            mark(base).store(0, Ordering::Release);
            base.add(slot::STREAM).cast::<u32>().write(self.stream);
            base.add(slot::SEQUENCE).cast::<u64>().write(self.sequence);
            (*base.add(slot::COMMITTED).cast::<AtomicU64>()).store(0, Ordering::Relaxed);
            base.add(slot::THREAD).cast::<u64>().write(self.thread);
            base.add(slot::FIRST_NODE).cast::<u32>().write(self.next_node);
            mark(base).store(SLOT_MAGIC, Ordering::Release);
            self.cursor = base.add(SLOT_HEADER);
        }
        self.set_reserved(reserve);
        self.sequence += 1;
        (self.last_address, self.last_native_address, self.last_python, self.last_native) = (0, 0, 0, 0);
        (self.last_microseconds, self.logical_time) = (0, LogicalTime::NEVER);
    }
}

/// What says that a chunk begins.
///
/// # Safety
/// `base` is a mapped slot, which stays mapped while the reference lives.
unsafe fn mark<'a>(base: *mut u8) -> &'a AtomicU32 {
    // SAFETY: the caller guarantees that `base` is a slot that stays mapped; the field is aligned and only used as an
    // atomic.
    unsafe { &*base.add(slot::MAGIC).cast::<AtomicU32>() }
}
