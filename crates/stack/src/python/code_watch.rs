//! Notice of the death of code objects: their addresses are used again, and a name must not outlive its code.
//!
//! The only place that calls Python's API or writes to Python's memory, and only while this thread provably holds the GIL. What is called does not
//! allocate from Python: `malloc` may have been called by Python's own allocator, which must not be entered twice.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::{Interpreter, load, symbol};

/// Called, with the GIL held, when a watched code object is about to be freed.
pub type Destroyed = extern "C" fn(code: usize);

/// Called when Python has ended and may begin again: every code object is gone, reported or not.
pub type Ended = extern "C" fn();

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

fn notify(code: usize) {
    let handler = DESTROYED.load(Relaxed);
    if handler != 0 {
        // SAFETY: DESTROYED is 0, which is excluded here, or the address of a `Destroyed` that `CodeWatch` stored.
        let handler: Destroyed = unsafe { core::mem::transmute(handler) };
        handler(code);
    }
}

/// 3.12+: `PyCode_WatchCallback`.
extern "C" fn on_event(event: c_int, code: usize) -> c_int {
    const DESTROY: c_int = 1;
    if event == DESTROY {
        notify(code);
    }
    0
}

/// 3.11: the function that frees our word of a code object's extra data, which is the code's address.
extern "C" fn on_free(code: usize) {
    notify(code);
}

type AddWatcher = unsafe extern "C" fn(extern "C" fn(c_int, usize) -> c_int) -> c_int;
type ClearWatcher = unsafe extern "C" fn(c_int) -> c_int;
type RequestIndex = unsafe extern "C" fn(extern "C" fn(usize)) -> isize;
type Fetch = unsafe extern "C" fn(*mut *mut c_void, *mut *mut c_void, *mut *mut c_void);
type Restore = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void);
type InterpreterNumber = unsafe extern "C" fn(*const u8) -> i64;
type AtExit = unsafe extern "C" fn(Ended) -> c_int;
type AllocatorName = unsafe extern "C" fn() -> *const c_char;

#[derive(Clone, Copy)]
enum WatchMethod {
    Watcher { add: AddWatcher, clear: ClearWatcher, fetch: Fetch, restore: Restore },
    Extra { request: RequestIndex },
    None,
}

/// One of the interpreters (main or sub) that are watched.
struct WatchedInterpreter {
    /// Its number plus one, which is not used again until Python ends; 0 for a free slot.
    interpreter: AtomicU64,
    /// The watcher's id or the index of the extra word, plus one; 0 where there is none.
    id: AtomicUsize,
}

const NOT_CHECKED: u8 = 0;
const PLAIN: u8 = 1;
const OTHERS: u8 = 2;

/// Code of interpreters beyond these is not watched.
const MOST: usize = 64;

/// Watches the code objects of this process; any thread may use it.
pub struct CodeWatch {
    means: WatchMethod,
    number: Option<InterpreterNumber>,
    allocators: Option<AllocatorName>,
    at_exit: Option<AtExit>,
    ended: Ended,
    /// Python will say when it ends. Registered once per start of Python: CPython has room for 32 callbacks, and the others belong to the program.
    has_exit_callback: AtomicBool,
    /// One of the three below.
    plain: AtomicU8,
    interpreters: [WatchedInterpreter; MOST],
}

impl CodeWatch {
    /// Finds the functions it needs; installs nothing yet. Uses `dlsym`, which may allocate. `destroyed` is for the whole process; `ended` must call
    /// [`Self::forget`].
    pub fn new(interpreter: &Interpreter, destroyed: Destroyed, ended: Ended) -> Self {
        DESTROYED.store(destroyed as usize, Relaxed);
        Self {
            means: WatchMethod::find(interpreter),
            // SAFETY: the type is that of CPython's header.
            number: unsafe { symbol(c"PyInterpreterState_GetID") },
            // SAFETY: the type is that of CPython's header.
            allocators: unsafe { symbol(c"_PyMem_GetCurrentAllocatorName") },
            // SAFETY: the type is that of CPython's header.
            at_exit: unsafe { symbol(c"Py_AtExit") },
            ended,
            has_exit_callback: AtomicBool::new(false),
            plain: AtomicU8::new(NOT_CHECKED),
            interpreters: [const { WatchedInterpreter { interpreter: AtomicU64::new(0), id: AtomicUsize::new(0) } };
                MOST],
        }
    }

