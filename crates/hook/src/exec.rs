//! Programs that replace themselves or start others: the recording ends properly, and the new program is recorded too, whatever environment it is
//! given. Must never allocate (a `vfork` child shares its parent's memory) and never keep an `exec` from happening.
//!
//! A new program is recorded when its environment says so. An environment that the caller built itself lacks our two variables, so they are added
//! before it is handed over, unless it has `STORMLOG_HEAP` itself (an empty one means no), or the program has taken that one out of its own
//! environment. A program that has emptied its environment, as `env -i` does, did not mean to exclude us: the variables it was started with are added.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null;

use stormlog_capture::layout::state;

use crate::hooks::call;
use crate::libc_symbols::{self, Function};
use crate::options::Text;
use crate::session;

type Texts = *const *const c_char;
type Exec = unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int;
type ExecOpen = unsafe extern "C" fn(c_int, Texts, Texts) -> c_int;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Texts,
    Texts,
) -> c_int;

/// Options of the recording, as the supervisor set them.
pub const OPTIONS: &[u8] = b"STORMLOG_HEAP=";
/// The libraries that are loaded into every program.
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// How every `LD_PRELOAD` that is ours names this library.
pub const LIBRARY: &[u8] = b"libstormlog_hook";
/// An environment of more variables is handed over as it is.
const MOST: usize = 1024;

/// Our two variables as this program was given them.
struct InheritedVariables([UnsafeCell<Text>; 2]);
// SAFETY: written by `remember` alone, before the program has a second thread.
unsafe impl Sync for InheritedVariables {}

static GIVEN: InheritedVariables = InheritedVariables([const { UnsafeCell::new(Text::EMPTY) }; 2]);

/// Keeps what this program was given. Before `main` only.
pub fn remember() {
    for (name, kept) in [OPTIONS, PRELOAD].into_iter().zip(&GIVEN.0) {
        // SAFETY: before `main` there is no other thread, and the environment is as the kernel made it.
        unsafe {
            if let Some(variable) = find(environ, name) {
                (*kept.get()).push(libc_symbols::text(variable));
                (*kept.get()).push(&[0]);
            }
        }
    }
}

/// Our two variables for a new program; none when it is to be left alone.
///
/// # Safety
/// The program's environment is a null-terminated row of C strings, or null.
unsafe fn ours() -> Option<[*const c_char; 2]> {
    // SAFETY: the caller guarantees that `environ` is a null-terminated array of C strings, or null; what is kept was
    // written before `main`.
    unsafe {
        match (find(environ, OPTIONS), find(environ, PRELOAD)) {
            (Some(options), Some(preload)) => Some([options, preload]),
            (None, Some(preload))
                if libc_symbols::text(preload).windows(LIBRARY.len()).any(|part| part == LIBRARY) =>
            {
                None
            }
            (Some(_), None) => None,
            (None, _) => {
                let kept = GIVEN.0.each_ref().map(|text| (*text.get()).bytes());
                kept.iter().all(|text| text.last() == Some(&0)).then(|| kept.map(|text| text.as_ptr().cast()))
            }
        }
    }
}

unsafe extern "C" {
    static environ: Texts;
}

/// The variable of an environment that begins so.
///
/// # Safety
/// `environment` is null or a null-terminated row of C strings.
unsafe fn find(environment: Texts, name: &[u8]) -> Option<*const c_char> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees that `environment` is null or an array of C strings that ends with a null.
    unsafe {
        let mut at = environment;
        while !(*at).is_null() {
            if CStr::from_ptr(*at).to_bytes().starts_with(name) {
                return Some(*at);
            }
            at = at.add(1);
        }
    }
    None
}

