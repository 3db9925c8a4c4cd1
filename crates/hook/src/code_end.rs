//! The moment when the program's own Python code has ended: CPython sets a word of `_PyRuntime` after the exit handlers and before it shuts
//! down, and the first block that is freed after that writes the record. Must cost next to nothing until then: every free looks at the word.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use stormlog_capture::record::definition;

use crate::thread::Thread;

/// CPython's word, null before the end; or [`NEVER`].
static WORD: AtomicPtr<AtomicPtr<u8>> = AtomicPtr::new((&raw const NEVER).cast_mut());
static NEVER: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Looks at CPython's word from now on.
pub fn follow(word: &'static AtomicPtr<u8>) {
    WORD.store(core::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
}

/// Whether the moment has come and is not written down.
#[inline(always)]
pub fn has_come() -> bool {
    let word = WORD.load(Ordering::Relaxed);
    // SAFETY: `NEVER`, or a word of `_PyRuntime`, which is there as long as the process.
    !unsafe { &*word }.load(Ordering::Relaxed).is_null()
}

/// Writes the record if the moment has come; to be called before the end of a block is recorded.
#[inline(always)]
pub fn note(thread: &mut Thread) {
    if has_come() {
        write(thread, WORD.load(Ordering::Relaxed));
    }
}

#[cold]
#[inline(never)]
fn write(thread: &mut Thread, word: *mut AtomicPtr<u8>) {
    let never = (&raw const NEVER).cast_mut();
    // Once a process, by whichever thread is first.
    if WORD.compare_exchange(word, never, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        && thread.writer.ready()
    {
        thread.writer.definition(definition::CODE_ENDED, 0, &[]);
    }
}
