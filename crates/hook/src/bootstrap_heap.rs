//! Blocks that this library allocates although the program frees them: what `dlsym` requests before the real functions are known, and the
//! words that CPython 3.11 keeps with its code objects for us. They are in memory of our own, so that neither the allocation nor the free of such
//! a block is recorded as one of the program's. Must never give out what another thread has.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes for `dlsym`; never given back.
const FIRST: usize = 16 * 1024;
/// Bytes of all; only what is used takes memory.
const SIZE: usize = 2 << 20;
/// Bytes of each of the pieces behind the first part.
const PIECE: usize = 32;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);
// SAFETY: each byte belongs to one block at a time: the atomic counters hand out disjoint pieces.
unsafe impl Sync for Memory {}
static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));

static FIRST_USED: AtomicUsize = AtomicUsize::new(0);
static PIECES_USED: AtomicUsize = AtomicUsize::new(FIRST);
/// The pieces that came back, each pointing to the next. A thread that finds the list in use does without it: a request goes to the C library, a returned
/// piece stays unused.
static FREE: AtomicUsize = AtomicUsize::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);

/// Zeroed memory, aligned to 16; null when it is used up.
#[cold]
pub fn take(bytes: usize) -> *mut c_void {
    let bytes = bytes.max(1).next_multiple_of(16);
    let at = FIRST_USED.fetch_add(bytes.min(FIRST + 16), Ordering::Relaxed);
    if bytes > FIRST || at > FIRST - bytes { null_mut() } else { place(at) }
}

/// A piece for a few words, from the C library where there is none here. Only for a process in which every `free` is ours.
///
/// # Safety
/// None is requested; it is the type of `malloc`.
pub unsafe extern "C" fn take_words(bytes: usize) -> *mut c_void {
    let mut piece = null_mut();
    if bytes <= PIECE && !BUSY.swap(true, Ordering::Acquire) {
        let first = FREE.load(Ordering::Relaxed);
        if first != 0 {
            // SAFETY: a piece in the list is free and begins with the next one; the list is ours for the moment.
            FREE.store(unsafe { *(first as *const usize) }, Ordering::Relaxed);
            piece = first as *mut c_void;
        } else if PIECES_USED.load(Ordering::Relaxed) < SIZE {
            piece = place(PIECES_USED.fetch_add(PIECE, Ordering::Relaxed));
        }
        BUSY.store(false, Ordering::Release);
    }
    if !piece.is_null() {
        return piece;
    }
    let real = crate::libc_symbols::MALLOC.known();
    // SAFETY: `real` is 0 or the address of the C library's `malloc`, which has this type.
    if real == 0 { null_mut() } else { unsafe { core::mem::transmute::<usize, Malloc>(real)(bytes) } }
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;

/// Takes a block back, which is [owned](owns).
#[cold]
pub fn give(block: *mut c_void) {
    let offset = block as usize - MEMORY.0.get() as usize;
    if offset < FIRST || !offset.is_multiple_of(PIECE) || BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    // SAFETY: a piece from `take_words` that its owner frees.
    unsafe { *block.cast::<usize>() = FREE.load(Ordering::Relaxed) };
    FREE.store(block as usize, Ordering::Relaxed);
    BUSY.store(false, Ordering::Release);
}

/// A forked child has only this thread: another thread at the list had taken a piece off it or not yet.
pub fn after_fork() {
    BUSY.store(false, Ordering::Release);
}

/// Bytes that may be read from `block`, which is [owned](owns).
pub fn readable(block: *mut c_void) -> usize {
    let offset = block as usize - MEMORY.0.get() as usize;
    if offset < FIRST { FIRST - offset } else { PIECE - offset % PIECE }
}

/// True for memory from here.
#[inline(always)]
pub fn owns(block: *mut c_void) -> bool {
    (block as usize).wrapping_sub(MEMORY.0.get() as usize) < SIZE
}

fn place(offset: usize) -> *mut c_void {
    // SAFETY: `take` keeps `offset` below FIRST, `take_words` below SIZE.
    unsafe { MEMORY.0.get().cast::<u8>().add(offset).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_are_used_again() {
        let words = || {
            // SAFETY: the pieces are only compared, never written to.
            unsafe { take_words(16) }
        };
        let (first, second) = (words(), words());
        assert!(owns(first) && owns(second) && first != second);
        assert_eq!(readable(first), PIECE);
        give(first);
        give(second);
        assert_eq!((words(), words()), (second, first));
        assert!(!owns((&raw const PIECES_USED).cast_mut().cast()));
    }

    #[test]
    fn the_first_part_ends() {
        let first = take(100);
        assert!(owns(first) && (first as usize).is_multiple_of(16));
        assert!(take(FIRST + 1).is_null() && take(usize::MAX - 64).is_null());
        give(first);
        assert_ne!(take(100), first, "never given back");
    }
}
