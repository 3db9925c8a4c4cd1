//! CPython's own allocators: one link put before the functions of each domain, with the GIL held, and taken out again. What such an
//! allocator asks of the C library is part of the request and is not recorded a second time. Must never call into Python but for that.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use stormlog_capture::record::kind;
use stormlog_stack::python::{CodeWatch, Interpreter};

use crate::bootstrap_heap;
use crate::events;
use crate::libc_symbols;
use crate::thread::Inside;

/// RAW, MEM and OBJ, as CPython numbers them.
const DOMAINS: usize = 3;

/// CPython's `PyMemAllocatorEx`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: Malloc,
    calloc: Calloc,
    realloc: Realloc,
    free: Free,
}

type Malloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);
type IsInitialized = unsafe extern "C" fn() -> c_int;
type GetOrSet = unsafe extern "C" fn(c_int, *mut Allocator);

struct Originals([UnsafeCell<Option<Allocator>>; DOMAINS]);
// SAFETY: written with the GIL held, before CPython knows the link that reads it.
unsafe impl Sync for Originals {}
static ORIGINALS: Originals = Originals([const { UnsafeCell::new(None) }; DOMAINS]);

const NOT_WANTED: u32 = 0;
const WANTED: u32 = 1;
const INSTALLED: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(NOT_WANTED);
/// The hooks cannot be removed after another library has put its own before them; they then stay, and only forward calls.
static LEFT_IN: AtomicBool = AtomicBool::new(false);

/// Says whether the recording wants these allocators.
pub fn want(wanted: bool) {
    let installed = LEFT_IN.load(Ordering::Relaxed);
    STATE.store(if wanted && !installed { WANTED } else { NOT_WANTED }, Ordering::Release);
}

/// The links are wanted and not yet in.
#[inline(always)]
pub fn is_wanted() -> bool {
    STATE.load(Ordering::Relaxed) == WANTED
}

/// Puts the links in if that is wanted and may be done now.
#[inline(always)]
pub fn install_if_wanted(interpreter: &Interpreter, watch: &CodeWatch, thread_state: *const u8) {
    if is_wanted() {
        install(interpreter, watch, thread_state);
    }
}

static GET: AtomicUsize = AtomicUsize::new(0);
static SET: AtomicUsize = AtomicUsize::new(0);
static INITIALIZED: AtomicUsize = AtomicUsize::new(0);

/// Finds CPython's functions. Looks up symbols.
pub fn find() {
    for (place, name) in
        [(&GET, c"PyMem_GetAllocator"), (&SET, c"PyMem_SetAllocator"), (&INITIALIZED, c"Py_IsInitialized")]
    {
        // SAFETY: a zero-terminated literal; `dlsym` only looks the name up.
        place.store(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize, Ordering::Release);
    }
}

/// `PyMem_GetAllocator`, `PyMem_SetAllocator` and `Py_IsInitialized`.
fn functions() -> Option<(GetOrSet, GetOrSet, IsInitialized)> {
    let [get, set, initialized] = [&GET, &SET, &INITIALIZED].map(|place| place.load(Ordering::Acquire));
    // SAFETY: CPython's functions of these types, when they are there.
    (get != 0 && set != 0 && initialized != 0).then(|| unsafe {
        (
            transmute::<usize, GetOrSet>(get),
            transmute::<usize, GetOrSet>(set),
            transmute::<usize, IsInitialized>(initialized),
        )
    })
}

#[cold]
fn install(interpreter: &Interpreter, watch: &CodeWatch, thread_state: *const u8) {
    // SAFETY: the only caller passes the thread state that CPython returned for this thread.
    if !unsafe { interpreter.holds_gil(thread_state) } {
        return;
    }
    let Some((get, set, initialized)) = functions() else {
        return STATE.store(NOT_WANTED, Ordering::Release);
    };
    // SAFETY: CPython's functions of these types; the GIL is held. The context stays what it was, so that a thread that reads old and
    // new fields of the RAW domain mixed still calls a function with the context it knows.
    unsafe {
        if !watch.plain_allocators() && initialized() == 0 {
            return; // while CPython starts, its debugging allocators may yet be put before others
        }
        for domain in 0..DOMAINS {
            let mut allocator = core::mem::MaybeUninit::<Allocator>::uninit();
            get(domain as c_int, allocator.as_mut_ptr());
            let original = allocator.assume_init();
            *ORIGINALS.0[domain].get() = Some(original);
            let mut link = link(domain, original.context);
            set(domain as c_int, &raw mut link);
        }
    }
    STATE.store(INSTALLED, Ordering::Release);
}

