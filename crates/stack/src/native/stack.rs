//! The native stack of one thread, kept between allocations so that only new frames are unwound.
//!
//! An entry is the state of one frame (where it continues, its stack and frame pointer). The state of a frame and the words of the stack that its rule names
//! decide the state of its caller; those words are saved. So, once a frame is met whose state is as kept, its callers are as kept for as long as
//! their saved words are equal: comparing them is unwinding, without looking the rules up.

use core::ops::Range;

use super::Registers;
use super::bounds::Bounds;
use super::library_exit::LibraryExit;
use super::recent::{Path, RecentNodes};
use super::saved_words::{EACH, SavedWords};
use super::x86_64::full::{Full, Step};
use super::x86_64::rules::Unwinder;
use super::x86_64::step::{End, State, UnwoundFrame, step};
use crate::Nodes;

/// The most frames that are kept.
const CAPACITY: usize = 512;
/// Of a deeper stack this many, the innermost, are left when it is cut; it may then grow to the capacity before it is cut again.
const AFTER_CUT: usize = 256;
/// A cut stack that has shrunk to less is unwound further out again.
const SHORTEST_CUT: usize = 128;

type Kept = SavedWords<{ EACH * CAPACITY }>;

/// A kept frame.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Entry {
    found: UnwoundFrame,
    node: u32,
    /// The number of saved words of the frames further out. Those of this one follow, but where it is the innermost.
    outer: u32,
    /// The way to the caller leads over `bp`. Else that is not compared: a loop may count in it.
    needs_bp: bool,
}

const EMPTY: Entry = Entry { found: UnwoundFrame::NOTHING, node: 0, outer: 0, needs_bp: true };

impl Entry {
    /// Whether a frame in this state has the callers that this one had, if the stack still says so.
    #[inline(always)]
    fn is(&self, state: &State) -> bool {
        let kept = &self.found.state;
        kept.ip == state.ip && kept.sp == state.sp && (!self.needs_bp || kept.bp == state.bp)
    }
}

/// One thread's kept stack: some 100 KiB of plain memory, valid when zero, of which a shallow stack touches little.
#[repr(C)]
pub struct NativeStack {
    generation: u32,
    /// The node below the outermost entry: 0, or the one that says frames are missing.
    base: u32,
    len: usize,
    bounds: Bounds,
    library_exit: LibraryExit,
    /// The outermost frame is `entries[1]`. The first entry ends every search.
    entries: [Entry; CAPACITY + 1],
    saved_words: Kept,
    /// Innermost first.
    fresh: [UnwoundFrame; CAPACITY],
    recent: RecentNodes,
}

impl Default for NativeStack {
    fn default() -> Self {
        Self::new()
    }
}

impl NativeStack {
    /// An empty one; zeroed memory is the same.
    pub const fn new() -> Self {
        Self {
            generation: 0,
            base: 0,
            len: 0,
            bounds: Bounds { low: 0, high: 0 },
            library_exit: LibraryExit::NONE,
            entries: [EMPTY; CAPACITY + 1],
            saved_words: Kept::NONE,
            fresh: [UnwoundFrame::NOTHING; CAPACITY],
            recent: RecentNodes::NONE,
        }
    }

    /// Bytes to set aside for each thread.
    pub const SIZE: usize = size_of::<Self>();

    /// Forgets everything, as for a new tree of nodes.
    pub fn clear(&mut self) {
        self.len = 0;
        self.recent.clear();
    }

