//! The native stack of one thread, kept between allocations so that only new frames are unwound.
//!
//! An entry is the state of one frame (where it goes on, its stack and frame pointer) and where on the stack the unwinder found that out. The state of a frame
//! and the words its rule names decide the state of its caller. So, once a frame is met whose state is as kept, its callers are as kept for as long as those few
//! words are equal: comparing them is unwinding, without looking the rules up.

use core::ops::Range;

use super::Registers;
use super::bounds::Bounds;
use super::full::{Full, Step, read};
use super::rules::{AT_BP, From, Rule, Unwinder};
use crate::Nodes;

/// The most frames that are kept.
const CAPACITY: usize = 512;
/// Of a deeper stack so many, the innermost, are left when it is cut; it may then grow to the capacity before it is cut again.
const AFTER_CUT: usize = 256;
/// A cut stack that has shrunk to less is unwound further out again.
const SHORTEST_CUT: usize = 128;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    /// Where this frame goes on.
    ip: u64,
    /// Its stack pointer there; for all but the innermost, the word below it is `ip`.
    sp: u64,
    bp: u64,
    node: u32,
    /// Where `bp` was saved by the frame it called, from `sp`: 0 where it was not, `AT_BP` for the callee's own `bp`.
    bp_at: i16,
    /// Where `sp` was saved by the frame it called, from that frame's `bp`, if it was.
    sp_at: i16,
}

const EMPTY: Entry = Entry { ip: 0, sp: 0, bp: 0, node: 0, bp_at: 0, sp_at: 0 };

/// One thread's kept stack: 32 KiB of plain memory, valid when zero.
#[repr(C)]
pub struct NativeStack {
    generation: u32,
    len: usize,
    /// The node below the outermost entry: 0, or the one that says frames are missing.
    base: u32,
    bounds: Bounds,
    /// Outermost first.
    entries: [Entry; CAPACITY],
    /// Innermost first.
    fresh: [Entry; CAPACITY],
}

/// Why unwinding ended.
enum End {
    Outermost,
    Lost,
    Full,
}

impl Default for NativeStack {
    fn default() -> Self {
        Self::new()
    }
}

impl NativeStack {
    /// An empty one; zeroed memory is the same.
    pub const fn new() -> Self {
        let (entries, fresh) = ([EMPTY; CAPACITY], [EMPTY; CAPACITY]);
        Self { generation: 0, len: 0, base: 0, bounds: Bounds { low: 0, high: 0 }, entries, fresh }
    }

    /// Bytes to set aside for each thread.
    pub const SIZE: usize = size_of::<Self>();

    /// Forgets everything, as for a new tree of nodes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The node of the innermost native frame outside the addresses `hidden` (those of the library that calls this).
    ///
    /// `registers` must be of this thread and of a function that has not returned: [`Registers::capture`] in the caller. Anything else gives a wrong stack,
    /// but still reads only the mapped memory around `registers.sp`.
    pub fn current<N: Nodes>(
        &mut self,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        nodes: &mut N,
    ) -> u32 {
        let generation = unwinder.generation();
        if generation != self.generation || !self.bounds.has(registers.sp, 8) {
            self.generation = generation;
            self.len = 0;
            if !self.bounds.has(registers.sp, 8) {
                self.bounds = Bounds::around(registers.sp);
            }
        }
        let bounds = Bounds { low: registers.sp, ..self.bounds };
        let mut state = Entry { ip: registers.ip, sp: registers.sp, bp: registers.bp, ..EMPTY };
        let mut limit = self.len;
        let mut fresh = 0;
        let end = loop {
            // outwards is upwards: kept frames further in than this one are gone
            while let Some(entry) = self.entries.get(limit.wrapping_sub(1))
                && entry.sp < state.sp
            {
                limit -= 1;
            }
            let mut from = state;
            match self.entries.get_mut(limit.wrapping_sub(1)) {
                Some(entry) if entry.sp == state.sp && entry.ip == state.ip && entry.bp == state.bp => {
                    (entry.bp_at, entry.sp_at) = (state.bp_at, state.sp_at);
                    // SAFETY: this entry's frame was just reached by unwinding.
                    let right = unsafe { self.right_from(limit - 1) };
                    let short = self.base != 0 && limit + fresh < SHORTEST_CUT;
                    if right == 0 && !short {
                        break End::Outermost;
                    }
                    // what is further out changed, or was cut off: go on unwinding from the last frame that is right
                    for at in (right..limit).rev() {
                        if let (Some(slot), Some(entry)) = (self.fresh.get_mut(fresh), self.entries.get(at)) {
                            *slot = *entry;
                            from = *entry;
                        }
                        fresh += 1;
                    }
                    limit = right;
                }
                _ => {
                    if let Some(slot) = self.fresh.get_mut(fresh) {
                        *slot = state;
                    }
                    fresh += 1;
                }
            }
            if fresh >= CAPACITY {
                limit = 0;
                break End::Lost;
            }
            state = match step(&from, unwinder, bounds) {
                Ok(caller) => caller,
                Err(end) => {
                    limit = 0;
                    break end;
                }
            };
        };
        self.settle(registers, unwinder, hidden, nodes, limit, fresh, end)
    }