/// Takes the links out, if this thread holds the GIL and they are still the first of their chains.
///
/// # Safety
/// `thread_state` is this thread's.
pub unsafe fn remove(interpreter: &Interpreter, thread_state: *const u8) {
    if STATE.swap(NOT_WANTED, Ordering::AcqRel) != INSTALLED {
        return;
    }
    LEFT_IN.store(true, Ordering::Relaxed);
    // SAFETY: the caller guarantees that `thread_state` is this thread's.
    if !unsafe { interpreter.holds_gil(thread_state) } {
        return;
    }
    let Some((get, set, _)) = functions() else { return };
    let mut all = true;
    for domain in 0..DOMAINS {
        // SAFETY: CPython's functions of these types; the GIL is held, and the context stays what it was.
        unsafe {
            let mut allocator = core::mem::MaybeUninit::<Allocator>::uninit();
            get(domain as c_int, allocator.as_mut_ptr());
            let now = allocator.assume_init();
            let mine = link(domain, now.context);
            match *ORIGINALS.0[domain].get() {
                Some(mut original) if now.malloc as usize == mine.malloc as usize => {
                    set(domain as c_int, &raw mut original)
                }
                _ => all = false,
            }
        }
    }
    LEFT_IN.store(!all, Ordering::Relaxed);
}

fn link(domain: usize, context: *mut c_void) -> Allocator {
    match domain {
        0 => Link::<0>::allocator(context),
        1 => Link::<1>::allocator(context),
        _ => Link::<2>::allocator(context),
    }
}

/// The link of one domain.
struct Link<const DOMAIN: usize>;

impl<const DOMAIN: usize> Link<DOMAIN> {
    fn allocator(context: *mut c_void) -> Allocator {
        Allocator {
            context,
            malloc: Self::malloc,
            calloc: Self::calloc,
            realloc: Self::realloc,
            free: Self::free,
        }
    }

    #[inline(always)]
    fn original() -> Option<&'static Allocator> {
        // SAFETY: written before the link was put in, never while it is in.
        unsafe { (*ORIGINALS.0[DOMAIN].get()).as_ref() }
    }

    unsafe extern "C" fn malloc(context: *mut c_void, bytes: usize) -> *mut c_void {
        let Some(original) = Self::original() else { return core::ptr::null_mut() };
        // SAFETY: the original function with its own context and the caller's arguments.
        request(kind::PY_MALLOC, bytes, || unsafe { (original.malloc)(context, bytes) })
    }

    unsafe extern "C" fn calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
        let Some(original) = Self::original() else { return core::ptr::null_mut() };
        let bytes = count.saturating_mul(size);
        // SAFETY: the original function with its own context; CPython passes arguments that are valid for it.
        request(kind::PY_CALLOC, bytes, || unsafe { (original.calloc)(context, count, size) })
    }

    unsafe extern "C" fn realloc(context: *mut c_void, block: *mut c_void, bytes: usize) -> *mut c_void {
        let Some(original) = Self::original() else { return core::ptr::null_mut() };
        let Some(mut inside) = Inside::enter() else {
            // SAFETY: the original function with its own context; CPython passes arguments that are valid for it.
            return unsafe { (original.realloc)(context, block, bytes) };
        };
        let known = !block.is_null()
            && !bootstrap_heap::owns(block)
            && events::ended(&mut inside, kind::REALLOC_TAKE, block as usize);
        // SAFETY: the original function with its own context; CPython passes arguments that are valid for it.
        let moved = unsafe { (original.realloc)(context, block, bytes) };
        if moved.is_null() && known {
            let errno = libc_symbols::errno();
            inside.record(|thread| events::undone(thread, block as usize));
            libc_symbols::set_errno(errno);
        }
        finish(&mut inside, kind::PY_REALLOC, moved, bytes);
        moved
    }

    unsafe extern "C" fn free(context: *mut c_void, block: *mut c_void) {
        let Some(original) = Self::original() else { return };
        let inside = if block.is_null() || bootstrap_heap::owns(block) { None } else { Inside::enter() };
        if let Some(mut inside) = inside {
            events::ended(&mut inside, kind::PY_FREE, block as usize);
            // SAFETY: the original function with its own context; CPython passes arguments that are valid for it.
            return unsafe { (original.free)(context, block) };
        }
        // SAFETY: the original function with its own context; CPython passes arguments that are valid for it.
        unsafe { (original.free)(context, block) };
    }
}

#[inline(always)]
fn request(kind: u8, bytes: usize, allocate: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some(mut inside) = Inside::enter() else { return allocate() };
    let block = allocate();
    finish(&mut inside, kind, block, bytes);
    block
}

#[inline(always)]
fn finish(inside: &mut Inside, kind: u8, block: *mut c_void, bytes: usize) {
    if block.is_null() {
        inside.record(|thread| events::failed(thread, kind, libc::ENOMEM, bytes));
    } else {
        events::begun(inside, kind, block as usize, bytes);
    }
}
