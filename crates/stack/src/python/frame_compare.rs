//! Frames in memory compared with the entries kept of them. Must read no frame that is not known to be alive, or on the page of one that is.

use super::layout::Layout;
use super::stack::{EMPTY, Entry};
use super::{Interpreter, load};

/// The smallest page of memory there is.
const PAGE: usize = 4096;

/// 3.11: where a C frame keeps the current frame.
const CFRAME: u16 = match Layout::V3_11.cframe_frame {
    Some(at) => at,
    None => 0,
};
const _: () = assert!(CFRAME > 0);

/// Where a frame keeps the frame that called it, and its instruction. 3.11 has one layout, so the compiler may know it.
#[inline(always)]
fn places<const ENTRY: bool>(interpreter: &Interpreter) -> (u16, u16) {
    let layout = if ENTRY { &Layout::V3_11 } else { &interpreter.layout };
    (layout.frame_previous, layout.frame_instruction)
}

/// # Safety
/// `frame` is a live frame. `ENTRY`: the layout is that of 3.11.
#[inline(always)]
pub(super) unsafe fn read<const ENTRY: bool>(interpreter: &Interpreter, frame: usize) -> Entry {
    let (previous, instruction) = places::<ENTRY>(interpreter);
    // SAFETY: the caller guarantees that `frame` is a live frame of the interpreter.
    unsafe {
        Entry {
            previous: load(frame, previous),
            instruction: load(frame, instruction),
            entry: match Layout::V3_11.frame_entry {
                Some(at) if ENTRY => load::<u8>(frame, at) != 0,
                _ => false,
            },
            frame,
            ..EMPTY
        }
    }
}

/// Whether the frames below the one of `kept`, above that of `last`, are as they were kept.
///
/// # Safety
/// The entries exist, the frame of `kept` is alive, and hangs on that of the entry below.
#[inline(always)]
pub(super) unsafe fn below_as_kept<const ENTRY: bool, const COMPARED: bool, const DEEP: bool>(
    interpreter: &Interpreter,
    last: *const Entry,
    kept: *const Entry,
) -> bool {
    // SAFETY: a frame, or a run of them, is read only after the frame above was found to hang on it.
    unsafe {
        let mut at = kept.sub(1);
        while at > last {
            let end = if DEEP { at.sub(usize::from((*at).run)).max(last) } else { at.sub(1) };
            if DEEP {
                if !as_kept::<ENTRY, COMPARED>(interpreter, end.add(1), at) {
                    return false;
                }
            } else {
                let now = read::<ENTRY>(interpreter, (*at).frame);
                if now.previous != (*at).previous || now.instruction != (*at).instruction {
                    return false;
                }
            }
            at = end;
        }
        true
    }
}

/// The top frame of a thread.
///
/// # Safety
/// `thread_state` is this thread's and not null. `ENTRY`: the layout is that of 3.11.
#[inline(always)]
pub(super) unsafe fn top_of<const ENTRY: bool>(interpreter: &Interpreter, thread_state: *const u8) -> usize {
    // SAFETY: the caller guarantees that `thread_state` is this thread's and not null; the C frame is part of it or on this
    // thread's stack.
    unsafe {
        if !ENTRY {
            return interpreter.top_frame(thread_state);
        }
        let frame = load(thread_state as usize, Layout::V3_11.thread_frame);
        if frame == 0 { 0 } else { load(frame, CFRAME) }
    }
}

/// Whether the frames of the entries from `at` down to `end` are as they were kept.
///
/// # Safety
/// The entries exist; the frame of `at` is alive, and those of the others are on its page of memory.
#[inline(always)]
unsafe fn as_kept<const ENTRY: bool, const COMPARED: bool>(
    interpreter: &Interpreter,
    end: *const Entry,
    mut at: *const Entry,
) -> bool {
    // SAFETY: the caller guarantees that the entries exist, that the frame of `at` is alive, and that the others are on its
    // page of memory.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if ENTRY {
            return super::x86_64::frame_compare::as_kept::<COMPARED>(end, at);
        }
        let mut differences = 0;
        while at >= end {
            let (kept, now) = (&*at, read::<ENTRY>(interpreter, (*at).frame));
            differences |= (now.previous ^ kept.previous) | (now.instruction ^ kept.instruction);
            if COMPARED {
                differences |= usize::from(now.entry) ^ usize::from(kept.entry);
            }
            at = at.sub(1);
        }
        differences == 0
    }
}

/// Whether what [`as_kept`] reads of frame `outer` is on the page where that of frame `inner` begins.
#[inline(always)]
pub(super) fn on_one_page<const ENTRY: bool>(interpreter: &Interpreter, inner: usize, outer: usize) -> bool {
    let (previous, instruction) = places::<ENTRY>(interpreter);
    let entry = Layout::V3_11.frame_entry.filter(|_| ENTRY).unwrap_or(0);
    let first = usize::from(previous.min(instruction));
    let last = usize::from(previous.max(instruction).max(entry)) + 7;
    let page = |address: usize| address / PAGE;
    page(outer + first) == page(inner + first) && page(outer + last) == page(inner + first)
}
