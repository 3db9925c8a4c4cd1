//! Writes records into the slot of one thread. Must never wait, allocate or fail the program: what cannot be written is counted.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stormlog_capture::layout::{SLOT_HEADER, SLOT_MAGIC, SLOT_SIZE, SLOTS, slot};
use stormlog_capture::record::{FLAG, MAX_PART, MAX_RECORD, NARROW, WIDE, kind, zigzag};

use crate::clock::{self, Time};
use crate::session;
use crate::sys;

/// Numbers are stored eight bytes at a time, so a record may touch this much behind itself.
const OVERHANG: usize = 8;
/// While there is no room for a slot, every so many events it is tried again.
const RETRY_AFTER: u32 = 1024;
/// Disk space for the first slot of a thread: most threads need little.
const FIRST_RESERVE: usize = 8192;
/// A thread that filled so many slots gets several at a time from then on: the system calls cost as much for one.
const BUSY_AFTER: u64 = 8;
const SLOTS_AT_A_TIME: u32 = 4;

/// The writing end of one stream.
#[repr(C)]
pub struct Writer {
    cursor: *mut u8,
    /// A record may begin before here.
    limit: *mut u8,
    /// The slot; stays mapped when the next one cannot be had.
    base: *mut u8,
    last_address: u64,
    last_python: u32,
    last_native: u32,
    last_native_address: u64,
    time: Time,
    /// Events since the hint about the clock was compared with the clock; that is done when it comes to 0 again.
    unchecked: u8,
    last_microseconds: u64,
    index: u32,
    next_node: u32,
    sequence: u64,
    stream: u32,
    events_until_retry: u32,
    /// Bytes of the slot that have disk space.
    reserved: u32,
    /// The next slot is the first one of its thread.
    first: bool,
    /// Slots that are mapped, one behind the other, and how many of the last are not begun.
    mapping: *mut u8,
    mapped: u32,
    spare: u32,
    /// Kernel thread id.
    pub thread: u64,
    /// Counts the times records were lost: what was remembered about them is void then.
    pub gaps: u32,
}

impl Writer {
    /// Starts stream `stream` from nothing, keeping the mapping if there is one.
    pub fn begin(&mut self, stream: u32) {
        let (mapping, mapped) = (self.mapping, self.mapped);
        *self = Self { mapping, mapped, base: mapping, stream, next_node: 1, ..Self::NOTHING };
    }

    /// The records to come are those of another thread.
    pub fn begin_thread(&mut self, thread: u64) {
        self.thread = thread;
        self.first = true;
    }

    const NOTHING: Self = Self {
        cursor: null_mut(),
        limit: null_mut(),
        base: null_mut(),
        last_address: 0,
        last_python: 0,
        last_native: 0,
        last_native_address: 0,
        time: Time::NEVER,
        unchecked: 0,
        last_microseconds: 0,
        index: 0,
        next_node: 1,
        sequence: 0,
        stream: 0,
        events_until_retry: 0,
        reserved: 0,
        first: true,
        mapping: null_mut(),
        mapped: 0,
        spare: 0,
        thread: 0,
        gaps: 0,
    };

    /// True when a record can be written.
    #[inline(always)]
    pub fn room(&mut self) -> bool {
        self.cursor < self.limit || self.next_slot()
    }

    /// An allocation of `bytes` at `address`.
    #[inline(always)]
    pub fn allocation(&mut self, kind: u8, address: usize, bytes: usize, python: u32, native: u32) {
        if !self.room_and_time() {
            return;
        }
        let (mut c, mut d) = (0, 0);
        if (python, native) != (self.last_python, self.last_native) {
            c = zigzag32(python.wrapping_sub(self.last_python));
            d = zigzag32(native.wrapping_sub(self.last_native));
            (self.last_python, self.last_native) = (python, native);
        }
        self.put_at(kind, address, bytes as u64, c, d);
    }

    /// As [`allocation`](Self::allocation) without a native stack, if it is as plain as it mostly is. False: it was not written.
    #[inline(always)]
    pub fn allocation_again(&mut self, kind: u8, address: usize, bytes: usize, python: u32) -> bool {
        let plain = python == self.last_python
            && self.cursor < self.limit
            && self.unchecked != u8::MAX
            && clock::stands_at(self.time)
            && address & 7 == 0;
        if plain {
            self.unchecked += 1;
            let last = core::mem::replace(&mut self.last_address, address as u64);
            self.put_short(kind, difference(address as u64, last), bytes as u64);
        }
        plain
    }

    /// A record of an address and perhaps a length: the end of a block, in its several forms.
    #[inline(always)]
    pub fn release(&mut self, kind: u8, address: usize, bytes: usize) {
        if self.room_and_time() {
            self.put_at(kind, address, bytes as u64, 0, 0);
        }
    }