/// Calls `work` with the environment a new program is to have: the one given, with our variables where they are missing.
///
/// # Safety
/// `given` is null or a null-terminated row of C strings.
unsafe fn with_ours(given: Texts, work: impl FnOnce(Texts) -> c_int) -> c_int {
    // SAFETY: the caller guarantees that `given` is null or a null-terminated array of C strings; the program's own
    // environment is one.
    unsafe {
        if !libc_symbols::is_preloaded() || find(given, OPTIONS).is_some() {
            return work(given);
        }
        let Some([options, preload]) = ours() else { return work(given) };
        let mut row = [null(); MOST + 3];
        let mut count = 0;
        let mut theirs = None;
        while !given.is_null() && !(*given.add(count)).is_null() {
            if count == MOST {
                return work(given);
            }
            row[count] = *given.add(count);
            if CStr::from_ptr(row[count]).to_bytes().starts_with(PRELOAD) {
                theirs = Some(count);
            }
            count += 1;
        }
        row[count] = options;
        let mut both = Text::default();
        match theirs {
            None => row[count + 1] = preload,
            Some(at) => {
                both.push(libc_symbols::text(preload));
                both.push(b":");
                both.push(&libc_symbols::text(row[at])[PRELOAD.len()..]);
                both.push(&[0]);
                row[at] = both.bytes().as_ptr().cast();
                if both.bytes().last() != Some(&0) {
                    return work(given); // too long
                }
            }
        }
        work(row.as_ptr())
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
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the real function of this type, with the caller's arguments.
    unsafe {
        with_ours(environment, |environment| {
            replace(&libc_symbols::EXECVE, |real| {
                transmute::<usize, Exec>(real)(path, arguments, environment)
            })
        })
    }
}

/// See `execvpe(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller guarantees that `environment` is null or a null-terminated array of C strings, as the real function
    // demands.
    unsafe {
        with_ours(environment, |environment| {
            replace(&libc_symbols::EXECVPE, |real| {
                transmute::<usize, Exec>(real)(file, arguments, environment)
            })
        })
    }
}

/// See `fexecve(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(file: c_int, arguments: Texts, environment: Texts) -> c_int {
    // SAFETY: the caller guarantees that `environment` is null or a null-terminated array of C strings, as the real function
    // demands.
    unsafe {
        with_ours(environment, |environment| {
            replace(&libc_symbols::FEXECVE, |real| {
                transmute::<usize, ExecOpen>(real)(file, arguments, environment)
            })
        })
    }
}

/// See `execv(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid for `execv`, which is `execve` with the program's
    // environment.
    unsafe { execve(path, arguments, environ) }
}

/// See `execvp(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid for `execvp`, which is `execvpe` with the program's
    // environment.
    unsafe { execvpe(file, arguments, environ) }
}

/// See `posix_spawn(3)`. The caller continues; only the environment is ours to see to.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawn(
    child: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    let spawn = |environment| {
        call!(
            libc_symbols::POSIX_SPAWN,
            Spawn,
            (child, path, actions, attributes, arguments, environment),
            libc::ENOSYS
        )
    };
    // SAFETY: the caller guarantees that `environment` is null or a null-terminated array of C strings, as the real function
    // demands.
    unsafe { with_ours(environment, spawn) }
}

/// See `posix_spawnp(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_spawnp(
    child: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    let spawn = |environment| {
        call!(
            libc_symbols::POSIX_SPAWNP,
            Spawn,
            (child, file, actions, attributes, arguments, environment),
            libc::ENOSYS
        )
    };
    // SAFETY: the caller guarantees that `environment` is null or a null-terminated array of C strings, as the real function
    // demands.
    unsafe { with_ours(environment, spawn) }
}

/// `execl` with its arguments in a row.
pub(crate) unsafe extern "C" fn execl_row(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the assembler stub of `execl` built `arguments` from what its caller passed, with the null at its end.
    unsafe { execv(path, arguments) }
}

/// `execlp` with its arguments in a row.
pub(crate) unsafe extern "C" fn execlp_row(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the assembler stub of `execlp` built `arguments` from what its caller passed, with the null at its end.
    unsafe { execvp(file, arguments) }
}

/// `execle` with its arguments in a row; behind their end is the environment.
pub(crate) unsafe extern "C" fn execle_row(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the assembler stub of `execle` built `arguments` from what its caller passed; the environment follows their null.
    unsafe {
        let mut end = arguments;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, arguments, (*end.add(1)).cast())
    }
}
