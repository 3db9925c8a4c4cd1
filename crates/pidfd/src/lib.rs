//! A process held by a descriptor: it can be waited for by anyone, and tells how it ended, whoever reaped it.
//!
//! A parent's wait status is the parent's alone, but since Linux 6.15 a pidfd remembers the exit code for everybody who
//! holds one. No safe library offers that call, so this crate is here for it: one `unsafe` block, nothing else. It must
//! never reap, signal or otherwise touch the process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
    /// Opens the process of that number. Whoever knows the process by more than its number checks afterwards that it
    /// still has it.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Pidfd(pidfd_open(pid, PidfdFlags::empty())?))
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

/// Readable (`POLLIN`) once the process has ended, reaped or not.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
