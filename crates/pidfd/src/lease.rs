//! Whether any process writes to a file, asked of the kernel: a read lease is given only where nobody has the file open or mapped for
//! writing. The answer holds for all namespaces of this kernel, where process numbers mean nothing. Must never keep the lease.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether a process has the file open or mapped for writing. `file` is open for reading only, and this process must have it open for writing
/// nowhere. `None` where the kernel gives no lease: another user's file, or a file system of another machine.
pub fn is_written(file: BorrowedFd<'_>) -> Option<bool> {
    // SAFETY: takes a descriptor that the borrow keeps open, and numbers.
    let lease = |kind: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_RDLCK) == 0 {
        lease(libc::F_UNLCK);
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
