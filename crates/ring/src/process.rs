//! The identity of this process and the liveness of others: pids across `fork`, start times, the boot and the pid namespace, and a cheap clock.
//!
//! Must never answer "dead" for a process it merely cannot see.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::getpid;
use stormlog_liveness::Life;

/// Smallest page Linux has; the kernel rounds a request for less than its own page up.
const PAGE: usize = 4096;

/// This process's pid, without a system call once known. A forked child notices by itself: the kernel empties the page the
/// answer is kept in.
pub(crate) fn pid() -> u32 {
    static KEPT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    let mut kept = KEPT.load(Ordering::Acquire);
    if kept.is_null() {
        let Some(page) = page_wiped_on_fork() else { return asked_pid() };
        kept = match KEPT.compare_exchange(ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => page,
            Err(winner) => {
                // SAFETY: `page` is a fresh mapping of PAGE bytes that lost the race; no other thread has its address.
                let _ = unsafe { munmap(page.cast(), PAGE) };
                winner
            }
        };
    }
    // SAFETY: only `page_wiped_on_fork` makes the pointers kept here; it gives zeroed, page-aligned memory that is
    // never unmapped once published above. Zero is a valid AtomicU32.
    let cell = unsafe { &*kept };
    match cell.load(Ordering::Relaxed) {
        0 => {
            let pid = asked_pid();
            cell.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

fn asked_pid() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

/// One zeroed page that reads as zero again in a forked child. `None` on kernels before 4.14.
fn page_wiped_on_fork() -> Option<*mut AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the range is the mapping just made, which nothing refers to yet.
    match unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) } {
        Ok(()) => Some(page.cast()),
        Err(_) => {
            // SAFETY: the range is the mapping made above; its address has not left this function.
            let _ = unsafe { munmap(page, PAGE) };
            None
        }
    }
}

/// Clock ticks between boot and the start of process `pid`. `None` when it is gone or cannot be seen.
pub(crate) use stormlog_liveness::start_ticks as start_time;

/// Whether the process `pid` of this namespace that started at `start` (0: unknown) is gone. A zombie is gone.
pub(crate) fn is_dead(pid: u32, start: u64) -> bool {
    stormlog_liveness::exists(pid, (start != 0).then_some(start)) == Life::Dead
}

/// The id the kernel chose at boot, as two words; zero when it does not say.
pub(crate) fn boot_id() -> [u64; 2] {
    let text = stormlog_liveness::boot_id().unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    let id = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
    crate::layout::halves(id)
}

/// The inode of this process's pid namespace; zero when it cannot be read.
pub(crate) fn pid_namespace() -> u64 {
    stormlog_liveness::pid_namespace().unwrap_or(0)
}

/// Nanoseconds since 1970 by the wall clock.
#[must_use]
pub fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Milliseconds of a monotonic clock that is exact to one timer tick and costs a few nanoseconds.
pub(crate) fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_live_and_our_former_self_does_not() {
        let start = start_time(pid()).unwrap();
        assert!(!is_dead(pid(), start));
        assert!(!is_dead(pid(), 0));
        assert!(is_dead(pid(), start + 1));
        assert_ne!(boot_id(), [0, 0]);
    }
}
