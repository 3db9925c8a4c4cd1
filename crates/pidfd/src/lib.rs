//! System calls on processes that no safe library offers, each behind a safe function:
//!
//! - [`Pidfd`]: a process held by a descriptor. A parent's wait status is the parent's alone, but since Linux 6.15 a pidfd
//!   keeps the exit code for every process that holds one. It never reaps the process, and signals it only when asked.
//! - [`peak_of_ended_child`]: the memory peak of a child that ended and is not reaped yet.
//! - [`is_written`]: whether any process writes to a file.
//! - [`inherit_nothing`], [`lead_session`]: programs that we start inherit neither descriptors nor session.
//! - [`signals`]: taking signals with their senders, passing them on unchanged, ending and stopping by one.
//! - [`Standby`]: a copy of this process that becomes another program when this one is gone.
//! - [`install_notice`]: a signal that a user named as a request, never taken from a program that uses it.
//! - [`keep_small`]: a heap that gives back what it does not need.
//! - [`LockedPages`]: a file that stays in memory.
//! - [`OwnCode`]: the code of this process that stays in memory.
//! - [`start`]: starting a program with the signals, descriptors and limits that this process itself was started with.
//!
//! Decides nothing: which signal goes where is the caller's rule.

mod inherit;
mod lease;
mod locked_pages;
mod notice;
mod own_code;
mod own_heap;
pub mod signals;
mod standby;
pub mod start;

pub use inherit::{inherit_nothing, lead_session};
pub use lease::is_written;
pub use locked_pages::LockedPages;
pub use notice::{NoticeError, install_notice, is_notice_installed, signal_number};
pub use own_code::OwnCode;
pub use own_heap::keep_small;
pub use standby::{Standby, StartedProgram};

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

pub use rustix::process::Signal;

/// `struct pidfd_info` in its first size, which every kernel that knows the call accepts.
#[derive(Default)]
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    /// pid, tgid, ppid and eight user and group numbers: not asked for.
    numbers: [u32; 11],
    exit_code: i32,
}

/// In `mask`: the exit code is wanted, and on return: it is there.
const EXIT: u64 = 1 << 3;
const GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xFF, 11);
const _: () = assert!(size_of::<PidfdInfo>() == 64, "the size is part of the call's number");

/// A process, for as long as this is held: its number may be used again, this stays its own.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens the process of that number. A caller that knows the process by more than its number (its start time) checks
    /// afterwards that the number still belongs to it.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Pidfd(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Sends a signal to this process, never to another one that has its number now: one that has ended is an error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    /// Whether the process has ended, reaped or not.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut ends = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut ends, Some(&Timespec::default()))? > 0)
    }

    /// How the process ended. `None` while it lives or waits to be reaped, and on kernels before 6.15.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
        // SAFETY: the number names the call by its group, number and the size of `PidfdInfo`, which the assertion above
        // holds to the kernel's; the kernel reads and writes within it, and any bytes are valid for its integer fields.
        // `info` is exclusively ours and outlives the call.
        let asked = unsafe { ioctl(&self.0, Updater::<GET_INFO, PidfdInfo>::new(&mut info)) };
        asked.ok()?;
        (info.mask & EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code))
    }
}

/// Waits for the end of a child, which is still to be reaped then, and gives the most bytes that it or a descendant it had waited for had
/// resident. What a process had before an `exec` counts too: for a new child, what its parent had.
pub fn peak_of_ended_child(pid: u32) -> io::Result<u64> {
    loop {
        // SAFETY: both are plain structures of integers (`siginfo_t` of bytes), for which zero is valid.
        let (mut info, mut usage) =
            unsafe { (std::mem::zeroed::<libc::siginfo_t>(), std::mem::zeroed::<libc::rusage>()) };
        // SAFETY: the call's five arguments as `waitid(2)` describes the raw call; the kernel writes within the two structures, which
        // are exclusively ours and outlive the call. With WNOWAIT the child is not reaped.
        let done = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PID,
                pid,
                &raw mut info,
                libc::WEXITED | libc::WNOWAIT,
                &raw mut usage,
            )
        };
        if done == 0 {
            // Kibibytes.
            return Ok(u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Readable (`POLLIN`) once the process has ended, reaped or not.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn signal_reaches_the_held_process_and_no_later_one_of_its_number() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let held = Pidfd::open(child.id()).unwrap();
        assert!(!held.has_ended().unwrap());
        held.signal(Signal::KILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(held.has_ended().unwrap());
        // Reaped: the number is free, and may be another process's.
        let error = held.signal(Signal::KILL).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
