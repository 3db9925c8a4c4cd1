//! Walks the stack at every request to Python's allocators, both ways, and counts the differences.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{TREE, both_walks, frames, python_symbol, same};

#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

// SAFETY: Python's allocators are called from every thread as they are.
unsafe impl Send for Allocator {}

type Access = unsafe extern "C" fn(i32, *mut Allocator);

static REAL: Mutex<[Option<Allocator>; 3]> = Mutex::new([None; 3]);
static EVENTS: AtomicU64 = AtomicU64::new(0);
static DIFFERENT: AtomicU64 = AtomicU64::new(0);
static NATIVE_TOO: AtomicBool = AtomicBool::new(false);
static NATIVE_DIFFERENT: AtomicU64 = AtomicU64::new(0);
static DEEPEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn event() {
    if INSIDE.replace(true) {
        return;
    }
    let mut tree = TREE.lock().unwrap();
    let (node, plain) = both_walks(&mut tree);
    let cached = frames(&tree, node);
    drop(tree);
    EVENTS.fetch_add(1, Relaxed);
    DEEPEST.fetch_max(plain.len() as u64, Relaxed);
    if !same(&cached, &plain) {
        DIFFERENT.fetch_add(1, Relaxed);
    }
    if NATIVE_TOO.load(Relaxed) && !crate::native::compare() {
        NATIVE_DIFFERENT.fetch_add(1, Relaxed);
    }
    INSIDE.set(false);
}

fn real(context: *mut c_void) -> Allocator {
    REAL.lock().unwrap()[context as usize].unwrap()
}
unsafe extern "C" fn malloc(context: *mut c_void, size: usize) -> *mut c_void {
    event();
    let real = real(context);
    // SAFETY: the request as it came, to the allocator it was for.
    unsafe { (real.malloc)(real.context, size) }
}
unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    event();
    let real = real(context);
    // SAFETY: the request as it came, to the allocator it was for.
    unsafe { (real.calloc)(real.context, count, size) }
}
unsafe extern "C" fn realloc(context: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    event();
    let real = real(context);
    // SAFETY: the request as it came, to the allocator it was for.
    unsafe { (real.realloc)(real.context, block, size) }
}
unsafe extern "C" fn free(context: *mut c_void, block: *mut c_void) {
    let real = real(context);
    // SAFETY: the request as it came, to the allocator it was for.
    unsafe { (real.free)(real.context, block) }
}

/// Call with the GIL held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_trace(on: i32, native_too: i32) {
    NATIVE_TOO.store(native_too != 0, Relaxed);
    // SAFETY: the function of that name has this signature.
    let get: Access = unsafe { std::mem::transmute(python_symbol(c"PyMem_GetAllocator")) };
    // SAFETY: the function of that name has this signature.
    let set: Access = unsafe { std::mem::transmute(python_symbol(c"PyMem_SetAllocator")) };
    for (domain, kept) in REAL.lock().unwrap().iter_mut().enumerate() {
        // SAFETY: the caller holds the GIL; `get` fills the whole structure, `set` copies it.
        unsafe {
            if on != 0 {
                let mut real = std::mem::MaybeUninit::<Allocator>::uninit();
                get(domain as i32, real.as_mut_ptr());
                *kept = Some(real.assume_init());
                let mut ours = Allocator { context: domain as *mut c_void, malloc, calloc, realloc, free };
                set(domain as i32, &mut ours);
            } else if let Some(mut real) = *kept {
                set(domain as i32, &mut real);
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_trace_counts(
    events: *mut u64,
    different: *mut u64,
    deepest: *mut u64,
    native: *mut u64,
) {
    // SAFETY: the caller guarantees that all four pointers can be written to.
    unsafe {
        *events = EVENTS.load(Relaxed);
        *different = DIFFERENT.load(Relaxed);
        *deepest = DEEPEST.load(Relaxed);
        *native = NATIVE_DIFFERENT.load(Relaxed);
    }
}