    /// The node of the innermost native frame outside the addresses `hidden` (those of the library that calls this, which stays loaded).
    ///
    /// `registers` must be of this thread and of a function that has not returned: [`Registers::capture`] in the caller. Anything else gives a wrong stack,
    /// but still reads only the mapped memory around `registers.sp`.
    #[inline]
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
        let start = self.library_exit.follow(registers, unwinder, hidden, bounds);
        // the plain case: nothing has changed
        // SAFETY: the length is at most the capacity. If `start` is the state of the kept innermost frame (never of `entries[0]`, which is not a frame), that frame
        // is live, as it was just reached from the registers.
        unsafe {
            let top = &*self.entries.as_ptr().add(self.len);
            if top.is(&start)
                && (self.base == 0 || self.len >= SHORTEST_CUT)
                && self.saved_words.are_unchanged(top.outer as usize)
            {
                return top.node;
            }
        }
        self.walk(start, registers, unwinder, hidden, nodes)
    }

    /// Unwinds from `start` until the kept part is met, and as far beyond as that has changed.
    #[inline(never)]
    fn walk<N: Nodes>(
        &mut self,
        start: State,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        nodes: &mut N,
    ) -> u32 {
        let bounds = Bounds { low: registers.sp, ..self.bounds };
        let (entries, unwound) = (self.entries.as_mut_ptr(), self.fresh.as_mut_ptr());
        let mut now = UnwoundFrame::start(start);
        let mut fresh = 0;
        // SAFETY: the length is at most the capacity. `met` moves down the entries, of which the first ends the search for smaller ones; `fresh` is below the
        // capacity whenever a frame is put there. Saved words are compared for frames that were just reached by unwinding.
        let (kept, end) = unsafe {
            (*entries).found.state = State { ip: 0, sp: u64::MAX, bp: 0 };
            let mut met = entries.add(self.len);
            loop {
                // outwards is upwards: kept frames further in than this one are gone
                while (*met).found.state.sp < now.state.sp {
                    met = met.sub(1);
                }
                let mut from = now.state;
                if (*met).is(&now.state) {
                    (*met).found = now;
                    let limit = met.offset_from_unsigned(entries);
                    let short = self.base != 0 && limit + fresh < SHORTEST_CUT;
                    if !short && self.saved_words.are_unchanged((*met).outer as usize) {
                        break (limit, End::Outermost);
                    }
                    // what is further out changed, or was cut off: continue unwinding from the last frame that is right
                    let right = entries.add(self.right_from(limit));
                    while met >= right && fresh < CAPACITY {
                        from = (*met).found.state;
                        *unwound.add(fresh) = (*met).found;
                        fresh += 1;
                        met = met.sub(1);
                    }
                } else {
                    *unwound.add(fresh) = now;
                    fresh += 1;
                }
                if fresh >= CAPACITY {
                    break (0, End::Lost);
                }
                now = match step(&from, unwinder, bounds) {
                    Ok(caller) => caller,
                    Err(end) => break (0, end),
                };
            }
        };
        if matches!(end, End::Full) {
            return self.in_full(registers, unwinder, hidden, nodes);
        }
        self.settle(hidden, nodes, kept, fresh, end)
    }

    /// Puts the fresh frames on the `kept` ones and looks their nodes up.
    #[inline(always)]
    fn settle<N: Nodes>(
        &mut self,
        hidden: &Range<u64>,
        nodes: &mut N,
        mut kept: usize,
        mut fresh: usize,
        mut end: End,
    ) -> u32 {
        if kept + fresh > CAPACITY {
            // too deep: the innermost frames stay
            for at in (1..=kept).rev() {
                if let (Some(slot), Some(entry)) = (self.fresh.get_mut(fresh), self.entries.get(at)) {
                    *slot = entry.found;
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
        let (entries, unwound) = (self.entries.as_mut_ptr(), self.fresh.as_ptr());
        // SAFETY: kept + fresh is at most the capacity, so there is an entry for each, and room for as many times `EACH` saved words.
        unsafe {
            let (mut node, mut outer, mut needs_bp) = match kept {
                0 => (self.base, 0, true),
                _ => {
                    let met = &*entries.add(kept);
                    let next = self.saved_words.put(met.outer as usize, &met.found, met.needs_bp);
                    (met.node, next, met.found.by_bp)
                }
            };
            self.len = kept + fresh;
            let mut path = Path::from(node);
            for at in (0..fresh).rev() {
                let found = &*unwound.add(at);
                let ip = found.state.ip;
                if !hidden.contains(&ip) {
                    node = self.recent.get(&mut path, node, ip, || nodes.native(node, ip));
                }
                *entries.add(kept + fresh - at) =
                    Entry { found: *found, node, outer: outer as u32, needs_bp };
                outer = self.saved_words.put(outer, found, needs_bp);
                needs_bp = found.by_bp;
            }
            node
        }
    }

    /// The outermost entry up to which, from `at` outwards, the stack says what was kept.
    ///
    /// # Safety
    /// `at` is not 0 and at most the length, and the frame of that entry is live and as kept.
    #[inline]
    unsafe fn right_from(&self, mut at: usize) -> usize {
        let entries = self.entries.as_ptr();
        while at > 1 {
            // SAFETY: the saved words are those of the frame at `at - 1`, whose callee was just found to be as kept.
            unsafe {
                let (inner, outer) = (&*entries.add(at), &*entries.add(at - 1));
                if !self.saved_words.are_unchanged_between(outer.outer as usize, inner.outer as usize) {
                    return at;
                }
            }
            at -= 1;
        }
        1
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
            slot.state.ip = frame.ip();
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
            if !hidden.contains(&slot.state.ip) {
                node = nodes.native(node, slot.state.ip);
            }
        }
        node
    }
}
