//! A copy of this process that waits for its end and then becomes another program: what must be done after a SIGKILL cannot be done by the
//! process that is killed.
//!
//! The copy is made by `fork` and makes system calls only: it allocates nothing, takes no lock and runs no code of ours until it becomes the
//! program. It has a session of its own, no descriptor but a pipe, and no signal but SIGKILL reaches it while it waits. Must never outlive
//! its use: dropping this ends it.

use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use libc::{c_char, c_int};

use crate::signals::{self, SignalSet};

/// Sent to the copy when it is not needed any more. Anything else, and the end of the pipe, makes it the program.
const END: u8 = b'e';
const BEGIN: u8 = b'b';
/// Descriptors from here on are not the standard streams.
const FIRST: c_int = 3;
/// Where the kernel cannot close all of them at once, this many are closed one by one.
const MANY: c_int = 4096;
const LAST_SIGNAL: c_int = 64;

/// The waiting copy.
#[derive(Debug)]
pub struct Standby {
    pid: libc::pid_t,
    /// Closed by the kernel when this process is gone, however that happens.
    pipe: Option<PipeWriter>,
}

impl Standby {
    /// Makes the copy. `command` is a program by its path, and its arguments; `name` is how the copy is listed while it waits.
    pub fn start(command: Vec<OsString>, name: &std::ffi::CStr) -> io::Result<Self> {
        let words: Result<Vec<CString>, _> =
            command.into_iter().map(|word| CString::new(word.into_vec())).collect();
        let words = words.map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut row: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        if row.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        row.push(ptr::null());
        let (waits, pipe) = io::pipe()?;
        // The copy inherits the mask: no signal is to end it before it can say so itself.
        let mask = SignalSet::all_but(&[]).block()?;
        // SAFETY: the child makes system calls on memory that was made ready before, and never returns from `wait_and_become`.
        let forked = match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is the child; the row and the texts in it live as long as it does.
            0 => unsafe { wait_and_become(&waits, &row, name.as_ptr()) },
            pid => Ok(Standby { pid, pipe: Some(pipe) }),
        };
        mask.install()?;
        forked
    }

    /// Makes it the program now; `None` where the copy is gone.
    #[must_use]
    pub fn begin(mut self) -> Option<StartedProgram> {
        let mut pipe = self.pipe.take()?;
        // A write to a pipe that no process reads is an error, not a signal: Rust ignores SIGPIPE, and the supervisor blocks it.
        pipe.write_all(&[BEGIN]).ok().map(|()| StartedProgram { pid: self.pid })
    }
}

/// The program that a [`Standby`] became: a child that is waited for, or left alone.
#[derive(Debug)]
pub struct StartedProgram {
    pid: libc::pid_t,
}

impl StartedProgram {
    /// Waits for its end.
    pub fn wait(self) {
        reap(self.pid);
    }

    /// Whether it has ended; it is reaped then.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // SAFETY: asks for a child of ours that nothing else waits for; takes numbers, and no status is wanted.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), libc::WNOHANG) != 0 }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // One that was killed is only to be reaped.
            let _ = pipe.write_all(&[END]);
            drop(pipe);
            reap(self.pid);
        }
    }
}

fn reap(pid: libc::pid_t) {
    loop {
        // SAFETY: waits for a child of ours that nothing else waits for; takes numbers, and no status is wanted.
        let done = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if done != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// What the copy does.
///
/// # Safety
/// Called in a forked child alone. `row` is a null-terminated row of C strings, `name` a C string.
unsafe fn wait_and_become(waits: &PipeReader, row: &[*const c_char], name: *const c_char) -> ! {
    const NULL: &[u8] = b"/dev/null\0";
    // SAFETY: system calls that are allowed between fork and exec, on the caller's texts and on numbers; the descriptors that are closed belong
    // to objects of the parent, which this copy never uses again.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::dup2(waits.as_raw_fd(), 0);
        let null = libc::open(NULL.as_ptr().cast(), libc::O_RDWR);
        libc::dup2(null, 1);
        libc::dup2(null, 2);
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) != 0 {
            (FIRST..MANY).for_each(|descriptor| {
                libc::close(descriptor);
            });
        }
        let mut order = END;
        loop {
            let count = libc::read(0, (&raw mut order).cast(), 1);
            if count == 1 && order == END {
                libc::_exit(0);
            }
            if count >= 0 || *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        libc::dup2(1, 0);
        // What was sent to the copy was meant for the process it is a copy of.
        for signal in 1..=LAST_SIGNAL {
            signals::set_action(signal, libc::SIG_IGN);
            signals::set_action(signal, libc::SIG_DFL);
        }
        let _ = SignalSet::none().install();
        if let Some(program) = row.first() {
            libc::execv(*program, row.as_ptr());
        }
        libc::_exit(127)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::path::Path;

    fn touch(file: &Path) -> Vec<OsString> {
        vec!["/usr/bin/touch".into(), file.into()]
    }

    #[test]
    fn a_copy_that_is_dropped_does_nothing() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        drop(Standby::start(touch(&file), c"waits").unwrap());
        assert!(!file.exists());
    }

    #[test]
    fn a_copy_becomes_the_program_when_asked() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        Standby::start(touch(&file), c"waits").unwrap().begin().unwrap().wait();
        assert!(file.exists());
    }

    #[test]
    fn a_copy_becomes_the_program_when_its_parent_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let mut waiting = Standby::start(touch(&file), c"waits").unwrap();
        // What the kernel does with the descriptors of a process that is killed.
        drop(waiting.pipe.take());
        reap(waiting.pid);
        assert!(file.exists());
    }

    #[test]
    fn no_signal_but_the_last_ends_a_copy_that_waits() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let waiting = Standby::start(touch(&file), c"waits").unwrap();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            crate::signals::send(waiting.pid, signal).unwrap();
        }
        waiting.begin().unwrap().wait();
        assert!(file.exists(), "it was still there");
    }
}
