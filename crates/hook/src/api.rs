//! Start and stop of the library: the constructor of a preloaded library and the C functions of one that was loaded late. Must never stop a program
//! from starting or ending.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use stormlog_capture::layout::state;

use crate::ends;
use crate::exec;
use crate::framework;
use crate::got;
use crate::libc_symbols;
use crate::loader_lock;
use crate::native;
use crate::operators;
use crate::options::Options;
use crate::session::{self, EPOCH};
use crate::sigbus;
use crate::stacks;
use crate::sys;
use crate::thread;

/// Version of these functions; the caller says which one it knows.
pub const VERSION: u32 = 1;

/// Nothing is recorded.
pub const IDLE: c_int = 0;
/// Recording, with the slots of loaded objects patched.
pub const PATCHED: c_int = 1;
/// Recording, preloaded.
pub const PRELOADED: c_int = 2;

/// The process that is starting or stopping; 0: none.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// Where the options come from in a preloaded library, and whether to say why nothing is recorded.
const VARIABLE: &core::ffi::CStr = c"STORMLOG_HEAP";
const VERBOSE: &core::ffi::CStr = c"STORMLOG_HEAP_VERBOSE";

#[cfg(not(test))]
#[unsafe(link_section = ".init_array")]
#[used]
static BEGIN: extern "C" fn() = begin;

#[cfg(not(test))]
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;

/// Before `main`: records when the library is preloaded and the environment says where to.
extern "C" fn begin() {
    libc_symbols::prepare();
    // SAFETY: the environment is not changed before `main`.
    let text = unsafe { libc_symbols::text(libc::getenv(VARIABLE.as_ptr())) };
    if text.is_empty() || !libc_symbols::is_preloaded() {
        return;
    }
    exec::remember();
    ends::remember();
    operators::find();
    if let Err(error) = start(text, true) {
        complain(error);
    }
}

extern "C" fn end() {
    session::report_truncation();
    if session::is_own_process() && (EPOCH.load(Ordering::Acquire) != 0 || session::was_cut()) {
        session::mark(state::EXITED);
    }
}

/// One line on standard error, only where it is requested: the program's streams are its own.
fn complain(error: sys::Errno) {
    // SAFETY: a terminated name; called by `begin`, before `main`, when no other thread changes the environment.
    if unsafe { libc::getenv(VERBOSE.as_ptr()) }.is_null() {
        return;
    }
    let mut line = crate::options::Text::default();
    line.push(b"stormlog: no heap recording: error ");
    line.number(error.unsigned_abs().into());
    line.push(match error {
        libc::EINVAL => b" (STORMLOG_HEAP has an unknown option)\n".as_slice(),
        libc::EEXIST => b" (too many captures of that name; remove some)\n",
        libc::ENOENT | libc::EACCES | libc::EROFS => {
            b" (the directory of the capture must exist and be writable)\n"
        }
        _ => b"\n",
    });
    sys::write(2, line.bytes());
}

fn alone<T>(work: impl FnOnce() -> T) -> T {
    let process = sys::process();
    let mut free = 0;
    while let Err(holder) = BUSY.compare_exchange(free, process, Ordering::Acquire, Ordering::Relaxed) {
        if holder == process {
            sys::give_way();
        }
        // Of another process: a thread that was busy when this one was forked, and is not here.
        free = if holder == process { 0 } else { holder };
    }
    if free != 0 && session::current().is_none() {
        loader_lock::give_up(); // in its very first start: nothing is known yet, not even which lock was held
    }
    session::adopt();
    let result = work();
    BUSY.store(0, Ordering::Release);
    result
}

/// Begins a recording.
fn start(text: &[u8], preloaded: bool) -> Result<(), sys::Errno> {
    let mut options = Options::EMPTY;
    if !options.parse(text) {
        return Err(libc::EINVAL);
    }
    alone(|| {
        if EPOCH.load(Ordering::Acquire) != 0 {
            return Err(libc::EBUSY);
        }
        if loader_lock::is_locked() {
            return Err(libc::EDEADLK);
        }
        if session::was_cut() {
            finish();
        }
        libc_symbols::prepare();
        loader_lock::prepare();
        thread::prepare();
        stacks::find_python();
        if options.native && loader_lock::with(native::prepare) != Some(true) {
            return Err(libc::ENOMEM);
        }
        if !libc_symbols::is_preloaded() && !got::prepare() {
            return Err(libc::ENOMEM);
        }
        session::start(&options, preloaded)?;
        sigbus::guard();
        session::open();
        if !libc_symbols::is_preloaded() {
            loader_lock::with(|| {
                framework::prepare();
                got::patch()
            });
            stacks::prepare();
        }
        Ok(())
    })
}

/// Version of these functions.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_heap_version() -> u32 {
    VERSION
}

/// Begins a recording. `options` is a text such as `path=/run/heap-%p.bin;native=1`. 0, or an error number (`EPROTO`: the caller knows
/// another version; `EBUSY`: there is a recording; `EINVAL`: an option is not known; `EDEADLK`: this process was forked while a library was being loaded, and the
/// loader is locked in it for ever).
///
/// # Safety
/// `options` is null or a C string. Call it with the GIL held where `pyalloc=1` is to work from the start.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn stormlog_heap_start(version: u32, options: *const c_char) -> c_int {
    if version != VERSION {
        return libc::EPROTO;
    }
    // SAFETY: the caller guarantees that `options` is null or a C string.
    match start(unsafe { libc_symbols::text(options) }, false) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

/// Ends the recording: every patched slot is put back, every thread has left the hooks, the file is complete. 0, or an error number
/// (`ESRCH`: there is no recording; `EAGAIN`: ended, but some thread did not leave a hook within a second, so its last slot is as it was).
/// Must not be called from inside an allocation.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_heap_stop() -> c_int {
    alone(|| {
        if EPOCH.swap(0, Ordering::SeqCst) == 0 && !session::was_cut() {
            return libc::ESRCH;
        }
        finish()
    })
}

/// Ends what was begun, with `EPOCH` 0.
fn finish() -> c_int {
    let Some(state) = session::current() else { return libc::ESRCH };
    // A thread that is still inside the recorder may be patching slots, so they are restored after `quiesce`.
    let all = thread::quiesce(state);
    session::report_truncation();
    loader_lock::with(got::restore);
    stacks::stop();
    session::finish();
    sigbus::release();
    if all { 0 } else { libc::EAGAIN }
}

/// [`IDLE`], [`PATCHED`] or [`PRELOADED`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_heap_status() -> c_int {
    match EPOCH.load(Ordering::Acquire) {
        0 => IDLE,
        _ if libc_symbols::is_preloaded() => PRELOADED,
        _ => PATCHED,
    }
}

/// Leaves everything of the calling thread out of the recording, or (with 0) takes it in again.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_heap_ignore_thread(ignore: c_int) {
    thread::ignore(ignore != 0);
}
