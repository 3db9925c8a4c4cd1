//! Signals that the program sends to end another process: sender, receiver and signal are written to the run's `ends.log`, because nothing outside can find them
//! out afterwards. Must never allocate, touch `errno`, or keep a signal from being sent; it may run in a signal handler, on a small stack.
//!
//! The line is written before the signal is sent: a reader that sees the end of a process finds its sender. A signal that the kernel would refuse leaves
//! none.

use core::ffi::c_int;
use core::mem::transmute;

use stormlog_model::layout::{ENDS_MAX_BYTES, ENDS_OF_A_SIGNAL};

use crate::ends;
use crate::hooks::call;
use crate::libc_symbols;
use crate::session;
use crate::sys;

type Kill = unsafe extern "C" fn(libc::pid_t, c_int) -> c_int;

/// See `kill(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn kill(target: libc::pid_t, signal: c_int) -> c_int {
    record(target, signal);
    call!(libc_symbols::KILL, Kill, (target, signal), -1)
}

/// See `killpg(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn killpg(group: libc::pid_t, signal: c_int) -> c_int {
    record(if group > 1 { -group } else { 0 }, signal);
    call!(libc_symbols::KILLPG, Kill, (group, signal), -1)
}

/// Writes the line of a signal that may end its receiver.
fn record(target: libc::pid_t, signal: c_int) {
    if !ends::is_kept() || !ends_a_process(signal) || target == -1 {
        return;
    }
    // SAFETY: signal 0 only asks whether a signal could be sent.
    let allowed = unsafe { sys::call(libc::SYS_kill, [target as usize, 0, 0, 0, 0, 0]) };
    if allowed.is_err() {
        return;
    }
    let numbers = [
        (false, u64::from(sys::process())),
        // A group is a negative number; 0 is the sender's own.
        (target <= 0, u64::from(target.unsigned_abs())),
        (false, signal as u64),
        (false, session::realtime_ns()),
    ];
    ends::write(ENDS_OF_A_SIGNAL, numbers, ENDS_MAX_BYTES);
}

/// Whether the signal ends a process that does nothing about it: neither the question 0, nor one that is ignored or stops a process by default.
fn ends_a_process(signal: c_int) -> bool {
    const HARMLESS: [c_int; 8] = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    signal > 0 && !HARMLESS.contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_end_a_process_are_recorded() {
        assert!(
            [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGUSR1, 40].into_iter().all(ends_a_process)
        );
        assert!(![0, libc::SIGCHLD, libc::SIGCONT, libc::SIGSTOP].into_iter().any(ends_a_process));
    }
}
