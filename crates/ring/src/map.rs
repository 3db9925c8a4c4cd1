//! A mapped file as a slice of atomic words.
//!
//! The file may be written by other processes at any time, shrink, or vanish: words are atomics, so a change is never a
//! data race, and the guard turns missing pages into zeros. No descriptor is kept: a supervisor maps two files for each of
//! hundreds of processes, and a program that closes descriptors that are not its own cannot close one here.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::fs::{Mode, OFlags, Stat, fstat, ftruncate, open};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::guard::{self, Registration};
use crate::layout::WORD;
use crate::sync::AtomicU64;

/// Which file it is, whatever its name.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// A shared mapping of the first `bytes` bytes of a file.
pub(crate) struct Map {
    start: NonNull<AtomicU64>,
    bytes: usize,
    id: FileId,
    guard: Option<Registration>,
}

// SAFETY: the memory is reached only as atomic words, and the mapping lives until the last owner drops it.
unsafe impl Send for Map {}
// SAFETY: as for Send; no method changes anything but through atomics.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `bytes` bytes. Where the file is shorter, the rest reads as zeros.
    pub(crate) fn new(file: OwnedFd, bytes: usize, writable: bool) -> io::Result<Self> {
        let stat = fstat(&file)?;
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut map = Map { start, bytes, id: file_id(&stat), guard: None };
        let guard = guard::register(start.as_ptr() as usize, bytes)
            .ok_or_else(|| io::Error::other("too many mapped files in this process"))?;
        let present = usize::try_from(stat.st_size).unwrap_or(0);
        if present < bytes && !guard.cover_beyond(present) {
            return Err(io::Error::last_os_error());
        }
        map.guard = Some(guard);
        Ok(map)
    }

    /// The content.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and maps `bytes` bytes until drop; the guard gives every page of it memory.
        // Any bits are a valid AtomicU64, and there is no non-atomic reference to this memory.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes / WORD) }
    }

    /// Gives the pages back to the page cache: they are mapped again where they are read again. Only for a mapping that is not written, where no page can
    /// differ from the file.
    pub(crate) fn release(&self) {
        // SAFETY: `start` and `bytes` are the mapping made in `new`, which is shared: its content is the file's, or the zeros that the guard put in the
        // place of missing pages, and is the same when it is read again. The words stay valid to read.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) };
    }

    /// Whether a page had to be replaced by zeros because the file no longer backs it.
    pub(crate) fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Registration::is_lost)
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Shortens the file at `path`, if it is still this one. No process may need the content beyond `bytes`.
    pub(crate) fn trim(&self, path: &Path, bytes: u64) {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = open(path, flags, Mode::empty())
            && let Ok(stat) = fstat(&file)
            && file_id(&stat) == self.id
            && u64::try_from(stat.st_size).is_ok_and(|now| now > bytes)
        {
            // A file that keeps its slack is only larger than need be.
            let _ = ftruncate(&file, bytes);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.guard = None; // before the address range can be mapped again
        // SAFETY: `start` and `bytes` are the mapping made in `new`; `words` borrows from self, so no reference is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
