//! SIGBUS on the capture: another process truncates the file, or its disk fails, and the kernel signals the thread that touches a page that is
//! gone. That page is replaced by anonymous memory, recording ends, and the program continues. Every other SIGBUS is the program's.
//!
//! The kernel keeps our handler in place of the program's, which is remembered and is all the program sees: `sigaction` and `signal` are hooked for this
//! one signal. Must never swallow a SIGBUS that is not ours, and never allocate: the handler runs anywhere.

use core::ffi::{c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::hooks::call;
use crate::libc_symbols;
use crate::session;
use crate::sys;

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

/// The action that the program installed.
struct Program {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

static PROGRAM: Program =
    Program { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0), mask: AtomicU64::new(0) };
/// Our handler is installed.
static GUARDED: AtomicBool = AtomicBool::new(false);

impl Program {
    fn remember(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // SAFETY: a set of signals is a row of words, of which the kernel knows the first.
        let mask = unsafe { *(&raw const action.sa_mask).cast::<u64>() };
        self.mask.store(mask, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    fn action(&self) -> libc::sigaction {
        // SAFETY: all zeroes is a valid action, and a set of signals begins with a word.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = self.handler.load(Ordering::Acquire);
            action.sa_flags = self.flags.load(Ordering::Relaxed);
            *(&raw mut action.sa_mask).cast::<u64>() = self.mask.load(Ordering::Relaxed);
            action
        }
    }
}

/// The real `sigaction` for SIGBUS.
fn set(new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    call!(libc_symbols::SIGACTION, Sigaction, (libc::SIGBUS, new, old), -1)
}

/// The action installed in place of the program's: our handler with the program's stack and mask, so that its own runs as it expects. Ignoring the
/// signal is passed on, for a program started by `exec` inherits that.
fn ours_for(wanted: &libc::sigaction) -> libc::sigaction {
    let mut action = *wanted;
    match wanted.sa_sigaction {
        libc::SIG_IGN => return action,
        libc::SIG_DFL => {
            // SAFETY: `sigaction` is a C structure of integers and a pointer-sized handler; all zeroes is a value.
            action = unsafe { zeroed() };
            action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        }
        _ => {}
    }
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    action
}

/// From now on the program survives a truncated capture.
pub fn guard() {
    // SAFETY: all zeroes is a valid action, which the call fills.
    let mut before: libc::sigaction = unsafe { zeroed() };
    if GUARDED.load(Ordering::Acquire) || set(null(), &raw mut before) != 0 {
        return;
    }
    PROGRAM.remember(&before);
    let action = ours_for(&before);
    GUARDED.store(set(&raw const action, null_mut()) == 0, Ordering::Release);
}

/// The program's own handler is put back, unless the program bypassed our hook and installed another one.
pub fn release() {
    // SAFETY: all zeroes is a valid action, which the call fills.
    let mut now: libc::sigaction = unsafe { zeroed() };
    if GUARDED.swap(false, Ordering::AcqRel)
        && set(null(), &raw mut now) == 0
        && now.sa_sigaction == on_bus_error as *const () as usize
    {
        let action = PROGRAM.action();
        set(&raw const action, null_mut());
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO.
    let (sent, address) = unsafe { ((*info).si_code <= 0, (*info).si_addr() as usize) };
    if !sent && session::cut_at(address) {
        return;
    }
    let handler = PROGRAM.handler.load(Ordering::Acquire);
    let flags = PROGRAM.flags.load(Ordering::Relaxed);
    if sent && handler == libc::SIG_IGN {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A fault happens again when we return, and ends the process as it would have without us; a signal is sent again.
        // SAFETY: all zeroes is the default action; the second call signals this very thread.
        unsafe {
            let default: libc::sigaction = zeroed();
            set(&raw const default, null_mut());
            if sent {
                let target = [sys::process() as usize, sys::thread() as usize, signal as usize, 0, 0, 0];
                let _ = sys::call(libc::SYS_tgkill, target);
            }
        }
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        PROGRAM.handler.store(libc::SIG_DFL, Ordering::Release);
    }
    // SAFETY: the handler the program gave, called as its flags say.
    unsafe {
        if flags & libc::SA_SIGINFO == 0 {
            transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
        } else {
            transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(handler)(
                signal, info, context,
            );
        }
    }
}

/// See `sigaction(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if signal != libc::SIGBUS || !GUARDED.load(Ordering::Acquire) {
        return call!(libc_symbols::SIGACTION, Sigaction, (signal, new, old), -1);
    }
    let before = PROGRAM.action();
    // SAFETY: null or an action, as for the real function.
    if let Some(wanted) = unsafe { new.as_ref() } {
        let action = ours_for(wanted);
        let result = set(&raw const action, null_mut());
        if result != 0 {
            return result;
        }
        PROGRAM.remember(wanted);
    }
    // SAFETY: the caller guarantees that `old` is null or points to an action that can be written, as the real function
    // demands.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = before;
    }
    0
}

/// See `signal(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(number: c_int, handler: usize) -> usize {
    if number != libc::SIGBUS || !GUARDED.load(Ordering::Acquire) {
        return call!(libc_symbols::SIGNAL, Signal, (number, handler), libc::SIG_ERR);
    }
    // SAFETY: all zeroes is a valid action; both are ours.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        *(&raw mut new.sa_mask).cast::<u64>() = 1 << (libc::SIGBUS - 1);
        if sigaction(number, &raw const new, &raw mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}
