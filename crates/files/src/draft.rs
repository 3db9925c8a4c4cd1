//! A file being written under a random name in its directory, removed unless it is placed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::directory::{Directory, parent};

/// Ends the names of drafts: `.NAME.PID.RANDOM.tmp`. The pid identifies leftovers of dead processes.
pub const SUFFIX: &str = "tmp";

/// A private file that is not yet under its name.
#[derive(Debug)]
pub struct Draft {
    directory: OwnedFd,
    temporary: OsString,
    target: OsString,
    file: Option<File>,
}

impl Draft {
    /// Begins the file that will be at `path`.
    pub fn at(path: &Path) -> io::Result<Self> {
        let (directory, name) = parent(path)?;
        Draft::begin(&directory, name)
    }

    pub(crate) fn begin(directory: &Directory, target: &OsStr) -> io::Result<Self> {
        loop {
            let temporary = temporary_name(target);
            match directory.create_new(&temporary) {
                Ok(file) => {
                    let (directory, target) = (directory.handle()?, target.to_owned());
                    return Ok(Draft { directory, temporary, target, file: Some(file) });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The file to write to.
    ///
    /// # Panics
    /// Never: it is there until the draft is placed, which consumes it.
    pub fn file(&mut self) -> &mut File {
        match &mut self.file {
            Some(file) => file,
            None => unreachable!("a placed draft is gone"),
        }
    }

    /// Gives the file its name, in place of whatever has it.
    pub fn place(mut self) -> io::Result<File> {
        renameat(&self.directory, &self.temporary, &self.directory, &self.target)?;
        self.file.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Gives the file its name unless that is taken: then `None`, and what is there stays.
    pub fn place_new(mut self) -> io::Result<Option<File>> {
        let (directory, from, to) = (&self.directory, &self.temporary, &self.target);
        let named = match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            // Not all file systems know the flag; all that matter know hard links.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let linked = linkat(directory, from, directory, to, AtFlags::empty());
                // A second name that stays is known for a draft by its form.
                let _ = unlinkat(directory, from, AtFlags::empty());
                linked
            }
            result => result,
        };
        match named {
            Ok(()) => Ok(self.file.take()),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Nothing to do about a failure: readers know drafts by their names.
            let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

/// Longest part of the target's name that is repeated: a name may have 255 bytes.
const REPEATED: usize = 180;

fn temporary_name(target: &OsStr) -> OsString {
    let random = RandomState::new().hash_one(std::process::id());
    let text = target.to_string_lossy();
    let kept: String = text.chars().take(REPEATED / 4).collect();
    format!(".{kept}.{}.{random:016x}.{SUFFIX}", std::process::id()).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn drafts_leave_nothing_when_dropped() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        fs::write(&path, "before").unwrap();
        let mut draft = Draft::at(&path).unwrap();
        draft.file().write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn placed_drafts_replace_or_yield() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        assert!(Draft::at(&path).unwrap().place_new().unwrap().is_some());
        assert!(Draft::at(&path).unwrap().place_new().unwrap().is_none());
        let mut draft = Draft::at(&path).unwrap();
        draft.file().write_all(b"whole").unwrap();
        draft.place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn long_names_are_possible() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ä".repeat(127));
        Draft::at(&path).unwrap().place().unwrap();
        assert!(path.is_file());
    }
}
