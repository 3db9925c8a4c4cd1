//! The Python stack of one thread, kept between allocations so that only what changed is walked and looked up again.
//!
//! An entry is kept for each frame of the chain, the ones Python hides included. A kept frame is believed only after its predecessor
//! and instruction were compared with memory, from the top down: the top frame is alive because the thread state says so, and each
//! compared frame vouches for the next. So no address is read that is not a live frame, and a frame that returned and was
//! entered again looks exactly as different as it is.

use core::arch::asm;
use core::mem::size_of;

use super::{Interpreter, Visible, load};
use crate::Nodes;

/// The deepest chain of frames that is kept whole. CPython's own default limit is 1000.
pub const CAPACITY: usize = 1024;
/// Of a deeper stack, so many frames at the bottom are kept, and ...
const BOTTOM: usize = 256;
/// ... so many at the top when it is walked whole; the window then grows to the capacity before the next whole walk.
const WINDOW: usize = 512;
/// A window that has shrunk to less is made anew.
const SHORTEST_WINDOW: usize = 128;
/// A chain longer than this is taken for damaged; its bottom is left out.
const LONGEST: usize = 1 << 20;
/// Places in the table from frame address to entry: a power of two, twice the capacity.
const PLACES: usize = 2 * CAPACITY;

/// Nodes that are found again without asking the tree, by parent and instruction: a power of two.
const RECENT: usize = 256;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    frame: usize,
    /// The instruction pointer. It points into the code object, so it says which one that is, too. On 3.11 its free lowest bit says that C
    /// called the frame.
    instruction: usize,
    node: u32,
}

const EMPTY: Entry = Entry { frame: 0, instruction: 0, node: 0 };

/// What a frame's node was: only of frames whose node depends on nothing else.
#[derive(Clone, Copy)]
#[repr(C)]
struct Recent {
    /// With the lowest bit set when C called the frame, in every version.
    instruction: usize,
    parent: u32,
    /// What was current then.
    era: u32,
    node: u32,
}

const NEVER: Recent = Recent { instruction: 0, parent: 0, era: 0, node: 0 };

/// One thread's kept stack: about 58 KiB of plain memory, valid when zero, of which a shallow stack touches little.
#[repr(C)]
pub struct PythonStack {
    generation: u32,
    /// Goes up when nodes kept so far are void.
    era: u32,
    len: usize,
    /// 0, or the entry that stands for the hidden middle of a stack deeper than the capacity. Its `frame` is the hidden frame next to the
    /// window. What lies below it was right when the stack was last walked whole.
    hidden: usize,
    /// 0, or the outermost entry whose code object may die unnoticed: it and what is above is looked up at every walk.
    unwatched: usize,
    /// `entries[0]` is the end of every chain; the outermost frame is `entries[1]`.
    entries: [Entry; CAPACITY + 1],
    /// Frames met on the way down to the kept part, innermost first.
    fresh: [Entry; CAPACITY],
    /// Frame address to entry; a hint that is checked.
    places: [u16; PLACES],
    recent: [Recent; RECENT],
}

impl Default for PythonStack {
    fn default() -> Self {
        Self::new()
    }
}

impl PythonStack {
    /// An empty one; zeroed memory is the same.
    pub const fn new() -> Self {
        Self {
            generation: 0,
            era: 0,
            len: 0,
            hidden: 0,
            unwatched: 0,
            entries: [EMPTY; CAPACITY + 1],
            fresh: [EMPTY; CAPACITY],
            places: [0; PLACES],
            recent: [NEVER; RECENT],
        }
    }

    /// Bytes to set aside for each thread.
    pub const SIZE: usize = size_of::<Self>();

    /// Forgets everything, as for a new tree of nodes.
    pub fn clear(&mut self) {
        self.len = 0;
        self.hidden = 0;
        self.unwatched = 0;
        self.era = self.era.wrapping_add(1);
    }

