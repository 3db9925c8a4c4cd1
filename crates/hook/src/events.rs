//! The events of the hooks, as records. A function that takes a [`Thread`] must be called inside [`Inside::record`] only.

use stormlog_capture::record::{definition, kind};
use stormlog_stack::python::Unchanged;

use crate::code_end;
use crate::ends;
use crate::injected::UNRECORDED_NODE;
use crate::sample;
use crate::stacks::{self, PlainPython, StackMethod};
use crate::sys;
use crate::thread::{Inside, Thread};

/// A block was given out. One that is passed over by sampling costs a subtraction: nothing is written for it.
#[inline(always)]
pub fn begun(inside: &mut Inside, kind: u8, address: usize, bytes: usize) {
    if !sample::passes_over(inside.area(), bytes) {
        inside.record(|thread| allocated(thread, kind, address, bytes));
    }
}

/// Records a free; true if a record was written.
#[inline(always)]
pub fn ended(inside: &mut Inside, kind: u8, address: usize) -> bool {
    let is_for_us = sample::may_have_taken(address) || code_end::has_come();
    is_for_us && inside.record(|thread| freed(thread, kind, address))
}

#[inline(never)]
fn allocated(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    match thread.stacks.way {
        StackMethod::Plain311 => plainly::<true>(thread, kind, address, bytes),
        StackMethod::Plain => plainly::<false>(thread, kind, address, bytes),
        StackMethod::Any => anyhow(thread, kind, address, bytes),
    }
}

/// The stack is mostly what it was a moment ago. What is seldom is in functions of their own: this one is most of what recording costs.
#[inline(always)]
fn plainly<const ENTRY: bool>(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    match stacks::plain(thread) {
        Some(python) => compared::<ENTRY, false>(thread, kind, address, bytes, python),
        None => anyhow(thread, kind, address, bytes),
    }
}

#[inline(always)]
fn compared<const ENTRY: bool, const DEEP: bool>(
    thread: &mut Thread,
    kind: u8,
    address: usize,
    bytes: usize,
    (interpreter, state): PlainPython,
) {
    // SAFETY: the state is this thread's, and no code object has died since the last event.
    match unsafe { thread.stacks.python.unchanged::<ENTRY, DEEP>(interpreter, state) } {
        Unchanged::Yes(node) => finish(thread, kind, address, bytes, node),
        Unchanged::ButForAStep => a_step_on::<ENTRY>(thread, kind, address, bytes, (interpreter, state)),
        Unchanged::TooDeep => deeply::<ENTRY>(thread, kind, address, bytes, (interpreter, state)),
        Unchanged::No => changed::<ENTRY>(thread, kind, address, bytes, (interpreter, state)),
    }
}

#[inline(never)]
fn deeply<const ENTRY: bool>(
    thread: &mut Thread,
    kind: u8,
    address: usize,
    bytes: usize,
    python: PlainPython,
) {
    compared::<ENTRY, true>(thread, kind, address, bytes, python);
}

#[inline(never)]
fn a_step_on<const ENTRY: bool>(
    thread: &mut Thread,
    kind: u8,
    address: usize,
    bytes: usize,
    python: PlainPython,
) {
    // SAFETY: `unchanged` reported a step for this thread in this allocation, as `after_step` requires; nothing ran in between.
    match unsafe { thread.stacks.python.after_step::<ENTRY>(python.0) } {
        Some(node) => finish(thread, kind, address, bytes, node),
        None => changed::<ENTRY>(thread, kind, address, bytes, python),
    }
}

#[inline(never)]
fn changed<const ENTRY: bool>(
    thread: &mut Thread,
    kind: u8,
    address: usize,
    bytes: usize,
    python: PlainPython,
) {
    if thread.writer.room() {
        // SAFETY: the stack was found to be another in this event.
        let node = unsafe { stacks::changed::<ENTRY>(thread, python) };
        finish(thread, kind, address, bytes, node);
    }
}

#[inline(always)]
fn finish(thread: &mut Thread, kind: u8, address: usize, bytes: usize, python: u32) {
    if python != UNRECORDED_NODE && !thread.writer.plain_allocation(kind, address, bytes, python) {
        thread.writer.other_allocation(kind, address, bytes, python);
    }
}

/// The general case.
#[inline(never)]
fn anyhow(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    if sample::takes(thread, address) {
        mapped(thread, kind, address, bytes);
    }
}

/// A mapping was made: like a block, but never left out by sampling, because a range may end in parts.
#[inline(always)]
pub fn mapped(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    if thread.writer.room() {
        let (python, native) = stacks::current(thread);
        if python != UNRECORDED_NODE {
            thread.writer.allocation(kind, address, bytes, python, native);
        }
    }
}

#[inline(always)]
fn freed(thread: &mut Thread, kind: u8, address: usize) -> bool {
    code_end::note(thread);
    let took = sample::took(address);
    if took {
        thread.writer.release(kind, address, 0);
    }
    took
}

/// Takes back the free that was recorded before `realloc` was called: `realloc` failed, so the block is still live.
#[cold]
pub fn undone(thread: &mut Thread, address: usize) {
    sample::keep(address);
    thread.writer.release(kind::REALLOC_UNDO, address, 0);
}

/// A request got nothing.
#[cold]
#[inline(never)]
pub fn failed(thread: &mut Thread, kind: u8, errno: i32, bytes: usize) {
    if !thread.writer.room() {
        return;
    }
    let (python, native) = stacks::current(thread);
    if python == UNRECORDED_NODE {
        return;
    }
    let (limit, used, resident) = limits();
    let payload = [limit.to_le_bytes(), used.to_le_bytes(), resident.to_le_bytes()];
    thread.writer.definition(definition::LIMITS, 0, &[payload.as_flattened()]);
    thread.writer.failed(kind, errno, bytes, python, native);
    ends::failed_request(false, bytes as u64);
}

/// RLIMIT_AS, the address space in use, and resident bytes.
fn limits() -> (u64, u64, u64) {
    const UNKNOWN: u64 = u64::MAX;
    let mut buffer = [0; 128];
    let statm = sys::read_file(b"/proc/self/statm\0", &mut buffer);
    let mut pages = statm
        .split(|byte| *byte == b' ')
        .map(|field| core::str::from_utf8(field).ok().and_then(|field| field.trim().parse::<u64>().ok()));
    let mut bytes = || pages.next().flatten().map_or(UNKNOWN, |pages| pages.saturating_mul(4096));
    (sys::limit(libc::RLIMIT_AS), bytes(), bytes())
}
