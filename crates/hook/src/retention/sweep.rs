//! One walk over everything the collector knows: each object once, and each reference from one object to another.
//!
//! Objects that the collector does not list (a dictionary of byte strings, the base of a NumPy view) are reached through those that refer to them. The
//! walk allocates nothing and stops at its deadline. Must never change an object.

use core::ffi::{c_int, c_void};

use super::kinds::{Kind, Kinds, array_base};
use super::python::{Object, Python};
use super::roots::Roots;

/// What a walk is for.
pub trait Visitor {
    /// An object that is met. One that the collector does not list is met once for each reference to it.
    fn met(
        &mut self,
        _python: &Python,
        _kinds: &mut Kinds<'_>,
        _object: Object,
        _kind: Kind,
        _is_listed: bool,
    ) {
    }
    /// A reference.
    fn reference(&mut self, _from: Object, _to: Object) {}
}

/// References between the moment one is met and the moment its target is looked at: the memory is fetched meanwhile.
const AHEAD: usize = 32;
/// Objects between two looks at the clock.
const PATIENCE: u32 = 2048;
/// Untracked objects inside untracked objects.
const DEEPEST: u32 = 24;
/// Untracked containers with several references that were followed lately.
const REMEMBERED: usize = 1024;

struct Walk<'w, 'k, V: Visitor> {
    python: &'w Python,
    kinds: &'w mut Kinds<'k>,
    roots: &'w Roots<'w>,
    visitor: &'w mut V,
    deadline: u64,
    from: usize,
    waiting: [(usize, usize); AHEAD],
    at: usize,
    until_look: u32,
    depth: u32,
    is_over: bool,
    remembered: [usize; REMEMBERED],
}

/// Walks. False when the deadline came first.
pub fn walk<V: Visitor>(
    python: &Python,
    kinds: &mut Kinds<'_>,
    roots: &Roots<'_>,
    visitor: &mut V,
    deadline: u64,
) -> bool {
    let mut walk = Walk {
        python,
        kinds,
        roots,
        visitor,
        deadline,
        from: 0,
        waiting: [(0, 0); AHEAD],
        at: 0,
        until_look: PATIENCE,
        depth: 0,
        is_over: now_ns() > deadline,
        remembered: [0; REMEMBERED],
    };
    let argument: *mut c_void = (&raw mut walk).cast();
    match python.visit_all {
        // SAFETY: the GIL is held; the callback gets the walk, which outlives the call.
        Some(visit_all) => unsafe { visit_all(on_object::<V>, argument) },
        None => each_in_lists(python, |object| {
            // SAFETY: the GIL is held, `object` is live, and `argument` is the walk, which outlives the call.
            unsafe { on_object::<V>(object as *mut c_void, argument) != 0 }
        }),
    }
    for _ in 0..AHEAD {
        walk.push(0, 0);
    }
    // Frames that run are not in the lists.
    roots.variables().for_each(|value| walk.value(value));
    !walk.is_over
}

impl<V: Visitor> Walk<'_, '_, V> {
    fn object(&mut self, object: Object) {
        let (kind, _) = self.kinds.of(self.python, object);
        self.visitor.met(self.python, self.kinds, object, kind, true);
        // The variables of a frame that is a root are looked at as such, not as what a traceback keeps.
        if kind != Kind::Frame || !self.roots.has_frame(self.python, object) {
            self.references_of(object);
        }
    }

    fn references_of(&mut self, object: Object) {
        if let Some(traverse) = object.class().traverse() {
            let outer = core::mem::replace(&mut self.from, object.address());
            // SAFETY: the type's own function on a live object, as the collector calls it; the callback gets this walk.
            unsafe { traverse(object.address() as *mut c_void, on_reference::<V>, (&raw mut *self).cast()) };
            self.from = outer;
        }
    }

    #[inline]
    fn push(&mut self, from: usize, to: usize) {
        fetch(to);
        let (from, to) = core::mem::replace(&mut self.waiting[self.at % AHEAD], (from, to));
        self.at = self.at.wrapping_add(1);
        // SAFETY: both were met in this walk, which holds the GIL to its end, so they are alive.
        if let (Some(from), Some(to)) = unsafe { (Object::of(from), Object::of(to)) } {
            self.reference(from, to);
        }
    }

