//! Whether any process writes to a file, asked of the kernel: a read lease is given only where no process has the file open or mapped for
//! writing. The answer holds for all namespaces of this kernel, where process numbers mean nothing. Must never keep the lease.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Which signal says that a lease is wanted back; the C library has the number under another feature.
const F_SETSIG: libc::c_int = 10;

/// Whether a process has the file open or mapped for writing. `file` is open for reading only, and this process must have it open for writing
/// nowhere. `None` where the kernel gives no lease: another user's file, or a file system of another machine.
pub fn is_written(file: BorrowedFd<'_>) -> Option<bool> {
    // SAFETY: takes a descriptor that the borrow keeps open, and numbers.
    let call =
        |command: libc::c_int, value: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
    // When another process opens the file, the kernel breaks our lease with a signal: not SIGIO, which would end this process.
    if call(F_SETSIG, libc::SIGURG) != 0 {
        return None;
    }
    if call(libc::F_SETLEASE, libc::F_RDLCK) == 0 {
        call(libc::F_SETLEASE, libc::F_UNLCK);
        return Some(false);
    }
    let error = std::io::Error::last_os_error();
    (error.raw_os_error() == Some(libc::EAGAIN)).then_some(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_that_is_opened_for_writing_meanwhile_does_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(File::create(&path).unwrap());
        let reader = File::open(&path).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    drop(File::options().write(true).open(&path).unwrap());
                }
                is_over.store(true, std::sync::atomic::Ordering::Release);
            });
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                assert!(is_written(reader.as_fd()).is_some());
            }
        });
    }

    #[test]
    fn a_file_is_written_while_it_is_open_for_writing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(is_written(reader.as_fd()), Some(true));
        drop(writer);
        assert_eq!(is_written(reader.as_fd()), Some(false));
        let again = File::options().write(true).open(&path);
        assert!(again.is_ok(), "the lease was given back");
    }
}
