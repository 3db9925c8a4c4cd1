//! Writes records into the slot of one thread. Must never wait, allocate or fail the program: what cannot be written is counted.

mod lengths;
mod slots;

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use stormlog_capture::layout::{SLOT_HEADER, slot};
use stormlog_capture::record::{FLAG, MAX_PART, MAX_RECORD, kind, zigzag};

use crate::clock;
use crate::logical_clock::LogicalTime;
use crate::retention::mailbox;
use crate::session;
use lengths::{
    LENGTHS_OF_A, LENGTHS_OF_B, LENGTHS_OF_C, LENGTHS_OF_D, bits, bytes, difference, narrow_bits, zigzag32,
};

/// Numbers are stored eight bytes at a time, so a record may touch this much behind itself.
const OVERHANG: usize = 8;

/// The writing end of one stream.
#[repr(C)]
pub struct Writer {
    cursor: *mut u8,
    /// A record may begin before here.
    limit: *mut u8,
    /// The slot; stays mapped when there is no next one.
    base: *mut u8,
    last_address: u64,
    last_python: u32,
    last_native: u32,
    last_native_address: u64,
    logical_time: LogicalTime,
    /// Events since the hint about the clock was compared with the clock; it is compared when this wraps to 0.
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
    /// Counts the times records were lost: what was cached about them is then invalid.
    pub gaps: u32,
}

impl Writer {
    /// Starts stream `stream` from the beginning, keeping the mapping if there is one.
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
        logical_time: LogicalTime::NEVER,
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

    /// Number of the stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// True when a record can be written, at the present time.
    pub fn ready(&mut self) -> bool {
        self.room_and_time()
    }

    /// As [`ready`](Self::ready) for definitions with a payload of this many bytes in all: they are behind the time, in the same slot.
    pub fn ready_for(&mut self, definitions: usize, payload: usize) -> bool {
        // One record more for the time.
        self.room_for((definitions + 1) * MAX_RECORD + payload) && self.room_and_time()
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

    /// As [`allocation`](Self::allocation) without a native stack, where nothing else is to be recorded before it. False: it was not written.
    #[inline(always)]
    pub fn plain_allocation(&mut self, kind: u8, address: usize, bytes: usize, python: u32) -> bool {
        let plain = self.cursor < self.limit
            && self.unchecked != u8::MAX
            && self.logical_time.lasts()
            && address & 7 == 0;
        if plain {
            self.unchecked += 1;
            let last = core::mem::replace(&mut self.last_address, address as u64);
            let a = difference(address as u64, last);
            if python == self.last_python {
                self.put_short(kind, a, bytes as u64);
            } else {
                let c = zigzag32(python.wrapping_sub(self.last_python));
                self.last_python = python;
                self.put_long(kind, a, bytes as u64, c, 0);
            }
        }
        plain
    }

    /// What [`plain_allocation`](Self::plain_allocation) did not write.
    #[inline(never)]
    pub fn other_allocation(&mut self, kind: u8, address: usize, bytes: usize, python: u32) {
        self.allocation(kind, address, bytes, python, 0);
    }

    /// A record of an address and perhaps a length: the end of a block, in its several forms.
    #[inline(always)]
    pub fn release(&mut self, kind: u8, address: usize, bytes: usize) {
        if self.room_and_time() {
            self.put_at(kind, address, bytes as u64, 0, 0);
        }
    }

    /// A request that failed.
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

    /// Defines the next node: something about the stack above it.
    pub fn mark_node(&mut self, parent: u32, mark: u64) -> Option<u32> {
        self.node(kind::NODE_MARK, parent, mark, 0)
    }

    /// A frame could not be defined and is left out: its parent replaces it in this stack only. `gaps` makes every cache of nodes start again, so that
    /// none keeps the shortened stack.
    #[cold]
    pub fn without(&mut self, parent: u32) -> u32 {
        self.gaps = self.gaps.wrapping_add(1);
        parent
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

    #[inline(always)]
    fn room_and_time(&mut self) -> bool {
        if !self.room() {
            return false;
        }
        self.unchecked = self.unchecked.wrapping_add(1);
        self.unchecked != 0 && self.logical_time.lasts() || self.write_time()
    }

    /// Writes the time if it is another than the last. False when there is no room behind it.
    #[inline(never)]
    fn write_time(&mut self) -> bool {
        let time = if self.unchecked == 0 { clock::now_and_check() } else { clock::now() };
        if (LogicalTime { time, turn: clock::turn() }) == self.logical_time {
            return true;
        }
        let (logical_time, since) = session::logical_time();
        self.logical_time = logical_time;
        let microseconds = since / 1000;
        let difference = microseconds.saturating_sub(self.last_microseconds);
        if difference > 0 {
            self.last_microseconds = microseconds;
            self.put(kind::TIME, false, difference, 0, 0, 0);
            mailbox::look();
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

    /// Programs and tools that hand out blocks from their own memory.
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
        // SAFETY: the caller guarantees that `MAX_RECORD + OVERHANG` bytes are free at the cursor; each store ends at most
        // `OVERHANG` behind the record.
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
}
