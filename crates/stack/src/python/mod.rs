//! Python stacks: which interpreter this process runs, this thread's state, and the walk over its frames.
//!
//! Read from memory, without calling Python, with or without the GIL: a thread's chain of frames is changed by no other thread while the
//! thread is in `malloc`.

mod code;
mod code_watch;
mod frame_compare;
mod gil;
mod layout;
mod locals;
mod marks;
mod own_state;
mod stack;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use core::ffi::{CStr, c_void};
use core::fmt;
use core::mem::transmute_copy;
use core::sync::atomic::AtomicPtr;

pub use code::{CodeSink, Text};
pub use code_watch::{CodeWatch, Destroyed, Ended};
pub use locals::FrameVariables;
pub use own_state::OwnState;
pub use stack::{CAPACITY, PythonStack, Unchanged};

use layout::{Layout, OWNER_GENERATOR, OWNER_SHIM, REFERENCE};

/// Why the Python stacks of this process cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// No Python in this process, or one whose symbols are hidden.
    NoPython,
    /// A version whose layout is not known (as `Py_Version` spells it).
    Version(u32),
    /// A build without the GIL.
    FreeThreaded(u32),
    /// The offsets the interpreter publishes are not as its version has them.
    Offsets(u32),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dotted = |version: u32| (version >> 24, version >> 16 & 0xff, version >> 8 & 0xff);
        match *self {
            Self::NoPython => f.write_str("no Python interpreter in this process"),
            Self::Version(version) => {
                let (major, minor, micro) = dotted(version);
                write!(
                    f,
                    "Python {major}.{minor}.{micro} is not supported: use a release of 3.11, 3.12, 3.13 or 3.14"
                )
            }
            Self::FreeThreaded(version) => {
                let (major, minor, micro) = dotted(version);
                write!(
                    f,
                    "free-threaded Python {major}.{minor}.{micro} is not supported: use the build with the GIL"
                )
            }
            Self::Offsets(version) => {
                let (major, minor, micro) = dotted(version);
                write!(
                    f,
                    "Python {major}.{minor}.{micro} publishes offsets that do not fit its version: use an official build"
                )
            }
        }
    }
}

impl core::error::Error for Unsupported {}

type ThreadStateFn = unsafe extern "C" fn() -> *const u8;
type NextFn = unsafe extern "C" fn(*const u8) -> *const u8;

/// The interpreter of this process: its layout and the few functions that are safe to call at any moment. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    layout: Layout,
    version: u32,
    this_thread: ThreadStateFn,
    attached: ThreadStateFn,
    /// The first interpreter, and the one after another.
    interpreters: Option<(ThreadStateFn, NextFn)>,
    own_places: Option<own_state::RuntimeOffsets>,
    gil: Option<gil::Gil>,
    /// Address of the word that is set when Python begins to end.
    finalizing: Option<usize>,
}

/// What a frame shows.
struct Visible {
    code: usize,
    /// The instruction, counted in code units.
    unit: u32,
    /// Any frame at this instruction is visible, not only a generator's.
    always: bool,
}