    fn reference(&mut self, from: Object, to: Object) {
        let (kind, is_collectable) = self.kinds.of(self.python, to);
        if kind == Kind::Type || kind == Kind::Atom {
            return;
        }
        self.visitor.reference(from, to);
        self.unlisted(to, kind, is_collectable);
    }

    /// The value of a variable.
    fn value(&mut self, object: Object) {
        let (kind, is_collectable) = self.kinds.of(self.python, object);
        if kind != Kind::Type && kind != Kind::Atom {
            self.unlisted(object, kind, is_collectable);
        }
    }

    /// Looks at an object that is met by a reference, where the lists do not have it.
    fn unlisted(&mut self, to: Object, kind: Kind, is_collectable: bool) {
        if is_collectable && to.is_tracked() {
            return;
        }
        self.visitor.met(self.python, self.kinds, to, kind, false);
        let leads_on = is_collectable || matches!(kind, Kind::NdArray | Kind::BytesIo);
        if !leads_on || self.depth >= DEEPEST || self.is_over || self.was_followed(to) {
            return;
        }
        self.depth += 1;
        match kind {
            Kind::NdArray => array_base(to).into_iter().for_each(|base| self.reference(to, base)),
            Kind::BytesIo => to.field(16).into_iter().for_each(|buffer| self.reference(to, buffer)),
            _ => self.references_of(to),
        }
        self.depth -= 1;
    }

    /// Remembers an object with several references, which is met as often.
    fn was_followed(&mut self, object: Object) -> bool {
        if object.references() == 1 {
            return false;
        }
        let slot = &mut self.remembered[(object.address() >> 4) % REMEMBERED];
        core::mem::replace(slot, object.address()) == object.address()
    }

    fn look_at_clock(&mut self) {
        self.until_look -= 1;
        if self.until_look == 0 {
            self.until_look = PATIENCE;
            self.is_over = now_ns() > self.deadline;
        }
    }
}

/// Called with each object of the collector's lists; 0 ends the walk, as CPython has it.
unsafe extern "C" fn on_object<V: Visitor>(object: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the walk that `walk` passed, in use by this thread alone; the object is live.
    unsafe {
        let walk = &mut *argument.cast::<Walk<'_, '_, V>>();
        walk.look_at_clock();
        if walk.is_over {
            return 0;
        }
        if let Some(object) = Object::of(object as usize) {
            walk.object(object);
        }
    }
    1
}

unsafe extern "C" fn on_reference<V: Visitor>(to: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: as for `on_object`; the object being traversed has this reference.
    unsafe {
        let walk = &mut *argument.cast::<Walk<'_, '_, V>>();
        let from = walk.from;
        walk.push(from, to as usize);
    }
    0
}

/// The lists of Python 3.11, which has no function for it: a new object is at the end of the youngest, whose head is in the interpreter's state; the
/// others follow there.
fn each_in_lists(python: &Python, mut visit: impl FnMut(usize) -> bool) {
    const LINKS: usize = 16;
    /// Larger than the state of an interpreter of 3.11.
    const STATE: usize = 1 << 20;
    const GENERATION: usize = 24;
    /// Behind three generations and a pointer to the first: the objects that are never collected.
    const PERMANENT: usize = 3 * GENERATION + 8;
    // SAFETY: the GIL is held; CPython's lists are rings of live objects and one head each.
    unsafe {
        let state = (python.call.interpreter)();
        let Some(probe) = Object::of((python.call.new_list)(0)) else { return (python.call.clear_error)() };
        let next = |links: usize| *(links as *const usize) & !3;
        let start = probe.address() - LINKS;
        let mut links = next(start);
        while links != start && links.wrapping_sub(state) >= STATE {
            links = next(links);
        }
        let youngest = links;
        python.release(probe);
        if youngest.wrapping_sub(state) >= STATE {
            return;
        }
        for head in [0, GENERATION, 2 * GENERATION, PERMANENT].map(|offset| youngest + offset) {
            let mut links = next(head);
            while links != head && links != 0 {
                if !visit(links + LINKS) {
                    return;
                }
                links = next(links);
            }
        }
    }
}

#[inline(always)]
fn fetch(address: usize) {
    // SAFETY: fetching memory ahead never faults.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address as *const i8) };
}

/// Monotonic time.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// A clock of the system, in nanoseconds.
pub fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to `time`, a local.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