    /// A request that got nothing.
    pub fn failed(&mut self, kind_asked: u8, errno: i32, bytes: usize, python: u32, native: u32) {
        if !self.room_and_time() {
            return;
        }
        let c = zigzag32(python.wrapping_sub(self.last_python));
        let d = zigzag32(native.wrapping_sub(self.last_native));
        self.last_python = python;
        self.last_native = native;
        self.put(kind::FAILED, false, u64::from(kind_asked) + ((errno as u64) << 8), bytes as u64, c, d);
    }

    /// Defines the next node: a Python frame. `None` when it could not be written.
    pub fn python_node(&mut self, parent: u32, code: u32, instruction: u32, entry: bool) -> Option<u32> {
        self.node(kind::NODE_PYTHON, parent, u64::from(code), u64::from(instruction) * 2 + u64::from(entry))
    }

    /// Defines the next node: a native frame.
    pub fn native_node(&mut self, parent: u32, address: u64) -> Option<u32> {
        if !self.room() {
            return None;
        }
        let difference = zigzag(address.wrapping_sub(self.last_native_address) as i64);
        self.last_native_address = address;
        self.node(kind::NODE_NATIVE, parent, difference, 0)
    }

    /// Defines the next node: frames left out.
    pub fn truncated_node(&mut self, parent: u32) -> Option<u32> {
        self.node(kind::NODE_TRUNCATED, parent, 0, 0)
    }

    fn node(&mut self, kind: u8, parent: u32, a: u64, b: u64) -> Option<u32> {
        if !self.room() {
            return None;
        }
        let id = self.next_node;
        self.next_node += 1;
        self.put(kind, false, a, b, id.wrapping_sub(parent), 0);
        Some(id)
    }

    /// Writes a definition from its pieces. False when (part of) it could not be written.
    pub fn definition(&mut self, sort: u64, id: u64, pieces: &[&[u8]]) -> bool {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut pieces = pieces.iter().copied();
        let mut piece: &[u8] = &[];
        loop {
            let part = left.min(MAX_PART);
            if !self.room_for(part) {
                return false;
            }
            // SAFETY: `room_for` made sure of the space; the record is committed once, with its payload behind it.
            unsafe {
                let mut target =
                    self.encode(kind::DEFINITION, false, sort, id, part as u32, u32::from(left > part));
                let mut missing = part;
                while missing > 0 {
                    if piece.is_empty() {
                        piece = pieces.next().unwrap_or(&[]);
                        continue;
                    }
                    let (now, later) = piece.split_at(piece.len().min(missing));
                    target.copy_from_nonoverlapping(now.as_ptr(), now.len());
                    target = target.add(now.len());
                    missing -= now.len();
                    piece = later;
                }
                self.commit(target);
            }
            left -= part;
            if left == 0 {
                return true;
            }
        }
    }

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

    #[inline(always)]
    fn room_and_time(&mut self) -> bool {
        if !self.room() {
            return false;
        }
        self.unchecked = self.unchecked.wrapping_add(1);
        self.unchecked != 0 && clock::stands_at(self.time) || self.tell_time()
    }

    /// Writes the time if it is another than the last. False when there is no room behind it.
    #[inline(never)]
    fn tell_time(&mut self) -> bool {
        let now = if self.unchecked == 0 { clock::now_and_check() } else { clock::now() };
        if now == self.time {
            return true;
        }
        self.time = now;
        let microseconds = now.nanoseconds().saturating_sub(session::start_time()) / 1000;
        let difference = microseconds.saturating_sub(self.last_microseconds);
        if difference > 0 {
            self.last_microseconds = microseconds;
            self.put(kind::TIME, false, difference, 0, 0, 0);
        }
        self.room()
    }

    /// Puts a record that begins with an address.
    #[inline(always)]
    fn put_at(&mut self, kind: u8, address: usize, b: u64, c: u32, d: u32) {
        let address = address as u64;
        let last = core::mem::replace(&mut self.last_address, address);
        if address & 7 != 0 {
            return self.put_as_it_stands(kind, address, b, c, d);
        }
        let a = difference(address, last);
        // The same stacks as before: the plain case, and a record of two numbers or one.
        if c | d == 0 { self.put_short(kind, a, b) } else { self.put_long(kind, a, b, c, d) }
    }

