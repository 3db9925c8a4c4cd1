//! A signal that a user named as a request: its arrival is written to a descriptor, which a thread waits for.
//!
//! Installed only where the signal has its default action, so that it is never taken from a program that uses it. The handler runs on whatever thread is
//! interrupted, inside an allocation too: it makes one system call and returns.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void, sigaction};

/// Where the handler writes; -1 before it is installed.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The process that installed it: a forked child has the handler and the descriptor, and is not meant.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Why a signal cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeError {
    /// The program handles or ignores it.
    Taken,
    /// Not SIGUSR1, SIGUSR2 or a real-time signal.
    Unfit,
}

/// Has arrivals of `signal` written to `descriptor`, an eventfd that stays open for the rest of the process.
pub fn install_notice(signal: i32, descriptor: RawFd) -> Result<(), NoticeError> {
    let is_real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal);
    if signal != libc::SIGUSR1 && signal != libc::SIGUSR2 && !is_real_time {
        return Err(NoticeError::Unfit);
    }
    let before = current(signal).ok_or(NoticeError::Unfit)?;
    if before.sa_sigaction != libc::SIG_DFL && !is_ours(&before) {
        return Err(NoticeError::Taken);
    }
    DESCRIPTOR.store(descriptor, Ordering::Release);
    // SAFETY: `getpid` has no arguments and cannot fail.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Release);
    // SAFETY: a plain structure of integers and an optional function, for which zero is valid; the fields that matter are set below.
    let mut ours: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = handler();
    // System calls of the program are resumed, and a thread with an alternate stack is interrupted there.
    ours.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    let mut replaced = MaybeUninit::<sigaction>::uninit();
    // SAFETY: both point to structures of this frame; the handler is `extern "C"`, takes one integer and is never unloaded before the process ends
    // (a shared library with it is never closed by Python).
    if unsafe { libc::sigaction(signal, &ours, replaced.as_mut_ptr()) } != 0 {
        return Err(NoticeError::Unfit);
    }
    // SAFETY: the call succeeded, so it filled the structure.
    let replaced = unsafe { replaced.assume_init() };
    if replaced.sa_sigaction != libc::SIG_DFL && !is_ours(&replaced) {
        // The program installed one in between: it stays the program's.
        // SAFETY: a structure that the kernel has just handed out for this signal.
        unsafe { libc::sigaction(signal, &replaced, ptr::null_mut()) };
        return Err(NoticeError::Taken);
    }
    Ok(())
}

/// Whether the signal is still ours.
#[must_use]
pub fn is_notice_installed(signal: i32) -> bool {
    current(signal).is_some_and(|action| is_ours(&action))
}

fn current(signal: i32) -> Option<sigaction> {
    let mut action = MaybeUninit::<sigaction>::uninit();
    // SAFETY: without a new action the call only fills the structure of this frame.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: `sigaction` returned 0, so it wrote the whole structure.
    (result == 0).then(|| unsafe { action.assume_init() })
}

fn is_ours(action: &sigaction) -> bool {
    action.sa_sigaction == handler()
}

fn handler() -> usize {
    on_signal as extern "C" fn(c_int) as usize
}

extern "C" fn on_signal(_: c_int) {
    let (descriptor, one) = (DESCRIPTOR.load(Ordering::Acquire), 1_u64);
    // SAFETY: `getpid` and `write` may be called in a handler; the eight bytes are of this frame. The error number of the interrupted code is put back.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if descriptor >= 0 && libc::getpid() == OWNER.load(Ordering::Acquire) {
            libc::write(descriptor, (&raw const one).cast::<c_void>(), size_of::<u64>());
        }
        *errno = before;
    }
}

/// The number of a signal by its name: `SIGUSR2`, `USR2`, `12`, `SIGRTMIN+1`.
#[must_use]
pub fn signal_number(name: &str) -> Option<i32> {
    let name = name.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let behind = |prefix: &str, sign: char| -> Option<i32> {
        let rest = name.strip_prefix(prefix)?;
        if rest.is_empty() { Some(0) } else { rest.strip_prefix(sign)?.parse().ok() }
    };
    match name {
        "USR1" => Some(libc::SIGUSR1),
        "USR2" => Some(libc::SIGUSR2),
        _ => behind("RTMIN", '+')
            .map(|more| libc::SIGRTMIN() + more)
            .or_else(|| behind("RTMAX", '-').map(|less| libc::SIGRTMAX() - less))
            .or_else(|| name.parse().ok()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn signal_is_noticed_and_a_later_handler_is_seen() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let signal = libc::SIGRTMIN() + 3;
        install_notice(signal, event.as_raw_fd()).unwrap();
        assert!(is_notice_installed(signal));
        // SAFETY: a signal to this very thread, with a handler.
        unsafe { libc::raise(signal) };
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&event, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
        // SAFETY: SIG_IGN is a valid disposition, and no other test uses this real-time signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
        assert!(!is_notice_installed(signal));
        assert_eq!(install_notice(signal, event.as_raw_fd()), Err(NoticeError::Taken));
    }

    #[test]
    fn other_signals_are_not_used() {
        for signal in [libc::SIGSEGV, libc::SIGKILL, libc::SIGINT, 0, 9999] {
            assert_eq!(install_notice(signal, -1), Err(NoticeError::Unfit), "{signal}");
        }
    }

    #[test]
    fn signals_are_known_by_name_and_number() {
        for name in ["SIGUSR2", "usr2", "12"] {
            assert_eq!(signal_number(name), Some(libc::SIGUSR2), "{name}");
        }
        assert_eq!(signal_number("SIGRTMIN+2"), Some(libc::SIGRTMIN() + 2));
        for name in ["", "SIGWHAT", "RTMIN2"] {
            assert_eq!(signal_number(name), None, "{name}");
        }
    }
}