    /// Puts the fresh frames on the `kept` ones and looks their nodes up.
    #[expect(clippy::too_many_arguments, reason = "the second half of `current`")]
    #[inline]
    fn settle<N: Nodes>(
        &mut self,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        nodes: &mut N,
        mut kept: usize,
        mut fresh: usize,
        mut end: End,
    ) -> u32 {
        if matches!(end, End::Full) {
            return self.in_full(registers, unwinder, hidden, nodes);
        }
        if kept + fresh > CAPACITY {
            // too deep: the innermost frames stay
            for at in (0..kept).rev() {
                if let (Some(slot), Some(entry)) = (self.fresh.get_mut(fresh), self.entries.get(at)) {
                    *slot = *entry;
                    fresh += 1;
                }
            }
            kept = 0;
            end = End::Lost;
        }
        if kept == 0 {
            self.base = match end {
                End::Lost => nodes.truncated(0),
                _ => 0,
            };
            if fresh >= CAPACITY {
                fresh = AFTER_CUT;
            }
        }
        let mut node = match self.entries.get(kept.wrapping_sub(1)) {
            Some(entry) => entry.node,
            None => self.base,
        };
        self.len = kept;
        for slot in self.fresh.iter().take(fresh).rev() {
            if !hidden.contains(&slot.ip) {
                node = nodes.native(node, slot.ip);
            }
            if let Some(entry) = self.entries.get_mut(self.len) {
                *entry = Entry { node, ..*slot };
                self.len += 1;
            }
        }
        node
    }

    /// The outermost entry up to which, from `at` outwards, the stack says what was kept.
    ///
    /// # Safety
    /// `at` is less than the length, and the frame of that entry is live and as kept. (Then the words compared for its caller lie between the two stack
    /// pointers, in live memory; and so on outwards.)
    #[inline]
    unsafe fn right_from(&self, mut at: usize) -> usize {
        let entries = self.entries.as_ptr();
        while at > 0 {
            // SAFETY: inside the array; the words are live as said above.
            unsafe {
                let (inner, outer) = (&*entries.add(at), &*entries.add(at - 1));
                let same = word(outer.sp - 8) == outer.ip
                    && (outer.bp_at == 0 || word(saved_bp(inner.bp, outer.sp, outer.bp_at)) == outer.bp)
                    && (outer.sp_at == 0
                        || word(inner.bp.wrapping_add_signed(outer.sp_at.into())) == outer.sp);
                if !same {
                    return at;
                }
            }
            at -= 1;
        }
        0
    }

    /// The whole stack with every register, for stacks with frames no simple rule covers. Nothing of it is kept.
    #[cold]
    #[inline(never)]
    fn in_full<N: Nodes>(
        &mut self,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        nodes: &mut N,
    ) -> u32 {
        self.len = 0;
        let mut bounds = Bounds { low: registers.sp, ..self.bounds };
        let mut frame = Full::new(registers);
        let mut count = 0;
        let mut node = loop {
            let Some(slot) = self.fresh.get_mut(count) else { break nodes.truncated(0) };
            slot.ip = frame.ip();
            count += 1;
            match frame.step(unwinder, bounds) {
                Step::Outermost => break 0,
                Step::Lost => break nodes.truncated(0),
                // a signal handler with a stack of its own: the interrupted frame is on another
                Step::Caller if !bounds.has(frame.sp(), 8) => {
                    bounds = Bounds { low: frame.sp(), ..Bounds::around(frame.sp()) };
                }
                Step::Caller => {}
            }
        };
        for slot in self.fresh.iter().take(count).rev() {
            if !hidden.contains(&slot.ip) {
                node = nodes.native(node, slot.ip);
            }
        }
        node
    }
}

/// The caller of a frame, by its simple rule.
#[inline]
fn step(from: &Entry, unwinder: &Unwinder, bounds: Bounds) -> Result<Entry, End> {
    let (base, distance, bp_at) = match unwinder.rule(from.ip) {
        Rule::Simple { from, distance, bp } => (from, distance, bp),
        Rule::Outermost => return Err(End::Outermost),
        Rule::Unknown => return Err(End::Lost),
        Rule::Full => return Err(End::Full),
    };
    let (sp, sp_at) = match base {
        From::Sp => (from.sp.wrapping_add_signed(distance.into()), 0),
        From::Bp => (from.bp.wrapping_add_signed(distance.into()), 0),
        From::WordAtBp => {
            let at = from.bp.wrapping_add_signed(distance.into());
            (read_above(at, from.sp, bounds)?, distance as i16)
        }
    };
    // a frame has at least its return address, and outwards is upwards
    if sp <= from.sp {
        return Err(End::Lost);
    }
    let ip = read_above(sp.wrapping_sub(8), from.sp, bounds)?;
    let bp = match bp_at {
        0 => from.bp,
        _ => read_above(saved_bp(from.bp, sp, bp_at), from.sp, bounds)?,
    };
    match ip {
        0 => Err(End::Outermost),
        _ => Ok(Entry { ip, sp, bp, node: 0, bp_at, sp_at }),
    }
}

#[inline(always)]
fn saved_bp(callee_bp: u64, sp: u64, bp_at: i16) -> u64 {
    if bp_at == AT_BP { callee_bp } else { sp.wrapping_add_signed(bp_at.into()) }
}

/// A word of the stack that a live frame with stack pointer `sp` may own.
#[inline(always)]
fn read_above(address: u64, sp: u64, bounds: Bounds) -> Result<u64, End> {
    if address < sp { Err(End::Lost) } else { read(address, bounds).ok_or(End::Lost) }
}

/// # Safety
/// `address` is live stack memory.
#[inline(always)]
unsafe fn word(address: u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { (address as *const u64).read_unaligned() }
}