    /// The node of the innermost Python frame, 0 when there is none.
    ///
    /// `generation` must change whenever a code object was destroyed since the last call ([`super::CodeWatch`] tells), or the stack of dead code
    /// could be taken for that of new code at the same address. For code that is not watched, see [`Nodes::unwatched`].
    ///
    /// # Safety
    /// `thread_state` is what [`Interpreter::thread_state`] gave to this thread in this very allocation.
    #[inline]
    pub unsafe fn current<N: Nodes>(
        &mut self,
        interpreter: &Interpreter,
        thread_state: *const u8,
        generation: u32,
        nodes: &mut N,
    ) -> u32 {
        // SAFETY: the caller's.
        unsafe {
            let top = interpreter.top_frame(thread_state);
            if generation != self.generation {
                self.generation = generation;
                return self.whole(interpreter, top, nodes);
            }
            if interpreter.layout.frame_entry.is_some() {
                self.quick::<N, true>(interpreter, top, nodes)
            } else {
                self.quick::<N, false>(interpreter, top, nodes)
            }
        }
    }

    /// The plain case: the innermost frame is the kept one, and nothing below it has changed. All else is for [`Self::walk`].
    ///
    /// # Safety
    /// `frame` is 0 or the top frame of this thread. `ENTRY`: the layout has the entry flag of 3.11.
    #[inline(always)]
    unsafe fn quick<N: Nodes, const ENTRY: bool>(
        &mut self,
        interpreter: &Interpreter,
        top: usize,
        nodes: &mut N,
    ) -> u32 {
        let entries = self.entries.as_mut_ptr();
        // SAFETY: len <= CAPACITY, and 0 <= hidden < len where the loop begins, so each entry exists. The top frame is alive, and each frame
        // is read only after the one above it was found to hang on it.
        unsafe {
            let kept = entries.add(self.len);
            if top == 0 || top != (*kept).frame || self.unwatched > 0 || self.len <= self.hidden {
                return self.walk::<N, ENTRY>(interpreter, top, nodes);
            }
            let last = entries.add(self.hidden + 1);
            let (mut at, mut frame) = (kept, top);
            loop {
                let below = (*at.sub(1)).frame;
                if interpreter.previous(frame) != below {
                    break;
                }
                frame = not_from_memory(below);
                if at == last {
                    let instruction = instruction::<ENTRY>(interpreter, top);
                    if instruction == (*kept).instruction {
                        return (*kept).node;
                    }
                    (*kept).instruction = instruction;
                    return self.look_up(interpreter, self.len, nodes);
                }
                at = at.sub(1);
                if instruction::<ENTRY>(interpreter, frame) != (*at).instruction {
                    break;
                }
            }
            self.walk::<N, ENTRY>(interpreter, top, nodes)
        }
    }

    /// # Safety
    /// `frame` is 0 or the top frame of this thread. `ENTRY`: the layout has the entry flag of 3.11.
    #[inline(never)]
    unsafe fn walk<N: Nodes, const ENTRY: bool>(
        &mut self,
        interpreter: &Interpreter,
        top: usize,
        nodes: &mut N,
    ) -> u32 {
        let mut frame = top;
        let mut fresh = 0;
        let mut limit = self.len;
        loop {
            // SAFETY: `frame` is 0 or hangs on the live chain.
            let kept = unsafe {
                loop {
                    if frame == 0 {
                        break 0;
                    }
                    if let Some(place) = self.place_of(frame, limit) {
                        break place;
                    }
                    let Some(slot) = self.fresh.get_mut(fresh) else {
                        return self.whole(interpreter, top, nodes);
                    };
                    *slot = read::<ENTRY>(interpreter, frame);
                    fresh += 1;
                    frame = interpreter.previous(frame);
                }
            };
            if kept < self.hidden {
                self.hidden = 0; // the stack is back in its bottom part
            }
            // SAFETY: `entries[kept].frame` is `frame`, alive.
            match unsafe { self.compare::<ENTRY>(interpreter, kept) } {
                Compared::Same { changed } => {
                    let short = self.hidden > 0 && kept + fresh < self.hidden + SHORTEST_WINDOW;
                    if kept + fresh > CAPACITY || short {
                        // SAFETY: `top` as given.
                        return unsafe { self.whole(interpreter, top, nodes) };
                    }
                    self.len = kept;
                    let changed = if self.unwatched > 0 { changed.min(self.unwatched) } else { changed };
                    // SAFETY: all entries are now live frames.
                    return unsafe {
                        self.push_fresh(fresh);
                        self.look_up(interpreter, changed, nodes)
                    };
                }
                Compared::Elsewhere { at, previous } => {
                    // the frames above hang on another chain than they did: keep walking that one
                    for place in (at..=kept).rev() {
                        let (Some(slot), Some(entry)) = (self.fresh.get_mut(fresh), self.entries.get(place))
                        else {
                            // SAFETY: `top` as given.
                            return unsafe { self.whole(interpreter, top, nodes) };
                        };
                        *slot = *entry;
                        fresh += 1;
                    }
                    limit = at - 1;
                    if limit == self.hidden && limit > 0 {
                        self.hidden = 0;
                        limit -= 1;
                    }
                    frame = previous;
                }
            }
        }
    }

