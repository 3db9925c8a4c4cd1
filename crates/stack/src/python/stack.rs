//! The Python stack of one thread, kept between allocations so that only what changed is walked and looked up again.
//!
//! An entry is kept for each frame of the chain, the ones Python hides included. A kept frame is trusted only after its predecessor
//! and instruction were compared with memory, from the top down: the top frame is alive because the thread state says so, and each
//! compared frame vouches for the next. So no address is read that is not a live frame or on the same page of memory as one, and a frame that
//! returned and was entered again is recognised as different.
//!
//! The comparison ends at the first frame whose mark ([`super::marks`]) is intact: it and all frames below it have not run since they were
//! last compared. So the cost of a deep stack is that of what changed.

use core::mem::size_of;

use super::frame_compare::{below_as_kept, on_one_page, read, top_of};
use super::marks::{self, Marks};
use super::{Interpreter, Visible};
use crate::Nodes;

/// The deepest chain of frames that is kept whole. CPython's own default limit is 1000.
pub const CAPACITY: usize = 1024;
/// Of a deeper stack, this many frames at the bottom are kept, and ...
const BOTTOM: usize = 256;
/// ... this many at the top when it is walked whole; the window then grows to the capacity before the next whole walk.
const WINDOW: usize = 512;
/// A window that has shrunk to less is made again.
const SHORTEST_WINDOW: usize = 128;
/// A chain longer than this is taken for damaged; its bottom is left out.
const LONGEST: usize = 1 << 20;
/// Places in the table from frame address to entry: a power of two, twice the capacity.
const PLACES: usize = 2 * CAPACITY;

/// Up to this many frames are compared one by one.
const FEW: usize = 8;

/// Size of the cache of recently used nodes, by parent and instruction: a power of two.
const RECENT: usize = 256;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Entry {
    /// The frame that called this one.
    pub previous: usize,
    /// The instruction pointer. It points into the code object, so it says which one that is, too.
    pub instruction: usize,
    pub frame: usize,
    pub node: u32,
    /// The number of entries, from this one outwards, whose frames are on one page of memory: while this one's frame is alive, they can all be read.
    pub run: u16,
    /// 3.11: C called the frame.
    pub entry: bool,
}

pub(super) const EMPTY: Entry =
    Entry { previous: 0, instruction: 0, frame: 0, node: 0, run: 1, entry: false };

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