    /// Whether Python's allocators are its plain ones, which free a block of the C library as their own; the debugging ones end the program instead. To
    /// be asked before anything is put before them, and once a thread has a state: until then CPython has not chosen.
    pub fn plain_allocators(&self) -> bool {
        let known = self.plain.load(Relaxed);
        if known != NOT_CHECKED {
            return known == PLAIN;
        }
        // SAFETY: compares a few pointers and gives a constant text or null.
        let plain = self.allocators.is_some_and(|name| unsafe {
            let name = name();
            !name.is_null() && matches!(CStr::from_ptr(name).to_bytes(), b"pymalloc" | b"malloc")
        });
        self.plain.store(if plain { PLAIN } else { OTHERS }, Relaxed);
        plain
    }

    /// Does what [`Self::watch`] needs the GIL for, if this thread holds it: for a program whose events mostly come without.
    ///
    /// # Safety
    /// `thread_state` is this thread's.
    pub unsafe fn prepare(&self, interpreter: &Interpreter, thread_state: *const u8) {
        // SAFETY: the caller guarantees that `thread_state` is this thread's own, so that it lives during the call. The GIL
        // is held where it is used.
        unsafe {
            if interpreter.holds_gil(thread_state) {
                self.install(load(thread_state as usize, INTERPRETER));
            }
        }
    }

    /// Makes sure that the death of `code` will be reported. `false`: it will not be (no means, or none yet without the GIL): compare
    /// [`Interpreter::fingerprint`] for this code until a later call succeeds.
    ///
    /// Without the GIL this works once it has worked with it in the same interpreter, so that the threads that are mostly outside Python are watched too.
    ///
    /// `allocate` is the C library's own `malloc`, past any hook (3.11 needs some 24 bytes for each code object, which Python frees).
    ///
    /// # Safety
    /// `thread_state` is this thread's, `code` a code object in use on its stack. On 3.11, memory of `allocate` may be freed by Python's memory domain:
    /// true unless a custom allocator is set that refuses foreign blocks.
    pub unsafe fn watch(
        &self,
        interpreter: &Interpreter,
        thread_state: *const u8,
        code: usize,
        allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    ) -> bool {
        // SAFETY: the caller guarantees that `thread_state` is this thread's; the GIL keeps the interpreter's structures stable. Without it the interpreter still lives as
        // long as this thread's state, and only its number, which never changes, is read.
        unsafe {
            if thread_state.is_null() {
                return false;
            }
            let held = interpreter.holds_gil(thread_state);
            let current = load(thread_state as usize, INTERPRETER);
            let Some(id) = (if held { self.install(current) } else { self.installed(current) }) else {
                return false;
            };
            match self.means {
                WatchMethod::Watcher { .. } => true,
                WatchMethod::Extra { .. } => attach(interpreter, code, id, held, allocate),
                WatchMethod::None => false,
            }
        }
    }

    /// Takes the watcher of the interpreter in use by this thread back (3.12+; on 3.11 the notices stay, and are harmless).
    ///
    /// # Safety
    /// `thread_state` is this thread's.
    pub unsafe fn remove(&self, interpreter: &Interpreter, thread_state: *const u8) {
        // SAFETY: the caller guarantees that `thread_state` is this thread's own, so that it lives during the call. The GIL
        // is held where it is used.
        unsafe {
            if !interpreter.holds_gil(thread_state) {
                return;
            }
            let WatchMethod::Watcher { clear, .. } = self.means else { return };
            let Some(number) = self.number_of(load(thread_state as usize, INTERPRETER)) else { return };
            for one in self.interpreters.iter().filter(|one| one.interpreter.load(Relaxed) == number) {
                if let Some(id) = one.id.swap(0, Relaxed).checked_sub(1) {
                    clear(id as c_int);
                }
                one.interpreter.store(0, Relaxed);
            }
        }
    }

    /// Python has ended, and every watcher with it: should it begin again, its interpreters have the same numbers.
    pub fn forget(&self) {
        self.has_exit_callback.store(false, Relaxed);
        for one in &self.interpreters {
            one.id.store(0, Relaxed);
            one.interpreter.store(0, Relaxed);
        }
    }

    /// # Safety
    /// `current` is an interpreter whose GIL is held.
    unsafe fn number_of(&self, current: *const u8) -> Option<u64> {
        // SAFETY: CPython's function; the caller guarantees that `current` is a live interpreter, of which it reads a field.
        u64::try_from(unsafe { self.number?(current) }).ok().map(|number| number + 1)
    }

    /// The id in interpreter `current`, where it is installed.
    ///
    /// # Safety
    /// `current` is the interpreter of a live thread state of this thread.
    unsafe fn installed(&self, current: *const u8) -> Option<usize> {
        // SAFETY: the caller guarantees that `current` is the interpreter of a live thread state of this thread.
        let number = unsafe { self.number_of(current) }?;
        let known = self.interpreters.iter().find(|one| one.interpreter.load(Relaxed) == number)?;
        known.id.load(Relaxed).checked_sub(1)
    }

