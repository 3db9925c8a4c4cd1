//! A mapped file as a slice of atomic words.
//!
//! The file may be written by other processes at any time, shrink, or vanish: words are atomics, so a change is never a
//! data race, and the guard turns missing pages into zeros. The file stays open for the sake of `fstat`; but the
//! watched program may close descriptors that are not its own, so ours is trusted only while it still names the file that
//! was mapped.

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;

use rustix::fs::{Stat, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
    file: Option<OwnedFd>,
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
        let mut map = Map { start, bytes, file: Some(file), id: file_id(&stat), guard: None };
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
        // Any bits are a valid AtomicU64, and nobody holds a non-atomic reference to this memory.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes / WORD) }
    }

    /// Whether a page had to be replaced by zeros because the file no longer backs it.
    pub(crate) fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Registration::is_lost)
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// What the file system says of the file; `None` when our descriptor was taken away from us.
    pub(crate) fn stat(&self) -> Option<Stat> {
        let stat = fstat(self.file.as_ref()?).ok()?;
        (file_id(&stat) == self.id).then_some(stat)
    }

    /// Shortens the file. Nobody may need what lies beyond.
    pub(crate) fn trim(&self, bytes: u64) {
        if let (Some(stat), Some(file)) = (self.stat(), &self.file)
            && u64::try_from(stat.st_size).is_ok_and(|now| now > bytes)
        {
            // A file that keeps its slack is only larger than need be.
            let _ = ftruncate(file, bytes);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.stat().is_none()
            && let Some(file) = self.file.take()
        {
            let _ = file.into_raw_fd(); // somebody else's by now, not ours to close
        }
        self.guard = None; // before the address range can belong to somebody else
        // SAFETY: `start` and `bytes` are the mapping made in `new`; `words` borrows from self, so no reference is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