    #[inline(always)]
    fn put_short(&mut self, kind: u8, a: u64, b: u64) {
        let (a_length, b_length) = (LENGTHS_OF_A[bits(a)], LENGTHS_OF_B[bits(b)]);
        let all = a_length + b_length;
        let control = (all >> 8) as u16 | u16::from(kind);
        // SAFETY: `room` held before, so a whole record and its overhang fit; each store ends at most `OVERHANG` behind the record.
        unsafe {
            let at = self.cursor;
            at.cast::<u16>().write_unaligned(control.to_le());
            at.add(2).cast::<u64>().write_unaligned(a.to_le());
            if b != 0 {
                at.add(2 + bytes(a_length)).cast::<u64>().write_unaligned(b.to_le());
            }
            self.commit(at.add(2 + bytes(all)));
        }
    }

    #[inline(never)]
    fn put_long(&mut self, kind: u8, a: u64, b: u64, c: u32, d: u32) {
        self.put(kind, false, a, b, c, d);
    }

    /// Programs and tools that hand out blocks of their own making.
    #[cold]
    #[inline(never)]
    fn put_as_it_stands(&mut self, kind: u8, address: u64, b: u64, c: u32, d: u32) {
        self.put(kind, true, address, b, c, d);
    }

    #[inline(always)]
    fn put(&mut self, kind: u8, flag: bool, a: u64, b: u64, c: u32, d: u32) {
        // SAFETY: `room` held before, so a whole record and its overhang fit.
        unsafe {
            let end = self.encode(kind, flag, a, b, c, d);
            self.commit(end);
        }
    }

    /// # Safety
    /// `MAX_RECORD + OVERHANG` bytes must be free at the cursor.
    #[inline(always)]
    unsafe fn encode(&mut self, kind: u8, flag: bool, a: u64, b: u64, c: u32, d: u32) -> *mut u8 {
        let (a_length, b_length, c_length) =
            (LENGTHS_OF_A[bits(a)], LENGTHS_OF_B[bits(b)], LENGTHS_OF_C[narrow_bits(c)]);
        // Only native stacks have a D, and all or none of a recording.
        let d_length = if d == 0 { 0 } else { LENGTHS_OF_D[narrow_bits(d)] };
        let all = a_length + b_length + c_length + d_length;
        let control = (all >> 8) as u16 | u16::from(kind) | if flag { FLAG } else { 0 };
        // SAFETY: the caller's promise; each store ends at most `OVERHANG` behind the record.
        unsafe {
            let mut at = self.cursor;
            at.cast::<u16>().write_unaligned(control.to_le());
            at = at.add(2);
            let end = at.add(bytes(all));
            at.cast::<u64>().write_unaligned(a.to_le());
            at = at.add(bytes(a_length));
            at.cast::<u64>().write_unaligned(b.to_le());
            at = at.add(bytes(b_length));
            at.cast::<u32>().write_unaligned(c.to_le());
            if d != 0 {
                at = at.add(bytes(c_length));
                at.cast::<u32>().write_unaligned(d.to_le());
            }
            end
        }
    }

    /// # Safety
    /// `end` is the end of what was written at the cursor.
    #[inline(always)]
    unsafe fn commit(&mut self, end: *mut u8) {
        self.cursor = end;
        // SAFETY: the slot is mapped (the cursor points into it); the field is aligned.
        unsafe {
            let length = end.offset_from(self.base) as usize - SLOT_HEADER;
            (*self.base.add(slot::COMMITTED).cast::<AtomicU64>()).store(length as u64, Ordering::Release);
        }
    }

