//! Names of threads and the ends of processes (their replacement is in `exec`). Must never keep a process from ending.

use core::ffi::{c_char, c_int, c_ulong};
use core::mem::transmute;

use stormlog_capture::layout::state;
use stormlog_capture::record::definition;

use crate::hooks::call;
use crate::libc_symbols;
use crate::session;
use crate::sys;
use crate::thread::Inside;

type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
type SetName = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;
type Exit = unsafe extern "C" fn(c_int) -> !;

/// Writes the name this thread has now.
fn note_name() {
    if let Some(mut inside) = Inside::enter_if_recorded() {
        inside.record(|thread| thread.write_name(None));
    }
}

/// See `prctl(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let result = call!(libc_symbols::PRCTL, Prctl, (option, a, b, c, d), -1);
    if option == libc::PR_SET_NAME && result == 0 {
        note_name();
    }
    result
}

/// See `pthread_setname_np(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    let result = call!(libc_symbols::SETNAME, SetName, (thread, name), libc::ENOSYS);
    if result != 0 {
        return result;
    }
    // SAFETY: `pthread_self` and `pthread_equal` read two values and no memory.
    if unsafe { libc::pthread_equal(thread, libc::pthread_self()) } != 0 {
        note_name();
    } else if let (Some(id), Some(mut inside)) =
        (crate::thread::kernel_id(thread), Inside::enter_if_recorded())
    {
        // SAFETY: the real function took it for a C string.
        let name = unsafe { libc_symbols::text(name) };
        inside.record(|here| here.writer.definition(definition::THREAD_NAME, id, &[name]));
    }
    // One that has not allocated yet is asked for its name when it does.
    result
}

/// The process ends here; not so a `vfork` child that shares this memory.
fn ending() {
    if session::is_own_process() {
        session::mark(state::EXITED);
    }
}

/// See `_exit(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    ending();
    call!(libc_symbols::EXIT, Exit, (status), exit_now(status))
}

/// See `_Exit(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the C library's own name")]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    ending();
    call!(libc_symbols::EXIT_C99, Exit, (status), exit_now(status))
}

/// See `quick_exit(3)`. What its handlers do is still recorded.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    ending();
    call!(libc_symbols::QUICK_EXIT, Exit, (status), exit_now(status))
}

fn exit_now(status: c_int) -> ! {
    loop {
        // SAFETY: takes a number; the process ends in the call.
        let _ = unsafe { sys::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}