    /// Compares the kept entries from `kept` down with memory, taking over the instruction where it changed.
    ///
    /// # Safety
    /// `entries[kept].frame` is a live frame, or `kept` is 0.
    #[inline]
    unsafe fn compare<const ENTRY: bool>(&mut self, interpreter: &Interpreter, kept: usize) -> Compared {
        let entries = self.entries.as_mut_ptr();
        let mut changed = kept + 1;
        let mut at = kept;
        while at > self.hidden {
            // SAFETY: 0 < at <= kept <= CAPACITY, so both entries exist; the frame is alive: for `kept` the caller says so, below it the
            // frame above was just found to point to it.
            unsafe {
                let entry = &mut *entries.add(at);
                let now = instruction::<ENTRY>(interpreter, entry.frame);
                if now != entry.instruction {
                    entry.instruction = now;
                    changed = at;
                }
                let previous = interpreter.previous(entry.frame);
                if previous != (*entries.add(at - 1)).frame {
                    return Compared::Elsewhere { at, previous };
                }
            }
            at -= 1;
        }
        Compared::Same { changed }
    }

    /// Puts the `count` fresh frames on top of the kept ones.
    #[inline]
    fn push_fresh(&mut self, count: usize) {
        for slot in self.fresh.iter().take(count).rev() {
            self.len += 1;
            if let Some(entry) = self.entries.get_mut(self.len) {
                *entry = *slot;
            }
            if let Some(place) = self.places.get_mut(hash(slot.frame)) {
                *place = self.len as u16;
            }
        }
    }

    /// Looks the nodes of the entries from `from` upwards up again; the innermost one's is the answer.
    ///
    /// # Safety
    /// The entries are live frames, in the order of the chain.
    #[inline]
    unsafe fn look_up<N: Nodes>(&mut self, interpreter: &Interpreter, from: usize, nodes: &mut N) -> u32 {
        let entries = self.entries.as_mut_ptr();
        if self.unwatched >= from {
            self.unwatched = 0;
        }
        for at in from..=self.len {
            // SAFETY: 0 < from, at <= len <= CAPACITY; the frames are alive.
            unsafe {
                let below = *entries.add(at - 1);
                let entry = &mut *entries.add(at);
                entry.node = if at == self.hidden {
                    nodes.truncated(below.node)
                } else {
                    let called_by_c = interpreter.is_entry(entry.frame, below.frame);
                    let key = entry.instruction | usize::from(called_by_c);
                    let recent = self.recent.as_mut_ptr().add(hash_of_node(below.node, key));
                    if (*recent).instruction == key
                        && (*recent).parent == below.node
                        && (*recent).era == self.era
                    {
                        (*recent).node
                    } else if let Some(Visible { code, unit, always }) = interpreter.visible(entry.frame) {
                        let node = nodes.python(below.node, code, unit, called_by_c);
                        if nodes.unwatched() {
                            if self.unwatched == 0 {
                                self.unwatched = at;
                            }
                        } else if always && node != below.node {
                            *recent = Recent { instruction: key, parent: below.node, era: self.era, node };
                        }
                        node
                    } else {
                        below.node
                    }
                };
            }
        }
        // SAFETY: len <= CAPACITY.
        unsafe { (*entries.add(self.len)).node }
    }