    /// The id in interpreter `current`, installed if it is not yet; `None` when that is impossible.
    ///
    /// # Safety
    /// The GIL of `current` is held, so no other thread is here for the same interpreter.
    unsafe fn install(&self, current: *const u8) -> Option<usize> {
        // SAFETY: the caller guarantees that the GIL of `current` is held, so that no other thread is here for the same
        // interpreter.
        let number = unsafe { self.number_of(current) }?;
        let known = self.interpreters.iter().find(|one| one.interpreter.load(Relaxed) == number);
        if let Some(known) = known {
            return known.id.load(Relaxed).checked_sub(1);
        }
        let free = self
            .interpreters
            .iter()
            .find(|slot| slot.interpreter.compare_exchange(0, number, Relaxed, Relaxed).is_ok())?;
        if number == MAIN
            && let Some(at_exit) = self.at_exit
            && !self.has_exit_callback.swap(true, Relaxed)
        {
            // SAFETY: writes a word and counts it; refuses where all are taken.
            unsafe { at_exit(self.ended) };
        }
        // SAFETY: the GIL is held. Adding a watcher writes two words; where all are taken it raises, which must not disturb an
        // exception that is on its way.
        let id = unsafe {
            match self.means {
                WatchMethod::Watcher { add, fetch, restore, .. } => {
                    let mut pending = [core::ptr::null_mut(); 3];
                    let [kind, value, trace] = &mut pending;
                    fetch(kind, value, trace);
                    let id = add(on_event);
                    restore(pending[0], pending[1], pending[2]);
                    id as isize
                }
                WatchMethod::Extra { request } if self.plain_allocators() => request(on_free),
                WatchMethod::Extra { .. } | WatchMethod::None => -1,
            }
        };
        let id = usize::try_from(id).ok()?;
        free.id.store(id + 1, Relaxed);
        Some(id)
    }
}

/// The number of the main interpreter, plus one.
const MAIN: u64 = 1;

/// Offset of the interpreter in a thread state, the third pointer in every version.
const INTERPRETER: u16 = 16;

/// 3.11: puts the code's address into our word of its extra data, a length and this many words.
///
/// Without the GIL only a code object without extra data is taken, by exchanging its null. What that could lose is the word of another tool that does the
/// same to the same code object in the same nanoseconds, or ours, never memory.
///
/// # Safety
/// `code` is alive, `held` says that the GIL is held; see [`CodeWatch::watch`] for `allocate`.
unsafe fn attach(
    interpreter: &Interpreter,
    code: usize,
    index: usize,
    held: bool,
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
) -> bool {
    // SAFETY: `co_extra` of a live code object: null, or a block with a length and that many words, which only the holder of the GIL may change.
    unsafe {
        let slot = &*((code + usize::from(interpreter.layout.code_extra())) as *const AtomicPtr<usize>);
        let extra = slot.load(Acquire);
        if !extra.is_null() {
            // ours, or another tool was here; its block is only as long as it needed
            let fits = held && *extra > index;
            if fits {
                *extra.add(1 + index) = code;
            }
            return fits;
        }
        let words = index + 2;
        let extra = allocate(words * size_of::<usize>()).cast::<usize>();
        if extra.is_null() {
            return false;
        }
        extra.write(index + 1);
        for word in 1..words {
            extra.add(word).write(0);
        }
        extra.add(1 + index).write(code);
        // A thread that was quicker leaves us a few bytes that are never freed.
        slot.compare_exchange(core::ptr::null_mut(), extra, AcqRel, Relaxed).is_ok()
    }
}

impl WatchMethod {
    fn find(interpreter: &Interpreter) -> Self {
        // SAFETY: the types are those of CPython's headers.
        unsafe {
            if interpreter.layout.frame_entry.is_none() {
                let functions = symbol(c"PyCode_AddWatcher").zip(symbol(c"PyCode_ClearWatcher"));
                let errors = symbol(c"PyErr_Fetch").zip(symbol(c"PyErr_Restore"));
                return match functions.zip(errors) {
                    Some(((add, clear), (fetch, restore))) => Self::Watcher { add, clear, fetch, restore },
                    None => Self::None,
                };
            }
            match symbol(c"_PyEval_RequestCodeExtraIndex") {
                Some(request) => Self::Extra { request },
                None => Self::None,
            }
        }
    }
}