/// The address of an exported symbol of any type, as that type.
///
/// # Safety
/// `T` is pointer-sized, and what the symbol is.
unsafe fn symbol<T>(name: &CStr) -> Option<T> {
    // SAFETY: a terminated name; looking a symbol up changes nothing.
    let address: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the caller guarantees that `T` is pointer-sized and the type of the symbol.
    (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
}

impl Interpreter {
    /// Finds the interpreter of this process. Uses `dlsym`, which may allocate: not for the inside of `malloc`. Works before
    /// Python is initialized; its threads then have no state yet.
    pub fn find() -> Result<Self, Unsupported> {
        // SAFETY: the types are those of CPython's headers.
        unsafe {
            let this_thread = symbol(c"PyGILState_GetThisThreadState").ok_or(Unsupported::NoPython)?;
            let Some(version) = symbol::<*const u64>(c"Py_Version").map(|version| *version as u32) else {
                return Err(Unsupported::Version(old_version())); // exported from 3.11 on
            };
            let runtime = symbol(c"_PyRuntime").unwrap_or(0);
            let layout = Layout::of(version, runtime)?;
            let attached = symbol(c"PyThreadState_GetUnchecked") // 3.13
                .or_else(|| symbol(c"_PyThreadState_UncheckedGet"))
                .ok_or(Unsupported::Version(version))?;
            let interpreters = symbol(c"PyInterpreterState_Head").zip(symbol(c"PyInterpreterState_Next"));
            let own_places = own_state::RuntimeOffsets::of(version, runtime);
            let gil = gil::Gil::of(version, runtime);
            let finalizing = finalizing(version, runtime);
            Ok(Self { layout, version, this_thread, attached, interpreters, own_places, gil, finalizing })
        }
    }

    /// The word that is null until the program's exit handlers have run and Python begins to take itself down.
    pub fn finalizing(&self) -> Option<&'static AtomicPtr<u8>> {
        // SAFETY: an aligned word of `_PyRuntime`, which is there as long as the process and is only ever written atomically.
        self.finalizing.map(|at| unsafe { &*(at as *const AtomicPtr<u8>) })
    }

    /// As `Py_Version` spells it: `0x030b07f0` is 3.11.7.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether frames say that C called them, as in 3.11.
    #[inline(always)]
    pub fn has_entries(&self) -> bool {
        self.layout.frame_entry.is_some()
    }

    /// The state of this thread; null when it has none. Needs no GIL.
    ///
    /// Where the thread is attached to an interpreter that is not the one it first ran (a subinterpreter), that state is the answer.
    ///
    /// # Safety
    /// The process has not unloaded the interpreter.
    #[inline]
    pub unsafe fn thread_state(&self) -> *const u8 {
        // SAFETY: the caller guarantees that the interpreter has not been unloaded; null means that no state is known.
        unsafe { self.thread_state_after(core::ptr::null()) }
    }

    /// As [`Self::thread_state`], with what that gave to this thread before: it is seldom another.
    ///
    /// # Safety
    /// The process has not unloaded the interpreter. `last` is null or was once this thread's state; it may be gone.
    #[inline(always)]
    pub unsafe fn thread_state_after(&self, last: *const u8) -> *const u8 {
        // SAFETY: CPython's function; it only reads a variable of the loaded interpreter.
        let attached = unsafe { (self.attached)() };
        if self.layout.frame_entry.is_none() && !attached.is_null() {
            return attached; // 3.12+: it is this thread's, null while that is without the GIL
        }
        // SAFETY: 3.11: what is attached is alive. If it is at the place of our last one it is ours or, where that is gone, that of a
        // thread that has the GIL, which does not end in these nanoseconds; its owner is checked here.
        let is_ours = || unsafe { load::<u64>(attached as usize, self.layout.thread_id) == this_thread() };
        if !last.is_null() && attached == last && is_ours() {
            return attached;
        }
        // SAFETY: `PyGILState_GetThisThreadState` takes no arguments and reads thread-specific data of this thread.
        let own = unsafe { (self.this_thread)() };
        if attached == own || attached.is_null() {
            return own;
        }
        // SAFETY: the caller guarantees that the interpreter is loaded; `attached` and `own` come from it.
        unsafe { self.state_on_3_11(attached, own) }
    }

    /// On 3.11 `attached` is the state of whichever thread has the GIL. It may only be looked into when it cannot vanish meanwhile:
    /// when it is not ours it belongs to a running thread that may end. With one interpreter it is never needed.
    ///
    /// # Safety
    /// Called on a thread of the process this interpreter runs in; `own` is that thread's state or null.
    #[cold]
    unsafe fn state_on_3_11(&self, attached: *const u8, own: *const u8) -> *const u8 {
        let Some((head, next)) = self.interpreters else { return own };
        // SAFETY: reads the list's head and its link; with one interpreter that is the main one, which lives as long as Python.
        let only_one = unsafe {
            let first = head();
            first.is_null() || next(first).is_null()
        };
        if only_one {
            return own;
        }
        // SAFETY: the remaining risk: with several interpreters, a thread of another may end between the two reads. Its state is in
        // the heap and stays mapped unless the allocator returns that very page in these nanoseconds.
        let thread: u64 = unsafe { load(attached as usize, self.layout.thread_id) };
        if thread == this_thread() { attached } else { own }
    }

    /// Whether this thread holds the GIL of the interpreter `thread_state` belongs to.
    ///
    /// # Safety
    /// `thread_state` is what [`Self::thread_state`] just gave.
    pub unsafe fn holds_gil(&self, thread_state: *const u8) -> bool {
        // SAFETY: CPython's function; it only reads a variable of the loaded interpreter.
        !thread_state.is_null() && unsafe { (self.attached)() } == thread_state
    }

    /// Calls `visit` for each Python frame from the innermost outwards with (code, instruction, entry) until it answers `false`: the plain
    /// walk, as deep as the stack is. [`PythonStack::current`] is the quick one.
    ///
    /// # Safety
    /// `thread_state` is null or this thread's.
    pub unsafe fn each_frame(
        &self,
        thread_state: *const u8,
        mut visit: impl FnMut(usize, u32, bool) -> bool,
    ) {
        // SAFETY: each address is null or a frame on this thread's chain.
        unsafe {
            let mut frame = self.top_frame(thread_state);
            while frame != 0 {
                let previous = self.previous(frame);
                if let Some(Visible { code, unit, .. }) = self.visible(frame) {
                    let entry = self.is_entry(frame, previous);
                    if !visit(code, unit, entry) {
                        return;
                    }
                }
                frame = previous;
            }
        }
    }

    /// # Safety
    /// `thread_state` is null or this thread's.
    #[inline(always)]
    unsafe fn top_frame(&self, thread_state: *const u8) -> usize {
        if thread_state.is_null() {
            return 0;
        }
        // SAFETY: a live thread state; the C frame it points to is part of it or on this thread's stack.
        unsafe {
            let frame = load(thread_state as usize, self.layout.thread_frame);
            match self.layout.cframe_frame {
                Some(at) if frame != 0 => load(frame, at),
                _ => frame,
            }
        }
    }

    /// # Safety
    /// `frame` is a live frame.
    #[inline]
    unsafe fn previous(&self, frame: usize) -> usize {
        // SAFETY: the caller guarantees that `frame` is a live frame of the interpreter.
        unsafe { load(frame, self.layout.frame_previous) }
    }

    /// Code and instruction of a frame Python would show: not a shim, and past its prologue (as `sys._getframe` sees it).
    ///
    /// # Safety
    /// `frame` is a live frame.
    #[inline]
    unsafe fn visible(&self, frame: usize) -> Option<Visible> {
        // SAFETY: the caller guarantees that `frame` is a live frame; one that is not a shim refers to a live code object.
        unsafe {
            if self.is_shim(frame) {
                return None;
            }
            let code = load::<usize>(frame, self.layout.frame_code) & REFERENCE;
            let start = code + usize::from(self.layout.code_instructions);
            let unit = (load::<usize>(frame, self.layout.frame_instruction) as isize - start as isize) >> 1;
            let first: i32 = load(code, self.layout.code_first_traceable());
            let owner: u8 = load(frame, self.layout.frame_owner);
            let always = unit >= first as isize;
            (always || owner == OWNER_GENERATOR).then_some(Visible { code, unit: unit.max(0) as u32, always })
        }
    }

    /// # Safety
    /// `frame` is a live frame.
    #[inline]
    unsafe fn is_shim(&self, frame: usize) -> bool {
        // SAFETY: the caller guarantees that `frame` is a live frame of the interpreter.
        self.layout.frame_entry.is_none()
            && unsafe { load::<u8>(frame, self.layout.frame_owner) } >= OWNER_SHIM
    }

    /// # Safety
    /// `frame` is a live frame and `previous` its predecessor, or 0.
    #[inline]
    unsafe fn is_entry(&self, frame: usize, previous: usize) -> bool {
        // SAFETY: the caller guarantees that `frame` is a live frame and `previous` its predecessor, or 0.
        unsafe {
            match self.layout.frame_entry {
                Some(at) => load::<u8>(frame, at) != 0,
                None => previous == 0 || self.is_shim(previous),
            }
        }
    }
}

