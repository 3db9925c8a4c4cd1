//! What the next program must not inherit: our descriptors, our session. Must never close a descriptor: it may be in use here.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Descriptors 0 to 2 are the standard streams, which the starter of a program sets.
const FIRST: libc::c_uint = 3;

/// Has every descriptor of this process but the standard streams closed in the programs it starts from now on: also those it inherited
/// itself, of which no object here knows.
pub fn inherit_nothing() -> io::Result<()> {
    // SAFETY: sets a flag on the descriptors of this process and closes none, so that everything that owns one stays right; the call takes
    // numbers only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC as libc::c_uint,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the program lead a session of its own from its first instruction on: no terminal, and no group whose signals reach it.
pub fn lead_session(command: &mut Command) -> &mut Command {
    let lead = || rustix::process::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: runs between fork and exec, where only system calls are allowed: this is one, and it neither allocates nor locks.
    unsafe { command.pre_exec(lead) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    #[test]
    fn a_program_started_afterwards_has_the_standard_streams_alone() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // What a shell does with `3>file`: no close-on-exec.
        // SAFETY: clears a flag of a descriptor that `file` keeps open.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        inherit_nothing().unwrap();
        let listed = Command::new("ls").arg("/proc/self/fd").output().unwrap().stdout;
        // The fourth is the directory that `ls` reads.
        assert_eq!(String::from_utf8(listed).unwrap().split_whitespace().count(), 4);
        assert!(file.metadata().is_ok(), "it is still open here");
    }
}
