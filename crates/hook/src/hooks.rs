//! The C allocator's functions. Each calls the real one and records; a block's end is recorded before the real call, its beginning
//! after it, so that the records of one address are in true order whatever the threads do. Must never change what the program gets.

use core::ffi::{c_int, c_void};
use core::mem::transmute;

use stormlog_capture::record::kind;

use crate::bootstrap_heap;
use crate::events;
use crate::framework;
use crate::libc_symbols::{self, Function};
use crate::thread::Inside;

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type AllocateTwo = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Resize = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type ResizeArray = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Release = unsafe extern "C" fn(*mut c_void);
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

/// Records what came of a request of `bytes`.
#[inline(always)]
fn record(inside: &mut Inside, kind: u8, block: *mut c_void, bytes: usize) {
    if block.is_null() {
        if bytes > 0 {
            let errno = libc_symbols::errno();
            inside.record(|thread| events::failed(thread, kind, errno, bytes));
            libc_symbols::set_errno(errno);
        }
    } else {
        events::begun(inside, kind, block as usize, bytes);
    }
}

/// Calls `$function` as a `$type`, or gives `$otherwise` when there is none.
macro_rules! call {
    ($function:expr, $type:ty, ($($argument:expr),*), $otherwise:expr) => {{
        let address = $function.get();
        if address == 0 {
            $otherwise
        } else {
            // SAFETY: the address is that of the real function of this name, which has this type; the arguments are the caller's.
            unsafe { transmute::<usize, $type>(address)($($argument),*) }
        }
    }};
}
pub(crate) use call;

/// See `malloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let Some(mut inside) = Inside::enter() else {
        return call!(libc_symbols::MALLOC, Allocate, (bytes), bootstrap_heap::take(bytes));
    };
    let block = call!(libc_symbols::MALLOC, Allocate, (bytes), bootstrap_heap::take(bytes));
    record(&mut inside, kind::MALLOC, block, bytes);
    block
}

/// See `calloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    let Some(mut inside) = Inside::enter() else {
        return call!(libc_symbols::CALLOC, AllocateTwo, (count, size), bootstrap_heap::take(bytes));
    };
    let block = call!(libc_symbols::CALLOC, AllocateTwo, (count, size), bootstrap_heap::take(bytes));
    record(&mut inside, kind::CALLOC, block, bytes);
    block
}

/// See `realloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    resize(block, bytes, || call!(libc_symbols::REALLOC, Resize, (block, bytes), core::ptr::null_mut()))
}

/// See `reallocarray(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    resize(block, bytes, || {
        call!(libc_symbols::REALLOCARRAY, ResizeArray, (block, count, size), {
            call!(libc_symbols::REALLOC, Resize, (block, bytes), core::ptr::null_mut())
        })
    })
}

#[inline(always)]
fn resize(block: *mut c_void, bytes: usize, resize: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if bootstrap_heap::owns(block) {
        return move_out(block, bytes);
    }
    let Some(mut inside) = Inside::enter() else { return resize() };
    let known = !block.is_null() && events::ended(&mut inside, kind::REALLOC_TAKE, block as usize);
    let moved = resize();
    if moved.is_null() && bytes > 0 && known {
        let errno = libc_symbols::errno();
        inside.record(|thread| events::undone(thread, block as usize));
        libc_symbols::set_errno(errno);
    }
    record(&mut inside, kind::REALLOC, moved, bytes);
    moved
}

#[cold]
fn move_out(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: `malloc` may be called with any size.
    let moved = unsafe { malloc(bytes) };
    if !moved.is_null() {
        // SAFETY: how long the old block was is not known, but what is copied may be read and fits the new one.
        unsafe {
            moved
                .cast::<u8>()
                .copy_from_nonoverlapping(block.cast(), bytes.min(bootstrap_heap::readable(block)))
        };
        bootstrap_heap::give(block);
    }
    moved
}

/// See `free(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    release(block, || call!(libc_symbols::FREE, Release, (block), ()));
}

/// The old name of [`free`].
///
/// # Safety
/// As [`free`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    release(block, || call!(libc_symbols::FREE, Release, (block), ()));
}

/// C23's `free` with a size, which is only a hint.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _size: usize) {
    release(block, || call!(libc_symbols::FREE, Release, (block), ()));
}

/// C23's `free` with alignment and size, which are only hints.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _alignment: usize, _size: usize) {
    release(block, || call!(libc_symbols::FREE, Release, (block), ()));
}

#[inline(always)]
fn release(block: *mut c_void, free: impl FnOnce()) {
    if block.is_null() {
        return;
    }
    if bootstrap_heap::owns(block) {
        return bootstrap_heap::give(block);
    }
    let Some(mut inside) = Inside::enter_release() else { return free() };
    events::ended(&mut inside, kind::FREE, block as usize);
    free();
}

/// See `posix_memalign(3)`; `caller` is where it returns to.
///
/// # Safety
/// As the real function.
pub unsafe extern "C" fn posix_memalign_from(
    place: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
    caller: usize,
) -> c_int {
    let Some(mut inside) = Inside::enter() else {
        return call!(libc_symbols::POSIX_MEMALIGN, PosixMemalign, (place, alignment, bytes), libc::ENOMEM);
    };
    let result = call!(libc_symbols::POSIX_MEMALIGN, PosixMemalign, (place, alignment, bytes), libc::ENOMEM);
    let kind = if framework::makes_tensors(caller) { kind::TENSOR } else { kind::POSIX_MEMALIGN };
    if result == 0 {
        // SAFETY: filled by the real function, which succeeded.
        record(&mut inside, kind, unsafe { *place }, bytes);
    } else if result == libc::ENOMEM {
        inside.record(|thread| events::failed(thread, kind, result, bytes));
    }
    result
}

#[inline(always)]
fn aligned(function: &Function, kind: u8, alignment: usize, bytes: usize) -> *mut c_void {
    let Some(mut inside) = Inside::enter() else {
        return call!(function, AllocateTwo, (alignment, bytes), core::ptr::null_mut());
    };
    let block = call!(function, AllocateTwo, (alignment, bytes), core::ptr::null_mut());
    record(&mut inside, kind, block, bytes);
    block
}

/// See `aligned_alloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    aligned(&libc_symbols::ALIGNED_ALLOC, kind::ALIGNED_ALLOC, alignment, bytes)
}

/// See `memalign(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    aligned(&libc_symbols::MEMALIGN, kind::MEMALIGN, alignment, bytes)
}

#[inline(always)]
fn by_pages(function: &Function, kind: u8, bytes: usize) -> *mut c_void {
    let Some(mut inside) = Inside::enter() else {
        return call!(function, Allocate, (bytes), core::ptr::null_mut());
    };
    let block = call!(function, Allocate, (bytes), core::ptr::null_mut());
    record(&mut inside, kind, block, bytes);
    block
}

/// See `valloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    by_pages(&libc_symbols::VALLOC, kind::VALLOC, bytes)
}

/// See `pvalloc(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    by_pages(&libc_symbols::PVALLOC, kind::PVALLOC, bytes)
}