    /// Walks the whole chain anew. Of one deeper than the capacity the two ends are kept.
    ///
    /// # Safety
    /// `frame` is 0 or the top frame of this thread.
    #[cold]
    unsafe fn whole<N: Nodes>(&mut self, interpreter: &Interpreter, mut frame: usize, nodes: &mut N) -> u32 {
        self.clear();
        let mut count = 0;
        while frame != 0 && count < LONGEST {
            // past the capacity, the last `BOTTOM` slots are used in turn
            let slot = if count < CAPACITY { count } else { CAPACITY - BOTTOM + count % BOTTOM };
            // SAFETY: `frame` hangs on the live chain.
            unsafe {
                if let Some(slot) = self.fresh.get_mut(slot) {
                    *slot = match interpreter.layout.frame_entry {
                        Some(_) => read::<true>(interpreter, frame),
                        None => read::<false>(interpreter, frame),
                    };
                }
                frame = interpreter.previous(frame);
            }
            count += 1;
        }
        if count > CAPACITY {
            let bottom = if frame == 0 { BOTTOM } else { 0 };
            for at in 1..=bottom {
                let slot = CAPACITY - BOTTOM + (count - at) % BOTTOM;
                if let (Some(entry), Some(slot)) = (self.entries.get_mut(at), self.fresh.get(slot)) {
                    *entry = *slot;
                    if let Some(place) = self.places.get_mut(hash(slot.frame)) {
                        *place = at as u16;
                    }
                }
            }
            self.hidden = bottom + 1;
            self.len = self.hidden;
            if let (Some(entry), Some(next)) = (self.entries.get_mut(self.hidden), self.fresh.get(WINDOW)) {
                *entry = Entry { instruction: 0, ..*next };
            }
            count = WINDOW;
        }
        self.push_fresh(count);
        // SAFETY: the entries are the frames just walked.
        unsafe { self.look_up(interpreter, 1, nodes) }
    }

    /// The entry of `frame` among the first `limit`, if the table still knows it.
    #[inline]
    fn place_of(&self, frame: usize, limit: usize) -> Option<usize> {
        let place = usize::from(*self.places.get(hash(frame))?);
        let entry = self.entries.get(place)?;
        (entry.frame == frame && place <= limit && place != self.hidden).then_some(place)
    }
}

enum Compared {
    /// The chain is as kept; the nodes from `changed` up are not.
    Same { changed: usize },
    /// Entry `at` hangs on a frame that is not the one kept below it.
    Elsewhere { at: usize, previous: usize },
}

#[inline(always)]
fn hash(frame: usize) -> usize {
    // frames are 8-byte aligned; neighbours on the frame stack are some 10 words apart
    (frame >> 3).wrapping_mul(0x9e37_79b9) >> 16 & (PLACES - 1)
}

/// The same number, without the compiler knowing. Else it would take the one it was found equal to, and each frame would wait for the one
/// above it to be loaded: that is the whole cost of walking a deep stack.
#[inline(always)]
fn not_from_memory(mut kept: usize) -> usize {
    // SAFETY: no instructions.
    unsafe { asm!("/* {0} */", inout(reg) kept, options(pure, nomem, nostack, preserves_flags)) };
    kept
}

#[inline(always)]
fn hash_of_node(parent: u32, instruction: usize) -> usize {
    (instruction ^ (parent as usize) << 5).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> (usize::BITS - RECENT.ilog2())
}

/// # Safety
/// `frame` is a live frame.
#[inline(always)]
unsafe fn instruction<const ENTRY: bool>(interpreter: &Interpreter, frame: usize) -> usize {
    let layout = &interpreter.layout;
    // SAFETY: the caller's.
    unsafe {
        let instruction = load::<usize>(frame, layout.frame_instruction);
        match layout.frame_entry {
            Some(at) if ENTRY => instruction | usize::from(load::<u8>(frame, at)),
            _ => instruction,
        }
    }
}

/// # Safety
/// `frame` is a live frame.
#[inline(always)]
unsafe fn read<const ENTRY: bool>(interpreter: &Interpreter, frame: usize) -> Entry {
    // SAFETY: the caller's.
    Entry { frame, instruction: unsafe { instruction::<ENTRY>(interpreter, frame) }, node: 0 }
}
