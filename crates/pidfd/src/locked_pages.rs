//! Pages of a file that the kernel keeps in memory while this process wants it.
//!
//! At the limit of a memory cgroup the kernel drops the code of libraries before it kills. Code that every allocation runs through is then read
//! from disk again at once, the kernel counts that as progress, and the kill is put off for minutes. Pages that one process has locked stay, for
//! every process that maps the file; the recorded program itself locks nothing. Must never fail its caller: where the limit of locked memory
//! (RLIMIT_MEMLOCK) is too small, nothing is locked.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};

/// The pages of a file, locked until this is dropped. A forked child does not inherit the lock.
#[derive(Debug)]
pub struct LockedPages {
    start: NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: the mapping is never read or written through the pointer, only given back; any thread may do that.
unsafe impl Send for LockedPages {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for LockedPages {}

impl LockedPages {
    /// Reads a regular file into memory and locks its pages there.
    ///
    /// # Errors
    /// Where the file is empty or cannot be mapped, or more memory would be locked than this process may lock.
    pub fn of(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open while `file` is borrowed.
        let start =
            unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let pages = match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => LockedPages { start, length },
            _ => return Err(io::Error::last_os_error()),
        };
        // SAFETY: the range is the mapping made above, which `pages` keeps.
        match unsafe { libc::mlock(pages.start.as_ptr(), pages.length) } {
            0 => Ok(pages),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `of`, nothing refers into it, and it is given back once.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn locked_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn pages_of_a_file_are_locked_until_they_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7_u8; 10_000]).unwrap();
        let before = locked_kb();
        let pages = LockedPages::of(&File::open(&path).unwrap()).unwrap();
        assert_eq!(locked_kb() - before, 12);
        drop(pages);
        assert_eq!(locked_kb(), before);
    }

    #[test]
    fn an_empty_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("empty");
        assert!(LockedPages::of(&File::create(&path).unwrap()).is_err());
    }
}
