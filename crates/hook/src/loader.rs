//! Libraries that come and go. `dlopen` and its kin are passed on by a jump, so that the C library sees its true caller (whose
//! RUNPATH it searches); this thread's first event after the call, or its next `dlsym`, then looks at what is loaded. Must never hold up the
//! loader, nor wait for it for ever (see `loader_lock`), nor read its list from an allocation of its own.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::framework;
use crate::got;
use crate::libc_symbols;
use crate::loader_lock;
use crate::session;
use crate::stacks;
use crate::thread::{Inside, Thread};

/// Events of a thread inside (or perhaps long past) a `dlopen` before it looks all the same. The loader itself makes some ten allocations for a library.
const MAX_EVENTS: u32 = 100_000;

/// What was last seen of the loader. All zeroes: nothing yet.
#[repr(C)]
pub struct Modules {
    added: AtomicU64,
    removed: AtomicU64,
}

impl Modules {
    /// Nothing has been seen.
    pub fn clear(&self) {
        self.added.store(0, Ordering::Relaxed);
        self.removed.store(0, Ordering::Relaxed);
    }
}

/// Has a new thread look at its next allocation, if no thread has in this recording.
pub fn look_soon(thread: &mut Thread) {
    if session::current().is_some_and(|state| state.modules.added.load(Ordering::Acquire) == 0) {
        thread.loading = 1;
    }
}

/// Takes note of libraries loaded or unloaded since the last look, once the call that loads them has returned.
///
/// In the middle of a `dlopen` an allocation may be the loader's own. glibc numbers the thread-local storage of a new library before its table
/// has an entry for it, and `dl_iterate_phdr` then reads past the table's end (seen with glibc 2.36 and 2.39, from the 64th such library on).
pub fn look(thread: &mut Thread) {
    if loader_lock::with(|| look_through(thread)).is_none() {
        thread.loading = 0;
    }
}

fn look_through(thread: &mut Thread) {
    let Some(state) = session::current() else { return };
    thread.events_inside += 1;
    if is_inside_call(thread) && thread.events_inside < MAX_EVENTS {
        return;
    }
    thread.loading = 0;
    let now = counters();
    let before = (
        state.modules.added.swap(now.0, Ordering::AcqRel),
        state.modules.removed.swap(now.1, Ordering::AcqRel),
    );
    // Another thread may have looked while this one's libraries were half loaded.
    if before != now || thread.counters_before != now {
        stacks::libraries_changed(thread);
        framework::libraries_changed(thread);
        // What another thread is just loading is not ready: then that thread, when it is, must not find that all was seen.
        if !libc_symbols::is_preloaded() && !got::patch() {
            state.modules.clear();
        }
    }
}

/// Whether the call that may change libraries has not returned: its return address is still where it was.
fn is_inside_call(thread: &Thread) -> bool {
    let here = core::ptr::from_ref(&thread) as usize;
    // SAFETY: above this frame the thread's own stack is readable, and there is the call's return address, until another call from there.
    here < thread.loading && unsafe { *(thread.loading as *const usize) } == thread.returns_to
}

/// The loader's own counts of libraries added and removed.
fn counters() -> (u64, u64) {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, counts: *mut c_void) -> c_int {
        // SAFETY: `counts` is the pair below; `info` is the loader's.
        unsafe { *counts.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        1
    }
    let mut counts = (0, 0);
    // SAFETY: the callback casts the pointer back to the pair it was made from, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    counts
}

/// True when a library is loaded whose path has this in it.
pub fn is_loaded(part: &[u8]) -> bool {
    unsafe extern "C" fn next(info: *mut libc::dl_phdr_info, _: usize, part: *mut c_void) -> c_int {
        // SAFETY: `part` is the slice below; `info` is the loader's.
        let (name, part) = unsafe { (libc_symbols::text((*info).dlpi_name), *part.cast::<&[u8]>()) };
        c_int::from(name.windows(part.len()).any(|window| window == part))
    }
    let mut part = part;
    // SAFETY: the callback casts the pointer back to the slice it was made from, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(next), (&raw mut part).cast()) != 0 }
}

/// Called by the jumps of `x86_64/loader.rs`: remembers that libraries may change from here on, and says where to continue.
pub extern "C" fn begin(frame: usize, which: usize) -> usize {
    let function = [&libc_symbols::DLOPEN, &libc_symbols::DLCLOSE, &libc_symbols::DLMOPEN][which.min(2)];
    if let Some(mut inside) = Inside::enter_library() {
        inside.record(|thread| {
            if thread.loading < frame {
                thread.loading = frame;
                // SAFETY: the jump passed where its return address is.
                thread.returns_to = unsafe { *(frame as *const usize) };
                thread.counters_before = loader_lock::with(counters).unwrap_or_default();
            }
            thread.events_inside = 0;
        });
    }
    function.get()
}

/// Called before `dlsym`: what is requested by name will soon be called, so its library must be ready.
pub extern "C" fn before_symbol() -> usize {
    // Entering the recorder scans the loaded libraries if one may have changed.
    drop(Inside::enter_library());
    libc_symbols::DLSYM.get()
}
