//! Signals that the program sends to end another process: who sent what to whom goes into the run's file of ends, because nothing outside can find that
//! out afterwards. Must never allocate, touch `errno`, or keep a signal from being sent; it may run in a signal handler, on a small stack.
//!
//! The line is written before the signal is sent: a reader that sees the end of a process finds its sender. A signal that the kernel would refuse leaves
//! none.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::transmute;

use stormlog_model::layout::{ENDS_FILE, ENDS_MAX_BYTES, ENDS_OF_A_SIGNAL, RUN_VARIABLE};

use crate::hooks::call;
use crate::options::Text;
use crate::real;
use crate::session;
use crate::sys;

type Kill = unsafe extern "C" fn(libc::pid_t, c_int) -> c_int;

/// Bytes of a line: a word, four numbers and their spaces.
const LINE: usize = 96;

/// The path of the file, with the zero byte that ends it; empty where the program is not part of a run.
struct Path(UnsafeCell<Text>);
// SAFETY: written by `remember` alone, before the program has a second thread.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new(Text::EMPTY));

/// Keeps where the run's file of ends is. Before `main` only.
pub fn remember() {
    let mut name = [0_u8; 64];
    let length = RUN_VARIABLE.len().min(name.len() - 1);
    name[..length].copy_from_slice(&RUN_VARIABLE.as_bytes()[..length]);
    // SAFETY: before `main` there is one thread, and the environment is as the kernel made it; the name ends with a zero byte.
    unsafe {
        let run = real::text(libc::getenv(name.as_ptr().cast()));
        if run.is_empty() {
            return;
        }
        let path = &mut *PATH.0.get();
        for part in [run, b"/", ENDS_FILE.as_bytes(), b"\0"] {
            path.push(part);
        }
    }
}

/// See `kill(2)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn kill(target: libc::pid_t, signal: c_int) -> c_int {
    record(target, signal);
    call!(real::KILL, Kill, (target, signal), -1)
}

/// See `killpg(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn killpg(group: libc::pid_t, signal: c_int) -> c_int {
    record(if group > 1 { -group } else { 0 }, signal);
    call!(real::KILLPG, Kill, (group, signal), -1)
}

/// Writes the line of a signal that may end its receiver.
fn record(target: libc::pid_t, signal: c_int) {
    // SAFETY: written before `main`, only read since.
    let path = unsafe { (*PATH.0.get()).bytes() };
    if path.last() != Some(&0) || !ends_a_process(signal) || target == -1 {
        return;
    }
    // SAFETY: signal 0 only asks whether a signal could be sent.
    let allowed = unsafe { sys::call(libc::SYS_kill, [target as usize, 0, 0, 0, 0, 0]) };
    if allowed.is_err() {
        return;
    }
    let Ok(descriptor) = sys::open(path, libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW, 0) else {
        return;
    };
    if (sys::length(descriptor) as u64) < ENDS_MAX_BYTES {
        let mut line = Line::default();
        line.push(ENDS_OF_A_SIGNAL.as_bytes());
        let is_group = target <= 0;
        for number in [
            u64::from(sys::process()),
            u64::from(target.unsigned_abs()),
            signal as u64,
            session::realtime_ns(),
        ]
        .into_iter()
        .enumerate()
        {
            // A group is a negative number; 0 is the sender's own.
            line.push(if number.0 == 1 && is_group { b" -" } else { b" " });
            line.number(number.1);
        }
        line.push(b"\n");
        sys::write(descriptor, line.bytes());
    }
    sys::close(descriptor);
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

/// A line in the making.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line { bytes: [0; LINE], length: 0 }
    }
}

impl Line {
    fn push(&mut self, more: &[u8]) {
        for byte in more {
            if let Some(space) = self.bytes.get_mut(self.length) {
                *space = *byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, value: u64) {
        let mut divisor = 1;
        while value / divisor >= 10 {
            divisor *= 10;
        }
        while divisor > 0 {
            self.push(&[b'0' + (value / divisor % 10) as u8]);
            divisor /= 10;
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_holds_the_largest_numbers() {
        let mut line = Line::default();
        for number in [0, 7, 10, u64::MAX] {
            line.number(number);
            line.push(b" ");
        }
        assert_eq!(line.bytes(), b"0 7 10 18446744073709551615 ");
    }

    #[test]
    fn only_signals_that_end_a_process_are_recorded() {
        assert!(
            [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGUSR1, 40].into_iter().all(ends_a_process)
        );
        assert!(![0, libc::SIGCHLD, libc::SIGCONT, libc::SIGSTOP].into_iter().any(ends_a_process));
    }
}
