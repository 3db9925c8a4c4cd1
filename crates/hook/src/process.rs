//! Names of threads and the ends of processes. Must never keep a process from ending.

use core::ffi::{c_char, c_int, c_ulong};
use core::mem::transmute;

use stormlog_capture::layout::state;

use crate::hooks::call;
use crate::real::{self, Function};
use crate::session;
use crate::sys;
use crate::thread::Inside;

type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
type SetName = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;
type Exit = unsafe extern "C" fn(c_int) -> !;
type Exec = unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
type ExecPlain = unsafe extern "C" fn(*const c_char, *const *const c_char) -> c_int;
type ExecOpen = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;

/// Writes the name this thread has now.
fn note_name() {
    if let Some(mut inside) = Inside::enter() {
        inside.record(|thread| thread.write_name(None));
    }
}

/// See `prctl(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let result = call!(real::PRCTL, Prctl, (option, a, b, c, d), -1);
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
    let result = call!(real::SETNAME, SetName, (thread, name), libc::ENOSYS);
    // Another thread's kernel id is not known here; a name that is given from outside before its first allocation is found then.
    // SAFETY: always safe.
    if result == 0 && unsafe { libc::pthread_equal(thread, libc::pthread_self()) } != 0 {
        note_name();
    }
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
    call!(real::EXIT, Exit, (status), exit_now(status))
}

/// See `_Exit(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    ending();
    call!(real::EXIT_C99, Exit, (status), exit_now(status))
}

/// See `quick_exit(3)`. What its handlers do is still recorded.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    ending();
    call!(real::QUICK_EXIT, Exit, (status), exit_now(status))
}

fn exit_now(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { sys::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Says that the program ends here, and takes it back when `exec` returns. The new program makes a recording of its own.
fn replace(function: &Function, exec: impl FnOnce(usize) -> c_int) -> c_int {
    let own = session::is_own_process();
    if own {
        session::mark(state::EXITED);
    }
    let address = function.get();
    let result = if address == 0 { -1 } else { exec(address) };
    if own {
        session::mark(state::RUNNING);
    }
    result
}

/// See `execve(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the real function of this type, with the caller's arguments.
    replace(&real::EXECVE, |real| unsafe { transmute::<usize, Exec>(real)(path, arguments, environment) })
}

/// See `execvpe(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: as above.
    replace(&real::EXECVPE, |real| unsafe { transmute::<usize, Exec>(real)(file, arguments, environment) })
}

/// See `execv(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as above.
    replace(&real::EXECV, |real| unsafe { transmute::<usize, ExecPlain>(real)(path, arguments) })
}

/// See `execvp(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as above.
    replace(&real::EXECVP, |real| unsafe { transmute::<usize, ExecPlain>(real)(file, arguments) })
}

/// See `fexecve(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(
    file: c_int,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: as above.
    replace(&real::FEXECVE, |real| unsafe {
        transmute::<usize, ExecOpen>(real)(file, arguments, environment)
    })
}
