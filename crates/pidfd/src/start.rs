//! Starting a program as this process itself was started: its ignored signals, mask, closed streams and soft limit of descriptors.
//!
//! Rust's runtime ignores SIGPIPE and opens closed standard streams before `main`, and `Command` gives every child a default SIGPIPE. A
//! service manager that ignores SIGPIPE (systemd does) means it for the program, so the state is read before the runtime changes it.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::c_int;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::signals::{self, SignalSet};

/// Set once the state below is known; it is only where this code is part of the executable, not of a library that was loaded later.
const KNOWN: u32 = 1;
const PIPE_IGNORED: u32 = 1 << 1;
const CHILD_IGNORED: u32 = 1 << 2;
/// Stream 0; 1 and 2 are the next bits.
const STREAM_CLOSED: u32 = 1 << 3;

/// What the process was started with.
static AT_START: AtomicU32 = AtomicU32::new(0);
/// Its limit of descriptors then: this process may raise its own.
static SOFT_DESCRIPTORS: AtomicU64 = AtomicU64::new(UNLIMITED);
static HARD_DESCRIPTORS: AtomicU64 = AtomicU64::new(UNLIMITED);
/// Linux's number where there is no limit.
const UNLIMITED: u64 = u64::MAX;

// SAFETY: the loader calls each pointer of this section once, before `main`; the function has the C calling convention, takes nothing
// that it reads, and neither allocates, locks nor panics.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_AT_START: extern "C" fn() = read_at_start;

extern "C" fn read_at_start() {
    if !is_in_executable() {
        return;
    }
    let mut found = KNOWN;
    if signals::is_ignored(libc::SIGPIPE) {
        found |= PIPE_IGNORED;
    }
    if signals::is_ignored(libc::SIGCHLD) {
        found |= CHILD_IGNORED;
        // A process that ignores SIGCHLD cannot learn how its own child ended.
        signals::set_default(libc::SIGCHLD);
    }
    for stream in 0..3 {
        // SAFETY: asks for flags of a number that may or may not be open; changes nothing.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0 {
            found |= STREAM_CLOSED << stream;
        }
    }
    let limit = getrlimit(Resource::Nofile);
    SOFT_DESCRIPTORS.store(limit.current.unwrap_or(UNLIMITED), Ordering::Relaxed);
    HARD_DESCRIPTORS.store(limit.maximum.unwrap_or(UNLIMITED), Ordering::Relaxed);
    AT_START.store(found, Ordering::Relaxed);
}

/// Whether this code belongs to the executable: in an interpreter's extension the state at load time is the interpreter's.
fn is_in_executable() -> bool {
    let mut ours = MaybeUninit::<libc::Dl_info>::zeroed();
    let mut main = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `getauxval` reads the vector the kernel gave; `dladdr` looks two addresses up and fills the structures, which are valid as
    // zeros too.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::c_void;
        let here = read_at_start as extern "C" fn() as *const libc::c_void;
        libc::dladdr(here, ours.as_mut_ptr()) != 0
            && libc::dladdr(headers, main.as_mut_ptr()) != 0
            && ours.assume_init().dli_fbase == main.assume_init().dli_fbase
    }
}

/// Whether `/proc/self/exe` is a program that contains this code, and not an interpreter that loaded it.
#[must_use]
pub fn is_own_executable() -> bool {
    AT_START.load(Ordering::Relaxed) & KNOWN != 0
}

/// How a child starts beyond what [`Command`] can say; by default with our mask and streams.
#[derive(Clone, Copy, Default)]
pub struct Start {
    /// Its signal mask.
    pub mask: Option<SignalSet>,
    /// Streams that were closed when this process started are closed for the child.
    pub closed_streams: bool,
    /// Close every descriptor above standard error.
    pub only_streams: bool,
    /// SIGKILL it when the thread that starts it is gone.
    pub die_with_parent: bool,
    /// Its limit of address space, in bytes.
    pub address_space: Option<u64>,
}

impl Start {
    /// Makes `command` start its program so; also where it replaces this process.
    pub fn apply(self, command: &mut Command) {
        // SAFETY: `getpid` cannot fail and touches nothing.
        let parent = unsafe { libc::getpid() };
        let at_start = AT_START.load(Ordering::Relaxed);
        // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are allowed: it makes system
        // calls on its own copies, and errors are numbers that need no memory.
        unsafe { command.pre_exec(move || self.in_child(parent, at_start)) };
    }

    fn in_child(self, parent: c_int, at_start: u32) -> io::Result<()> {
        if self.die_with_parent {
            check(set_parent_process_death_signal(Some(Signal::KILL)))?;
            // SAFETY: `getpid` and `getppid` cannot fail and touch nothing.
            let (own, now) = unsafe { (libc::getpid(), libc::getppid()) };
            // The parent may be gone already; where a process replaces itself, there is no such parent.
            if own != parent && now != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        if at_start & KNOWN != 0 {
            let count =
                |limit: &AtomicU64| Some(limit.load(Ordering::Relaxed)).filter(|limit| *limit != UNLIMITED);
            let limit = Rlimit { current: count(&SOFT_DESCRIPTORS), maximum: count(&HARD_DESCRIPTORS) };
            // A hard limit that another process has lowered since stays as it is now.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        if at_start & KNOWN == 0 {
            // Inside of Python, which ignores it for itself.
            signals::set_default(libc::SIGXFSZ);
        }
        if at_start & PIPE_IGNORED != 0 {
            signals::set_action(libc::SIGPIPE, libc::SIG_IGN);
        }
        if at_start & CHILD_IGNORED != 0 {
            signals::set_action(libc::SIGCHLD, libc::SIG_IGN);
        }
        for stream in 0..3 {
            if self.closed_streams && at_start & (STREAM_CLOSED << stream) != 0 {
                // SAFETY: the stream is the null device that the runtime opened where it was closed; this copy of the process uses it no
                // more.
                unsafe { libc::close(stream) };
            }
        }
        if self.only_streams {
            // At `exec`: until then the pipe that reports a failed one is needed.
            crate::inherit_nothing()?;
        }
        if self.address_space.is_some() {
            let limit = Rlimit { current: self.address_space, maximum: self.address_space };
            check(setrlimit(Resource::As, limit))?;
        }
        // Last: what came meanwhile acts on the child from here on, as it would on the program.
        self.mask.map_or(Ok(()), |mask| mask.install())
    }
}

fn check(result: rustix::io::Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::from_raw_os_error(error.raw_os_error()))
}