/// One thread's kept stack: about 76 KiB of plain memory, valid when zero, of which a shallow stack touches little.
#[repr(C)]
pub struct PythonStack {
    generation: u32,
    /// Goes up when nodes kept so far are void.
    era: u32,
    len: usize,
    /// 0, or the entry that stands for the hidden middle of a stack deeper than the capacity. Its `frame` is the hidden frame next to the
    /// window. What is below it was right when the stack was last walked whole.
    hidden: usize,
    /// 0, or the outermost entry whose code object may die unnoticed: it and what is above is looked up at every walk.
    unwatched: usize,
    /// The entries up to this one need no comparison while the frame of the next one is as kept and its mark, if it has one, is intact.
    floor: usize,
    /// The marked entries, each between `hidden` and `len`.
    marks: Marks,
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
            floor: 0,
            marks: Marks::NONE,
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
        self.floor = 0;
        self.marks.clear();
        self.era = self.era.wrapping_add(1);
    }

    /// The generation of the last call of [`Self::current`].
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The number of frames that are compared while the stack does not change.
    pub fn compared_frames(&self) -> usize {
        self.len - self.floor
    }

    /// The node of the innermost Python frame, 0 when there is none.
    ///
    /// `generation` must change whenever a code object was destroyed since the last call ([`super::CodeWatch`] reports it), or the stack of dead code
    /// could be taken for that of new code at the same address. For code that is not watched, see [`Nodes::unwatched`].
    ///
    /// `native`: a native stack goes with this one, so it matters at every frame whether C called it.
    ///
    /// # Safety
    /// `thread_state` is what [`Interpreter::thread_state`] gave to this thread in this very allocation.
    #[inline(always)]
    pub unsafe fn current<N: Nodes>(
        &mut self,
        interpreter: &Interpreter,
        thread_state: *const u8,
        generation: u32,
        native: bool,
        nodes: &mut N,
    ) -> u32 {
        // SAFETY: the caller guarantees that the interpreter gave `thread_state` to this thread in this very allocation.
        unsafe {
            let top = interpreter.top_frame(thread_state);
            if generation != self.generation {
                self.generation = generation;
                return self.whole(interpreter, top, nodes);
            }
            match (interpreter.layout.frame_entry.is_some(), native) {
                (true, false) => self.quick::<N, true, false>(interpreter, top, nodes),
                (true, true) => self.quick::<N, true, true>(interpreter, top, nodes),
                (false, _) => self.quick::<N, false, false>(interpreter, top, nodes),
            }
        }
    }

    /// As [`Self::current`], as far as that goes without asking the tree. Without native stacks only.
    ///
    /// `ENTRY` is what [`Interpreter::has_entries`] says. `DEEP`: stacks of more than a few frames are compared, too.
    ///
    /// # Safety
    /// As for [`Self::current`]; `thread_state` is not null, and the generation what it was at the last call.
    #[inline(always)]
    pub unsafe fn unchanged<const ENTRY: bool, const DEEP: bool>(
        &self,
        interpreter: &Interpreter,
        thread_state: *const u8,
    ) -> Unchanged {
        // SAFETY: the caller guarantees that `thread_state` is this thread's and not null, and the generation what it was at
        // the last call.
        unsafe {
            let top = top_of::<ENTRY>(interpreter, thread_state);
            self.compare_quickly::<ENTRY, false, DEEP>(interpreter, top)
        }
    }

    /// The node after a step of the innermost frame, if it is one of the last that were looked up.
    ///
    /// # Safety
    /// [`Self::unchanged`] said in this very allocation that there was a step. `ENTRY` as there.
    #[inline(always)]
    pub unsafe fn after_step<const ENTRY: bool>(&mut self, interpreter: &Interpreter) -> Option<u32> {
        // SAFETY: 0 < len <= CAPACITY, and the frame is the top frame of this thread.
        unsafe {
            let kept = self.entries.as_mut_ptr().add(self.len);
            let now = read::<ENTRY>(interpreter, (*kept).frame);
            let called_by_c = if ENTRY { now.entry } else { interpreter.is_entry(now.frame, now.previous) };
            let (parent, key) = ((*kept.sub(1)).node, now.instruction | usize::from(called_by_c));
            let node = self.recent_node(parent, key)?;
            ((*kept).instruction, (*kept).entry, (*kept).node) = (now.instruction, now.entry, node);
            Some(node)
        }
    }

    /// The node after [`Self::unchanged`] said in this very allocation that something changed.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn changed<N: Nodes, const ENTRY: bool>(
        &mut self,
        interpreter: &Interpreter,
        thread_state: *const u8,
        nodes: &mut N,
    ) -> u32 {
        // SAFETY: the caller guarantees that `thread_state` is this thread's and not null.
        unsafe { self.walk::<N, ENTRY>(interpreter, top_of::<ENTRY>(interpreter, thread_state), nodes) }
    }

    /// # Safety
    /// `top` is 0 or the top frame of this thread. `ENTRY`: the layout is that of 3.11. `COMPARED`: its entry flags are compared, too.
    #[inline(always)]
    unsafe fn quick<N: Nodes, const ENTRY: bool, const COMPARED: bool>(
        &mut self,
        interpreter: &Interpreter,
        top: usize,
        nodes: &mut N,
    ) -> u32 {
        // SAFETY: the caller guarantees that `top` is 0 or this thread's top frame; the frames of the entries below it are
        // alive.
        unsafe {
            match self.compare_quickly::<ENTRY, COMPARED, true>(interpreter, top) {
                Unchanged::Yes(node) => node,
                Unchanged::ButForAStep => match self.after_step::<ENTRY>(interpreter) {
                    Some(node) => node,
                    None => {
                        let kept = self.entries.as_mut_ptr().add(self.len);
                        let now = read::<ENTRY>(interpreter, top);
                        ((*kept).instruction, (*kept).entry) = (now.instruction, now.entry);
                        self.look_up(interpreter, self.len, nodes)
                    }
                },
                Unchanged::TooDeep | Unchanged::No => self.walk::<N, ENTRY>(interpreter, top, nodes),
            }
        }
    }

    /// The plain case: the innermost frame is the kept one, and nothing below it has changed.
    ///
    /// # Safety
    /// As for [`Self::quick`].
    #[inline(always)]
    unsafe fn compare_quickly<const ENTRY: bool, const COMPARED: bool, const DEEP: bool>(
        &self,
        interpreter: &Interpreter,
        top: usize,
    ) -> Unchanged {
        let entries = self.entries.as_ptr();
        // SAFETY: len <= CAPACITY, and floor < len where an entry is read, so each entry exists. The top frame is alive, and so is the
        // marked one once all frames above it are found to be as kept.
        unsafe {
            let kept = entries.add(self.len);
            if top == 0 || top != (*kept).frame || self.unwatched > 0 || self.len <= self.floor {
                return Unchanged::No;
            }
            if !DEEP && self.len - self.floor > FEW {
                return Unchanged::TooDeep;
            }
            let now = read::<ENTRY>(interpreter, top);
            if now.previous != (*kept).previous
                || !below_as_kept::<ENTRY, COMPARED, DEEP>(interpreter, entries.add(self.floor), kept)
                || !self.marks.innermost_is_intact()
            {
                return Unchanged::No;
            }
            if now.instruction == (*kept).instruction && now.entry == (*kept).entry {
                Unchanged::Yes((*kept).node)
            } else {
                Unchanged::ButForAStep
            }
        }
    }

    /// The node of a frame, if it is one of the last that were looked up.
    #[inline(always)]
    fn recent_node(&self, parent: u32, key: usize) -> Option<u32> {
        // SAFETY: `hash_of_node` keeps the top bits only, so its result is below RECENT, the length of `recent`.
        let recent = unsafe { self.recent.get_unchecked(hash_of_node(parent, key)) };
        (recent.instruction == key && recent.parent == parent && recent.era == self.era)
            .then_some(recent.node)
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
            // SAFETY: `frame` is 0, this thread's top frame (the caller guarantees it), or was reached from it by `previous`.
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
            self.marks.drop_from(kept + 1);
            // SAFETY: `place_of` found `frame`, a frame of the live chain, in `entries[kept]`.
            match unsafe { self.compare::<ENTRY>(interpreter, kept) } {
                Compared::Same { changed } => {
                    let short = self.hidden > 0 && kept + fresh < self.hidden + SHORTEST_WINDOW;
                    if kept + fresh > CAPACITY || short {
                        // SAFETY: the caller guarantees that `top` is this thread's top frame.
                        return unsafe { self.whole(interpreter, top, nodes) };
                    }
                    self.len = kept;
                    self.marks.drop_from(changed.min(kept).max(1));
                    let changed = if self.unwatched > 0 { changed.min(self.unwatched) } else { changed };
                    // SAFETY: entries 1..=kept were compared with the live chain above, and `fresh` was read from it.
                    return unsafe {
                        self.push_fresh::<ENTRY>(interpreter, fresh);
                        self.add_marks(interpreter);
                        self.look_up(interpreter, changed, nodes)
                    };
                }
                Compared::Elsewhere { at, previous } => {
                    // the frames above hang on another chain than they did: keep walking that one
                    self.marks.drop_from(at);
                    for place in (at..=kept).rev() {
                        let (Some(slot), Some(entry)) = (self.fresh.get_mut(fresh), self.entries.get(place))
                        else {
                            // SAFETY: the caller guarantees that `top` is this thread's top frame.
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

    /// Compares the kept entries from `kept` down to an intact mark with memory, taking over the instruction where it changed.
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
                let now = read::<ENTRY>(interpreter, entry.frame);
                if now.instruction != entry.instruction || now.entry != entry.entry {
                    (entry.instruction, entry.entry) = (now.instruction, now.entry);
                    changed = at;
                }
                entry.previous = now.previous;
                if now.previous != (*entries.add(at - 1)).frame {
                    return Compared::Elsewhere { at, previous: now.previous };
                }
                if self.marks.innermost() == at {
                    if changed != at && self.marks.innermost_is_intact() {
                        break;
                    }
                    self.marks.drop_from(at);
                }
            }
            at -= 1;
        }
        Compared::Same { changed }
    }

    /// Marks frames that were not tried before, at some distance from each other, and says down to where the next comparison goes.
    ///
    /// # Safety
    /// The entries are live frames, in the order of the chain.
    #[inline]
    unsafe fn add_marks(&mut self, interpreter: &Interpreter) {
        let entries = self.entries.as_ptr();
        while let Some(at) = self.marks.next_place(self.hidden, self.len) {
            // SAFETY: 0 < at < len <= CAPACITY; the frames are alive, and the one called the other.
            unsafe {
                let (frame, child) = ((*entries.add(at)).frame, (*entries.add(at + 1)).frame);
                self.marks.tried(at, marks::place(interpreter, frame, child));
            }
        }
        self.floor = match self.marks.innermost() {
            0 => self.hidden,
            at => at - 1,
        };
    }

    /// Puts the `count` fresh frames on top of the kept ones.
    #[inline]
    fn push_fresh<const ENTRY: bool>(&mut self, interpreter: &Interpreter, count: usize) {
        for slot in self.fresh.iter().take(count).rev() {
            let below = self.entries.get(self.len).copied().unwrap_or(EMPTY);
            let together = on_one_page::<ENTRY>(interpreter, slot.frame, below.frame);
            self.len += 1;
            if let Some(entry) = self.entries.get_mut(self.len) {
                *entry = Entry { run: if together { below.run + 1 } else { 1 }, ..*slot };
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
                    if let Some(node) = self.recent_node(below.node, key) {
                        node
                    } else if let Some(Visible { code, unit, always }) = interpreter.visible(entry.frame) {
                        let node = nodes.python(below.node, code, unit, called_by_c);
                        if nodes.unwatched() {
                            if self.unwatched == 0 {
                                self.unwatched = at;
                            }
                        } else if always && node != below.node {
                            let recent = self.recent.as_mut_ptr().add(hash_of_node(below.node, key));
                            *recent = Recent { instruction: key, parent: below.node, era: self.era, node };
                        }
                        node
                    } else {
                        below.node
                    }
                };
            }
        }
        // SAFETY: `push_fresh` keeps `len` <= CAPACITY, and `entries` has CAPACITY + 1 elements.
        unsafe { (*entries.add(self.len)).node }
    }

    /// Walks the whole chain from the top. Of one deeper than the capacity the two ends are kept.
    ///
    /// # Safety
    /// `frame` is 0 or the top frame of this thread.
    #[cold]
    unsafe fn whole<N: Nodes>(&mut self, interpreter: &Interpreter, mut frame: usize, nodes: &mut N) -> u32 {
        self.clear();
        let with_entry = interpreter.layout.frame_entry.is_some();
        let mut count = 0;
        while frame != 0 && count < LONGEST {
            // past the capacity, the last `BOTTOM` slots are used in turn
            let slot = if count < CAPACITY { count } else { CAPACITY - BOTTOM + count % BOTTOM };
            // SAFETY: `frame` is this thread's top frame (the caller guarantees it) or was reached from it by `previous`.
            unsafe {
                if let Some(slot) = self.fresh.get_mut(slot) {
                    *slot = if with_entry {
                        read::<true>(interpreter, frame)
                    } else {
                        read::<false>(interpreter, frame)
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
        if with_entry {
            self.push_fresh::<true>(interpreter, count);
        } else {
            self.push_fresh::<false>(interpreter, count);
        }
        // SAFETY: the entries are the frames of the live chain, which the loop above just read.
        unsafe {
            self.add_marks(interpreter);
            self.look_up(interpreter, 1, nodes)
        }
    }

    /// The entry of `frame` among the first `limit`, if the table still knows it.
    #[inline]
    fn place_of(&self, frame: usize, limit: usize) -> Option<usize> {
        let place = usize::from(*self.places.get(hash(frame))?);
        let entry = self.entries.get(place)?;
        (entry.frame == frame && place <= limit && place != self.hidden).then_some(place)
    }
}

/// Whether a stack is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// It is: this node.
    Yes(u32),
    /// It is, but the innermost frame has gone on.
    ButForAStep,
    /// It is deeper than was to be compared.
    TooDeep,
    /// It is not, or that is not known.
    No,
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

#[inline(always)]
fn hash_of_node(parent: u32, instruction: usize) -> usize {
    (instruction ^ (parent as usize) << 5).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> (usize::BITS - RECENT.ilog2())
}
