//! What the hooks have to say, as records. Must be called inside [`Inside::record`](crate::thread::Inside::record) only.

use stormlog_capture::record::{definition, kind};

use crate::sample;
use crate::stacks;
use crate::sys;
use crate::thread::Thread;

/// A block was given out.
#[inline(never)]
pub fn allocated(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    match stacks::unchanged(thread) {
        Some(python) if thread.writer.allocation_again(kind, address, bytes, python) => {}
        _ => allocated_elsewhere(thread, kind, address, bytes),
    }
}

#[inline(never)]
fn allocated_elsewhere(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    if sample::takes(thread, address, bytes) {
        mapped(thread, kind, address, bytes);
    }
}

/// A mapping was made: like a block, but never left out by sampling, because a range may end in parts.
#[inline(always)]
pub fn mapped(thread: &mut Thread, kind: u8, address: usize, bytes: usize) {
    if thread.writer.room() {
        let (python, native) = stacks::current(thread);
        thread.writer.allocation(kind, address, bytes, python, native);
    }
}

/// A block comes to its end. Says whether it was recorded.
#[inline(always)]
pub fn freed(thread: &mut Thread, kind: u8, address: usize) -> bool {
    let took = sample::took(address);
    if took {
        thread.writer.release(kind, address, 0);
    }
    took
}

/// The end of a block was announced, but it lives on.
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
    let (limit, used, resident) = limits();
    let payload = [limit.to_le_bytes(), used.to_le_bytes(), resident.to_le_bytes()];
    thread.writer.definition(definition::LIMITS, 0, &[payload.as_flattened()]);
    let (python, native) = stacks::current(thread);
    thread.writer.failed(kind, errno, bytes, python, native);
}

/// RLIMIT_AS, the address space in use, and resident bytes.
fn limits() -> (u64, u64, u64) {
    const UNKNOWN: u64 = u64::MAX;
    let mut limit = libc::rlimit { rlim_cur: UNKNOWN, rlim_max: UNKNOWN };
    // SAFETY: the kernel fills `limit`.
    let _ = unsafe {
        sys::call(libc::SYS_prlimit64, [0, libc::RLIMIT_AS as usize, 0, &raw mut limit as usize, 0, 0])
    };
    let mut buffer = [0; 128];
    let statm = sys::read_file(b"/proc/self/statm\0", &mut buffer);
    let mut pages = statm
        .split(|byte| *byte == b' ')
        .map(|field| core::str::from_utf8(field).ok().and_then(|field| field.trim().parse::<u64>().ok()));
    let mut bytes = || pages.next().flatten().map_or(UNKNOWN, |pages| pages.saturating_mul(4096));
    (limit.rlim_cur, bytes(), bytes())
}
