//! One file of either kind: making it so that it appears under its name only when it is whole, opening it, and noticing
//! what others have done to it.
//!
//! Must never leave a file under its name that a reader could find half-made, and never start what the disk has no room for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use stormlog_files::{DRAFT_SUFFIX, Draft};

use crate::error::Error;
use crate::frames::Frames;
use crate::header::{Header, Identity, Kind, Refusal, Shape};
use crate::layout::{HEADER_WORDS, VERSION, WORD};
use crate::map::{FileId, Map};
use crate::process;
use crate::record::LossReason;
use crate::slots::Slots;
use crate::sync::AtomicU64;

const HEADER_BYTES: usize = HEADER_WORDS * WORD;

/// A mapped, checked file.
pub(crate) struct StoreFile {
    map: Map,
    path: PathBuf,
    shape: Shape,
    identity: Identity,
    short: bool,
}

/// What to do when the name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    Keep,
    Replace,
}

impl StoreFile {
    /// Makes the file and maps it. `Ok(None)` when the name is taken and was to be kept.
    pub(crate) fn create(
        path: &Path,
        shape: Shape,
        identity: Identity,
        taken: IfExists,
    ) -> Result<Option<Self>, Error> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let bytes = shape.file_bytes().ok_or_else(|| failed(Errno::FBIG.into()))?;
        let mut draft = Draft::at(path).map_err(failed)?;
        reserve_space(draft.file(), bytes).map_err(failed)?;
        let file = draft.file().try_clone().map_err(failed)?;
        let map = Map::new(file.into(), bytes as usize, true).map_err(failed)?;
        let header = Header::new(map.words());
        header.write(&shape, &identity);
        header.register(process::pid()); // before a reader can ask which process writes it
        let placed = match taken {
            IfExists::Replace => draft.place().map(Some),
            IfExists::Keep => draft.place_new(),
        };
        if placed.map_err(failed)?.is_none() {
            return Ok(None);
        }
        Ok(Some(StoreFile { map, path: lasting(path), shape, identity, short: false }))
    }

    /// Opens and maps an existing file of the wanted kind.
    pub(crate) fn open(path: &Path, kind: Kind, writable: bool) -> Result<Self, Error> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .custom_flags(libc::O_NONBLOCK) // a fifo in the file's place must not hold us up
            .open(path)
            .map_err(failed)?;
        let stat = file.metadata().map_err(failed)?;
        if !stat.is_file() {
            return Err(Error::Foreign { path: path.to_owned() });
        }
        let (shape, identity) =
            with_header(&file, path, |header| header.read())?.map_err(|refusal| match refusal {
                Refusal::Foreign => Error::Foreign { path: path.to_owned() },
                Refusal::Version(found) => Error::Version { path: path.to_owned(), found, known: VERSION },
                Refusal::Damaged(what) => Error::Damaged { path: path.to_owned(), what },
            })?;
        if shape.kind != kind {
            let wanted = if kind == Kind::Ring { "ring" } else { "log segment" };
            return Err(Error::WrongKind { path: path.to_owned(), wanted });
        }
        let bytes = shape.file_bytes().unwrap_or(0); // checked by `read`
        let map = Map::new(file.into(), bytes as usize, writable).map_err(failed)?;
        Ok(StoreFile { map, path: lasting(path), shape, identity, short: stat.len() < bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives its pages back to the page cache.
    pub(crate) fn release(&self) {
        self.map.release();
    }

    pub(crate) fn header(&self) -> Header<'_> {
        Header::new(self.map.words())
    }

    pub(crate) fn frames(&self) -> Frames<'_> {
        self.header().frames(&self.shape)
    }

    pub(crate) fn slots(&self) -> Slots<'_> {
        self.header().slots(&self.shape)
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn id(&self) -> FileId {
        self.map.id()
    }

    /// How many records the file can hold, where that is less than was ever appended to it.
    pub(crate) fn holds_at_most(&self) -> u64 {
        if self.shape.kind == Kind::Ring { self.shape.count } else { u64::MAX }
    }

    /// Whether the file was found shorter than made, or lost pages since.
    pub(crate) fn is_short(&self) -> bool {
        self.short || self.map.is_lost()
    }

    /// Whether pages were lost while we had it mapped. Costs one load.
    pub(crate) fn is_lost(&self) -> bool {
        self.map.is_lost()
    }

    /// What keeps records appended here from being read back, if anything does. Costs system calls.
    pub(crate) fn trouble(&self) -> Option<LossReason> {
        if self.is_lost() || !self.header().is_intact() {
            return Some(LossReason::Truncated);
        }
        let stat = match fs::symlink_metadata(&self.path) {
            Ok(stat) if (stat.dev(), stat.ino()) == self.id() => stat,
            Ok(_) => return Some(LossReason::Removed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(LossReason::Removed),
            // A program that gave up its rights may write into what it has mapped, and can no longer look.
            Err(_) => return None,
        };
        if Some(stat.len()) < self.shape.file_bytes() && !self.header().is_closed() {
            Some(LossReason::Truncated) // a segment is also trimmed when it is closed
        } else {
            None
        }
    }

    /// This process will write no more. The last one out ends a segment and gives its slack back.
    pub(crate) fn close(&self, pid: u32) {
        if self.trouble().is_some() {
            return; // deleted, or replaced by another file
        }
        if self.header().close(pid) && self.shape.kind == Kind::Segment {
            let used = HEADER_WORDS + self.frames().seal();
            self.map.trim(&self.path, (used * WORD) as u64);
        }
    }
}

/// The path as it stays when the program changes its working directory.
fn lasting(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Calls `look` on a copy of a file's header.
pub(crate) fn with_header<T>(
    file: &File,
    path: &Path,
    look: impl FnOnce(Header<'_>) -> T,
) -> Result<T, Error> {
    let mut bytes = vec![0; HEADER_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {
            let (words, _) = bytes.as_chunks::<WORD>();
            let words: Vec<AtomicU64> =
                words.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect();
            Ok(look(Header::new(&words)))
        }
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Error::Foreign { path: path.to_owned() })
        }
        Err(source) => Err(Error::Io { path: path.to_owned(), source }),
    }
}

/// Gives the file all the disk space it will ever need, so that running out is an error here and not a signal later.
fn reserve_space(file: &File, bytes: u64) -> io::Result<()> {
    // Growing beyond this limit would not only fail but raise SIGXFSZ, which ends the program.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| bytes > limit) {
        return Err(Errno::FBIG.into());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(other) => return Err(other.into()),
        }
    }
    let (zeros, mut left, mut file) = ([0; 4096], bytes as usize, file);
    while left > 0 {
        let part = left.min(zeros.len());
        file.write_all(&zeros[..part])?;
        left -= part;
    }
    Ok(())
}

/// Removes drafts that killed processes left in `dir`.
pub(crate) fn clear_unfinished(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let mut parts = name.to_str().unwrap_or_default().rsplit('.');
        if parts.next() == Some(DRAFT_SUFFIX)
            && let Some(pid) = parts.nth(1).and_then(|pid| pid.parse().ok())
            && process::is_dead(pid, 0)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}
