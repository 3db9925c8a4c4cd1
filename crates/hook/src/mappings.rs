//! Memory straight from the kernel: mappings and the data segment. What an allocator maps for itself is not recorded: the program asked the
//! allocator, and that is recorded. Must never change what the program gets.

use core::ffi::{c_int, c_void};
use core::mem::transmute;

use stormlog_capture::record::kind;

use crate::code_end;
use crate::events;
use crate::hooks::call;
use crate::libc_symbols::{self, Function};
use crate::sys;
use crate::thread::Inside;

type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, libc::off_t) -> *mut c_void;
type Unmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Remap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;
type Sbrk = unsafe extern "C" fn(libc::intptr_t) -> *mut c_void;

/// The kernel's own answer, for when the real function is not known yet: an allocator behind this one may map while it is looked up.
#[cold]
fn ask_kernel(number: i64, arguments: [usize; 6]) -> usize {
    // SAFETY: the arguments are those of the program's own call.
    unsafe { sys::call(number, arguments) }.unwrap_or_else(|errno| {
        libc_symbols::set_errno(errno);
        usize::MAX
    })
}

const FAILED: *mut c_void = libc::MAP_FAILED;

/// Records a request that failed with ENOMEM; other errors are mistakes of the caller and are not recorded.
#[cold]
fn failed(mut inside: Inside, kind: u8, bytes: usize) {
    let errno = libc_symbols::errno();
    if errno == libc::ENOMEM {
        inside.record(|thread| events::failed(thread, kind, errno, bytes));
        libc_symbols::set_errno(errno);
    }
}

#[inline(always)]
fn map(
    function: &Function,
    a: *mut c_void,
    bytes: usize,
    b: c_int,
    c: c_int,
    d: c_int,
    e: libc::off_t,
) -> *mut c_void {
    let inside = Inside::enter();
    let address = call!(function, Map, (a, bytes, b, c, d, e), {
        ask_kernel(libc::SYS_mmap, [a as usize, bytes, b as usize, c as usize, d as usize, e as usize])
            as *mut c_void
    });
    if let Some(mut inside) = inside {
        if address == FAILED {
            failed(inside, kind::MMAP, bytes);
        } else if b == libc::PROT_NONE {
            // Addresses only: nothing can be held there. CUDA reserves as many as it has device memory, and more.
            if c & libc::MAP_FIXED != 0 {
                // What was mapped there is gone.
                inside.record(|thread| thread.writer.release(kind::MUNMAP, address as usize, bytes));
            }
        } else {
            inside.record(|thread| events::mapped(thread, kind::MMAP, address as usize, bytes));
        }
    }
    address
}

/// See `mmap(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    a: *mut c_void,
    bytes: usize,
    b: c_int,
    c: c_int,
    d: c_int,
    e: libc::off_t,
) -> *mut c_void {
    map(&libc_symbols::MMAP, a, bytes, b, c, d, e)
}

/// See `mmap(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    a: *mut c_void,
    bytes: usize,
    b: c_int,
    c: c_int,
    d: c_int,
    e: libc::off_t,
) -> *mut c_void {
    map(&libc_symbols::MMAP64, a, bytes, b, c, d, e)
}

/// See `munmap(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    let inside = Inside::enter_release();
    // What the kernel refuses is not recorded; this is all that it refuses but for exhaustion.
    if let Some(mut inside) = inside
        && bytes > 0
        && (address as usize).is_multiple_of(4096)
    {
        inside.record(|thread| {
            code_end::note(thread);
            thread.writer.release(kind::MUNMAP, address as usize, bytes);
        });
        return unmap(address, bytes);
    }
    unmap(address, bytes)
}

fn unmap(address: *mut c_void, bytes: usize) -> c_int {
    call!(libc_symbols::MUNMAP, Unmap, (address, bytes), {
        ask_kernel(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) as c_int
    })
}

/// See `mremap(2)`. Recorded when it has succeeded: a mapping that could not grow keeps the stack that made it.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    had: usize,
    bytes: usize,
    flags: c_int,
    at: *mut c_void,
) -> *mut c_void {
    let inside = Inside::enter();
    let new = call!(libc_symbols::MREMAP, Remap, (old, had, bytes, flags, at), {
        ask_kernel(libc::SYS_mremap, [old as usize, had, bytes, flags as usize, at as usize, 0])
            as *mut c_void
    });
    if let Some(mut inside) = inside {
        if new == FAILED {
            failed(inside, kind::MREMAP, bytes);
        } else {
            inside.record(|thread| {
                if had > 0 {
                    thread.writer.release(kind::MUNMAP, old as usize, had);
                }
                events::mapped(thread, kind::MREMAP, new as usize, bytes);
            });
        }
    }
    new
}

/// Records that the data segment's end went from `before` to `after`.
fn moved(inside: &mut Inside, before: usize, after: usize) {
    inside.record(|thread| {
        if after > before {
            events::mapped(thread, kind::BRK, before, after - before);
        } else if before > after {
            thread.writer.release(kind::MUNMAP, after, before - after);
        }
    });
}

/// See `brk(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let inside = Inside::enter();
    let before = if inside.is_some() { call!(libc_symbols::SBRK, Sbrk, (0), FAILED) } else { FAILED };
    let result = call!(libc_symbols::BRK, Brk, (end), -1);
    if let Some(mut inside) = inside
        && before != FAILED
    {
        if result == 0 {
            moved(&mut inside, before as usize, end as usize);
        } else {
            failed(inside, kind::BRK, (end as usize).saturating_sub(before as usize));
        }
    }
    result
}

/// See `sbrk(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sbrk(growth: libc::intptr_t) -> *mut c_void {
    let inside = if growth == 0 { None } else { Inside::enter() };
    let before = call!(libc_symbols::SBRK, Sbrk, (growth), FAILED);
    if let Some(mut inside) = inside {
        if before == FAILED {
            failed(inside, kind::BRK, growth.max(0) as usize);
        } else {
            moved(&mut inside, before as usize, (before as usize).wrapping_add_signed(growth));
        }
    }
    before
}