/// Where `_PyRuntime` says that Python ends, if that is so known and it does not end yet.
///
/// # Safety
/// `runtime` is 0 or the address of the interpreter's `_PyRuntime`, which begins with the published offsets from 3.13 on.
unsafe fn finalizing(version: u32, runtime: usize) -> Option<usize> {
    /// Where `_Py_DebugOffsets` has the offset, in bytes: behind cookie, version, free-threading and the size of the runtime.
    const PUBLISHED: u16 = 4 * 8;
    /// Behind five flags of 32 bits.
    const BEFORE_3_13: u16 = 24;
    if runtime == 0 {
        return None;
    }
    let offset = match version >> 16 {
        0x030b | 0x030c => BEFORE_3_13,
        // SAFETY: the caller guarantees that `runtime` is the interpreter's `_PyRuntime`, which begins with the published
        // offsets in these versions.
        0x030d | 0x030e => u16::try_from(unsafe { load::<u64>(runtime, PUBLISHED) }).ok()?,
        _ => return None,
    };
    // SAFETY: a word of the runtime; one that is not null is not this one, or Python ends already.
    let is_null = offset % 8 == 0 && unsafe { load::<usize>(runtime, offset) } == 0;
    is_null.then_some(runtime + usize::from(offset))
}

/// The version of an interpreter too old to export `Py_Version`, from the text `Py_GetVersion` gives; 0 when that says nothing.
fn old_version() -> u32 {
    // SAFETY: the type is that of CPython's header; the text is constant.
    let text = unsafe {
        match symbol::<unsafe extern "C" fn() -> *const core::ffi::c_char>(c"Py_GetVersion") {
            Some(get) => CStr::from_ptr(get()).to_bytes(),
            None => return 0,
        }
    };
    let mut parts = text.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().fold(0u32, |value, digit| value.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')))
    });
    let mut next = || parts.next().unwrap_or(0) & 0xff;
    next() << 24 | next() << 16 | next() << 8
}

/// `pthread_self`, which is one word of the C library's; here without the call.
#[inline(always)]
fn this_thread() -> u64 {
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    {
        x86_64::thread::this_thread()
    }
    #[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
    // SAFETY: `pthread_self` has no precondition.
    unsafe {
        libc::pthread_self()
    }
}

/// # Safety
/// `base + offset` is readable as a `T`.
#[inline(always)]
unsafe fn load<T: Copy>(base: usize, offset: u16) -> T {
    // SAFETY: the caller guarantees that `base + offset` is readable as a `T`; fields of C structures are aligned.
    unsafe { *((base + usize::from(offset)) as *const T) }
}
