//! Signals of this process, taken one by one with their senders instead of by handlers: blocked, then waited for.
//!
//! A handler cannot tell a queue of real-time signals from one of them, runs on whatever thread is interrupted, and is reset to the
//! default action by `exec`; a blocked signal stays queued until it is taken. Which signals are passed on is the caller's rule.

use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::time::Duration;

use libc::{c_int, siginfo_t, sigset_t};

/// Sent by `kill`.
pub const SENT: i32 = libc::SI_USER;
/// Sent by `sigqueue`, with a value.
pub const QUEUED: i32 = libc::SI_QUEUE;
/// Sent to one thread by `tgkill`.
pub const TO_A_THREAD: i32 = libc::SI_TKILL;
/// Raised by the kernel: a terminal, a limit.
pub const FROM_THE_KERNEL: i32 = libc::SI_KERNEL;

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(pub(crate) sigset_t);

impl SignalSet {
    /// All that can be blocked, but these.
    #[must_use]
    pub fn all_but(left_out: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises the whole set; `sigdelset` only changes bits of it, or fails for a number that is not a signal.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            for signal in left_out {
                libc::sigdelset(set.as_mut_ptr(), *signal);
            }
            SignalSet(set.assume_init())
        }
    }

    /// No signal at all.
    pub(crate) fn none() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the whole set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            SignalSet(set.assume_init())
        }
    }

    /// This one alone.
    fn of(signal: c_int) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set before it is read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), signal);
            SignalSet(set.assume_init())
        }
    }

    /// Blocks these in the calling thread, and in the threads and programs it starts; gives the mask from before.
    pub fn block(&self) -> io::Result<SignalSet> {
        change_mask(libc::SIG_BLOCK, self)
    }

    /// Makes this the calling thread's mask.
    pub fn install(&self) -> io::Result<()> {
        change_mask(libc::SIG_SETMASK, self).map(drop)
    }

    /// Takes one of these that is pending, or waits for it; `None` after the time, or when a handler of another signal ran.
    pub fn take(&self, within: Duration) -> io::Result<Option<Received>> {
        let mut info = MaybeUninit::<siginfo_t>::zeroed();
        let seconds = libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX);
        let limit = libc::timespec { tv_sec: seconds, tv_nsec: within.subsec_nanos().into() };
        // SAFETY: the set and the time are read only; the kernel fills `info`, which is ours.
        let signal = unsafe { libc::sigtimedwait(&self.0, info.as_mut_ptr(), &limit) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: zeroed is valid for this plain structure, and the kernel has filled it since.
        let info = unsafe { info.assume_init() };
        Ok(Some(Received { signal, info }))
    }
}

fn change_mask(how: c_int, set: &SignalSet) -> io::Result<SignalSet> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `set` is read, `before` is filled; both are ours.
    match unsafe { libc::pthread_sigmask(how, &set.0, before.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so it filled the set.
        0 => Ok(SignalSet(unsafe { before.assume_init() })),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A signal that was taken.
#[derive(Clone, Copy)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    info: siginfo_t,
}

// SAFETY: plain data; the pointer it may hold is a number that the sender chose, and is never followed.
unsafe impl Send for Received {}

impl Received {
    /// How it came: [`SENT`], [`QUEUED`], [`TO_A_THREAD`], [`FROM_THE_KERNEL`], or another code of the kernel's.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.info.si_code
    }

    /// The process that sent it; 0 for the kernel and for a sender outside of this PID namespace.
    #[must_use]
    pub fn sender(&self) -> i32 {
        match self.code() {
            // SAFETY: with these codes the structure holds a sender; its bytes are initialised and any are a valid number.
            SENT | QUEUED | TO_A_THREAD => unsafe { self.info.si_pid() },
            _ => 0,
        }
    }

    /// Sends the same signal to another process; a queued one with its value and its first sender.
    pub fn pass_on(&self, pid: i32) -> io::Result<()> {
        if self.code() == QUEUED {
            // SAFETY: the structure is initialised and read only; the kernel checks that the code is one a process may send.
            let sent = unsafe {
                libc::syscall(libc::SYS_rt_sigqueueinfo, pid, self.signal, ptr::from_ref(&self.info))
            };
            if sent == 0 {
                return Ok(());
            }
        }
        send(pid, self.signal)
    }
}

/// Sends a signal; unlike rustix's `kill_process` also a real-time one. A negative number is a process group.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory of ours.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the process ignores the signal.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills `action`, for which zeros are valid.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Gives the signal its default action.
pub fn set_default(signal: i32) {
    set_action(signal, libc::SIG_DFL);
}

pub(crate) fn set_action(signal: i32, action: libc::sighandler_t) {
    // SAFETY: zeros are a valid action without flags or mask; SIG_DFL and SIG_IGN, the only ones given here, run no code of ours.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        new.sa_sigaction = action;
        libc::sigaction(signal, &new, ptr::null_mut());
    }
}

/// Ends or stops this process by the default action of a signal. Returns where that action does neither (PID 1 of a namespace is immune,
/// an orphaned group does not stop), and after a stop when the process continues. The mask is as before then.
pub fn act_on(signal: i32) -> io::Result<()> {
    set_default(signal);
    let one = SignalSet::of(signal);
    let before = one.block()?;
    // Sent while it is blocked: one that another process sent a moment ago is the same then, and acts once.
    // SAFETY: `getpid` cannot fail and touches nothing.
    let sent = send(unsafe { libc::getpid() }, signal);
    change_mask(libc::SIG_UNBLOCK, &one)?;
    before.install()?;
    sent
}