    fn room_for(&mut self, payload: usize) -> bool {
        let needed = MAX_RECORD + payload + OVERHANG;
        let fits = |writer: &Self| {
            !writer.cursor.is_null() && {
                // SAFETY: both point into the mapped slot.
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
    fn next_slot(&mut self) -> bool {
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
            || !session::reserve_slot(self.index, self.reserved as usize, SLOT_SIZE, true)
        {
            return false;
        }
        self.set_reserved(SLOT_SIZE);
        true
    }

    fn set_reserved(&mut self, bytes: usize) {
        self.reserved = bytes as u32;
        // SAFETY: within the mapped slot.
        self.limit = unsafe { self.base.add(bytes - MAX_RECORD - OVERHANG) };
    }

    fn map_slot(&mut self) -> bool {
        if self.spare > 0 {
            self.spare -= 1;
            self.index += 1;
            // SAFETY: the next slot of the mapping.
            self.base = unsafe { self.base.add(SLOT_SIZE) };
            self.begin_slot(SLOT_SIZE);
            return true;
        }
        let many = !self.first && self.sequence >= BUSY_AFTER && self.map(SLOTS_AT_A_TIME, SLOT_SIZE);
        let reserve = if self.first { FIRST_RESERVE } else { SLOT_SIZE };
        if !many && !self.map(1, reserve) {
            return false;
        }
        self.first = false;
        self.begin_slot(reserve);
        true
    }

    /// Takes and maps slots, with so many bytes of each on disk.
    fn map(&mut self, slots: u32, reserve: usize) -> bool {
        let Some((index, descriptor)) = session::take_slots(slots, reserve) else { return false };
        let bytes = slots as usize * SLOT_SIZE;
        let offset = SLOTS + index as usize * SLOT_SIZE;
        let place = if self.mapped == slots { self.mapping } else { null_mut() };
        let Ok(mapping) = sys::map_file(place, descriptor, offset, bytes) else {
            (index..index + slots).for_each(session::return_slot);
            return false;
        };
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
        (self.last_microseconds, self.time) = (0, Time::NEVER);
    }
}

/// What says that a chunk begins.
///
/// # Safety
/// `base` is a mapped slot, which stays mapped while the reference lives.
unsafe fn mark<'a>(base: *mut u8) -> &'a AtomicU32 {
    // SAFETY: the caller's; the field is aligned and only used as an atomic.
    unsafe { &*base.add(slot::MAGIC).cast::<AtomicU32>() }
}

/// By the bits of a number: the bytes it takes, and 256 times its length code at its place in the control word. So the sum for all numbers of a record is
/// its length and its control word.
const fn lengths<const LENGTHS: usize, const BITS: usize>(lengths: [u8; LENGTHS], place: u32) -> [u32; BITS] {
    let (mut table, mut bits, mut code) = ([0; BITS], 0, 0);
    while bits < BITS {
        if bits > 8 * lengths[code] as usize {
            code += 1;
        }
        table[bits] = lengths[code] as u32 | (code as u32) << (8 + place);
        bits += 1;
    }
    table
}

static LENGTHS_OF_A: [u32; 64] = lengths(WIDE, 5);
static LENGTHS_OF_B: [u32; 64] = lengths(WIDE, 8);
static LENGTHS_OF_C: [u32; 33] = lengths(NARROW, 11);
static LENGTHS_OF_D: [u32; 33] = lengths(NARROW, 13);

#[inline(always)]
const fn bytes(length: u32) -> usize {
    (length & 0xff) as usize
}

/// How many bits the number has; 63 for 64, which take as many bytes.
#[inline(always)]
const fn bits(value: u64) -> usize {
    (value << 1 | value | 1).ilog2() as usize
}

#[inline(always)]
const fn narrow_bits(value: u32) -> usize {
    ((value as u64) << 1 | 1).ilog2() as usize
}

/// How far it is from one address to another, both divisible by eight.
#[inline(always)]
const fn difference(address: u64, last: u64) -> u64 {
    zigzag((address >> 3).wrapping_sub(last >> 3) as i64)
}

/// A zigzag of a 32-bit difference.
#[inline(always)]
const fn zigzag32(difference: u32) -> u32 {
    let value = difference as i32;
    ((value << 1) ^ (value >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_capture::record::unzigzag;

    #[test]
    fn lengths_are_those_of_the_format() {
        let code = |length: u32, place: u32| (length >> (8 + place)) as usize;
        for many in 0..64 {
            for value in [0, 1_u64 << many, (1 << many) - 1, u64::MAX >> (63 - many)] {
                let (a, b) = (LENGTHS_OF_A[bits(value)], LENGTHS_OF_B[bits(value)]);
                assert_eq!((bytes(a), code(a, 5)), (bytes(b), code(b, 8)));
                assert_eq!(usize::from(WIDE[code(a, 5)]), bytes(a));
                assert!(bytes(a) == 8 || value >> (8 * bytes(a)) == 0, "{value:#x} in {}", bytes(a));
                let value = value as u32;
                let (c, d) = (LENGTHS_OF_C[narrow_bits(value)], LENGTHS_OF_D[narrow_bits(value)]);
                assert_eq!((bytes(c), code(c, 11)), (bytes(d), code(d, 13)));
                assert_eq!(usize::from(NARROW[code(c, 11)]), bytes(c));
                assert!(bytes(c) == 4 || value >> (8 * bytes(c)) == 0);
            }
        }
        assert_eq!(bytes(LENGTHS_OF_A[bits(0)]) + bytes(LENGTHS_OF_C[narrow_bits(0)]), 0);
    }

    #[test]
    fn differences_of_nodes_come_back() {
        for (from, to) in [(0_u32, 5_u32), (5, 0), (u32::MAX, 1), (1, u32::MAX), (7, 7)] {
            let stored = zigzag32(to.wrapping_sub(from));
            assert_eq!(from.wrapping_add(unzigzag(u64::from(stored)) as u32), to);
        }
    }
}
