//! Keeps SIGBUS away from the recorded program: touching a mapped page whose file was truncated, or whose disk failed, must cost
//! us records, not the user a process.
//!
//! A fault inside a registered mapping is answered by laying zeroed anonymous memory over the rest of that mapping
//! and marking it lost. Every other SIGBUS goes to the handler that was installed before. The handler is
//! async-signal-safe: it reads static tables and makes system calls, it neither allocates nor locks.
//!
//! Must never swallow a SIGBUS that is not ours, nor remove another handler.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::process;

/// Mappings that can be guarded at once in one process. Beyond it, mapping a file fails and the loss is counted.
const MAPPINGS: usize = 1024;

struct Entry {
    start: AtomicUsize, // 0: free, 1: being filled in
    end: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Entry; MAPPINGS] =
    [const { Entry { start: AtomicUsize::new(0), end: AtomicUsize::new(0), lost: AtomicBool::new(false) } };
        MAPPINGS];
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// A guarded address range, from [`register`] until it is dropped.
pub(crate) struct Registration(&'static Entry);

impl Registration {
    /// Whether a page of the range had to be replaced.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
    }
}

/// Guards `bytes` bytes at `start`, which must be a mapping that outlives the registration. `None` when the table is full.
pub(crate) fn register(start: usize, bytes: usize) -> Option<Registration> {
    let entry = TABLE
        .iter()
        .find(|entry| entry.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok())?;
    entry.end.store(start + bytes, Ordering::Relaxed);
    entry.lost.store(false, Ordering::Relaxed);
    entry.start.store(start, Ordering::Release);
    keep_installed();
    Some(Registration(entry))
}

/// A previous owner of the signal, remembered by the handler that was put above it.
struct Previous {
    handler: AtomicUsize,
    flags: AtomicI32,
}

/// Each time other code installs a handler and we install ours above it, we do so with another function, so that a
/// foreign handler which calls the one it replaced reaches the handler below *that* one, never itself again. When all are
/// used up, the last handler keeps it.
const LEVELS: usize = 16;
static HANDLERS: [extern "C" fn(c_int, *mut siginfo_t, *mut c_void); LEVELS] = [
    on_sigbus::<0>,
    on_sigbus::<1>,
    on_sigbus::<2>,
    on_sigbus::<3>,
    on_sigbus::<4>,
    on_sigbus::<5>,
    on_sigbus::<6>,
    on_sigbus::<7>,
    on_sigbus::<8>,
    on_sigbus::<9>,
    on_sigbus::<10>,
    on_sigbus::<11>,
    on_sigbus::<12>,
    on_sigbus::<13>,
    on_sigbus::<14>,
    on_sigbus::<15>,
];
static PREVIOUS: [Previous; LEVELS] =
    [const { Previous { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) } }; LEVELS];
static USED: AtomicUsize = AtomicUsize::new(0);
/// The pid of the process one of whose threads is installing. After a fork it may name a thread that is not here.
static INSTALLING: AtomicU32 = AtomicU32::new(0);

/// Makes sure the signal reaches us first. Cheap when it does: one system call.
pub(crate) fn keep_installed() {
    let current = query();
    if is_ours(current.sa_sigaction) {
        return;
    }
    let (me, holder) = (process::pid(), INSTALLING.load(Ordering::Relaxed));
    if holder == me || INSTALLING.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return; // another thread is at it
    }
    let level = USED.load(Ordering::Relaxed);
    if level < LEVELS && !is_ours(query().sa_sigaction) {
        install(level, &current);
        USED.store(level + 1, Ordering::Relaxed);
    }
    INSTALLING.store(0, Ordering::Release);
}

fn is_ours(handler: usize) -> bool {
    HANDLERS.iter().any(|&ours| ours as usize == handler)
}

fn query() -> libc::sigaction {
    // SAFETY: `sigaction` is plain data for which all zeros is a valid value; the call fills it in.
    unsafe {
        let mut current: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &mut current);
        current
    }
}

fn install(level: usize, expected: &libc::sigaction) {
    // SAFETY: `sysconf` only reads its argument.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    remember(level, expected); // before the handler can run
    // SAFETY: both structures are valid; the handler has the signature SA_SIGINFO asks for and is async-signal-safe.
    unsafe {
        let (mut ours, mut replaced): (libc::sigaction, libc::sigaction) = (mem::zeroed(), mem::zeroed());
        ours.sa_sigaction = HANDLERS[level] as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &ours, &mut replaced) == 0 {
            remember(level, &replaced);
        }
    }
}

fn remember(level: usize, previous: &libc::sigaction) {
    PREVIOUS[level].flags.store(previous.sa_flags, Ordering::Relaxed);
    PREVIOUS[level].handler.store(previous.sa_sigaction, Ordering::Release);
}

extern "C" fn on_sigbus<const LEVEL: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler that passes on what the kernel gave it, hands us a valid siginfo.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes up to 0 are signals sent by a process; they carry no address.
    if code > 0 && rescue(address) {
        return;
    }
    pass_on(&PREVIOUS[LEVEL], signal, info, context, code > 0);
}

/// Replaces the rest of the mapping `address` is in by zeros. False when it is not one of ours.
fn rescue(address: usize) -> bool {
    let found = TABLE.iter().find(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        start > 1 && (start..entry.end.load(Ordering::Relaxed)).contains(&address)
    });
    let Some(entry) = found else { return false };
    entry.lost.store(true, Ordering::Relaxed);
    let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
    cover(page, entry.end.load(Ordering::Relaxed) - page)
}

/// Lays zeroed private memory over `bytes` bytes from the page boundary `start`. The caller owns the mapping there.
fn cover(start: usize, bytes: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: `rescue` and `cover_beyond` pass only ranges inside a registered mapping, which belongs to a `Map` and
    // stays mapped while registered. All access to it is by atomic words, for which zeros are valid.
    unsafe { mmap_anonymous(start as *mut c_void, bytes, access, flags) }.is_ok()
}

impl Registration {
    /// Replaces everything from the first whole page after `kept` bytes by zeros: what is beyond the end of a file.
    pub(crate) fn cover_beyond(&self, kept: usize) -> bool {
        let (start, end) = (self.0.start.load(Ordering::Relaxed), self.0.end.load(Ordering::Relaxed));
        let from = (start + kept).next_multiple_of(PAGE.load(Ordering::Relaxed));
        from >= end || cover(from, end - from)
    }
}

/// Gives the signal to the handler that was there before ours.
fn pass_on(previous: &Previous, signal: c_int, info: *mut siginfo_t, context: *mut c_void, fault: bool) {
    match previous.handler.load(Ordering::Acquire) {
        libc::SIG_IGN if !fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data, valid as zeros; SIG_DFL needs no handler. A fault then happens again when we
            // return and ends the process as it would have without us; a sent signal is sent again.
            unsafe {
                let mut default: libc::sigaction = mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 => {
            // SAFETY: the code that installed this address with SA_SIGINFO promised the kernel this signature.
            let handler = unsafe {
                mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler)
            };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the code that installed this address without SA_SIGINFO promised the kernel this signature.
            let handler = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}
