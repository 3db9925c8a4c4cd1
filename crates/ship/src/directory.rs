//! A directory as a target, often one that many machines share: copies of runs below it, private unless it is shared.
//!
//! Needs no locks: files are made under temporary names and renamed, or written in place where their readers allow it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stormlog_files::{Directory, Draft};
use stormlog_model::layout::SHIPMENT_FILE;

use crate::error::ShipError;
use crate::manifest::{FileEntry, MOST_BYTES, Manifest};
use crate::target::{How, Target};

/// Small, because a ring and a log change in one or two places between passes: of 128 KiB a run of one process sent 66 KB/s.
pub(crate) const BLOCK_BYTES: u64 = 32 << 10;

/// The file that is written.
enum Open {
    Draft { draft: Draft, is_placed_early: bool },
    InPlace(File),
}

/// A directory of copies.
pub(crate) struct DirectoryTarget {
    path: PathBuf,
    is_shared: bool,
    run: Option<Directory>,
    open: Option<(PathBuf, Open)>,
}

impl DirectoryTarget {
    /// Opens it, and makes it where it is missing. Its parent must be there: a mount point that is not mounted has usually no directories in it.
    pub(crate) fn open(path: &Path, is_shared: bool) -> Result<Self, ShipError> {
        if let Err(error) = std::fs::metadata(path) {
            let made = match error.kind() {
                io::ErrorKind::NotFound => Directory::create(path, is_shared).map(drop),
                _ => Err(error),
            };
            // Another process may have been quicker.
            if let Err(error) = made
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(ShipError::file(path, error));
            }
        }
        Ok(DirectoryTarget { path: path.to_owned(), is_shared, run: None, open: None })
    }

    fn run(&self) -> Result<&Directory, ShipError> {
        self.run.as_ref().ok_or_else(|| ShipError::file(&self.path, io::ErrorKind::NotFound.into()))
    }

    /// The directory of a path in the run, made where it is missing, and the name in it.
    fn above<'p>(&self, path: &'p str) -> Result<(Option<Directory>, &'p str), ShipError> {
        let run = self.run()?;
        let wrong = |error| ShipError::file(&run.path().join(path), error);
        let Some((directories, name)) = path.rsplit_once('/') else { return Ok((None, path)) };
        let mut parts = directories.split('/');
        let first = parts.next().unwrap_or_default();
        let mut above = run.directory(first).map_err(wrong)?;
        for part in parts {
            above = above.directory(part).map_err(wrong)?;
        }
        Ok((Some(above), name))
    }

    fn in_directory<T>(
        &self,
        path: &str,
        act: impl FnOnce(&Directory, &str) -> io::Result<T>,
    ) -> Result<T, ShipError> {
        let (above, name) = self.above(path)?;
        let run = self.run()?;
        act(above.as_ref().unwrap_or(run), name)
            .map_err(|error| ShipError::file(&run.path().join(path), error))
    }

    /// Removes the directory of a file that has gone, where nothing else is in it.
    fn remove_above(&self, path: &str) -> Result<(), ShipError> {
        let Some((above, _)) = path.rsplit_once('/') else { return Ok(()) };
        self.in_directory(above, |directory, name| directory.remove_empty(name))
    }

    fn on_file(&mut self, act: impl FnOnce(&File) -> io::Result<()>) -> Result<(), ShipError> {
        let Some((path, open)) = &mut self.open else { return Ok(()) };
        let done = match open {
            Open::InPlace(file) => act(file),
            Open::Draft { draft, .. } => act(draft.file()),
        };
        done.map_err(|error| ShipError::file(path, error))
    }

    /// Gives a draft its name.
    fn place(&mut self) -> Result<(), ShipError> {
        if let Some((path, Open::Draft { draft, .. })) = self.open.take() {
            let file = draft.place().map_err(|error| ShipError::file(&path, error))?;
            self.open = Some((path, Open::InPlace(file)));
        }
        Ok(())
    }
}

impl Target for DirectoryTarget {
    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn load(&mut self, name: &str) -> Result<Option<Manifest>, ShipError> {
        self.run = None;
        let path = self.path.join(name);
        let run = match Directory::open(&path) {
            Ok(run) => run,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ShipError::file(&path, error)),
        };
        let mut text = Vec::new();
        let read = run
            .open_to_read(SHIPMENT_FILE)
            .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut text));
        let read = match read {
            Ok(_) => Some(Manifest::parse(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(ShipError::file(&path, error)),
        };
        self.run = read.is_some().then_some(run);
        Ok(read)
    }

    fn claim(&mut self, name: &str, manifest: &Manifest) -> Result<bool, ShipError> {
        let path = self.path.join(name);
        match Directory::create(&path, self.is_shared) {
            Ok(run) => {
                self.run = Some(run);
                // Without it a process that is killed later could not be continued.
                self.save(manifest)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(ShipError::file(&path, error)),
        }
    }

    fn check(&self) -> Result<(), ShipError> {
        match &self.run {
            Some(run) if !run.is_in_place() => {
                Err(ShipError::file(run.path(), io::ErrorKind::NotFound.into()))
            }
            _ => Ok(()),
        }
    }

    fn needs_all(&self, how: How) -> bool {
        how != How::Patch
    }

    fn is_there(&self, path: &str, length: u64) -> bool {
        let found = self.in_directory(path, |directory, name| directory.open_to_read(name)?.metadata());
        found.is_ok_and(|file| file.len() == length)
    }

    fn begin(&mut self, path: &str, file: &FileEntry, how: How) -> Result<(), ShipError> {
        self.open = None;
        let open = self.in_directory(path, |directory, name| match how {
            How::Patch => directory.open_in_place(name).map(Open::InPlace),
            How::Replace | How::Fresh => {
                let mut draft = directory.draft(name)?;
                draft.file().set_len(file.length)?;
                Ok(Open::Draft { draft, is_placed_early: how == How::Fresh })
            }
        })?;
        self.open = Some((self.run()?.path().join(path), open));
        // A file that shrinks is cut at its end; one that grows is a hole until its blocks are there.
        self.on_file(
            |open| if open.metadata()?.len() < file.length { open.set_len(file.length) } else { Ok(()) },
        )
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ShipError> {
        self.on_file(|file| file.write_all_at(bytes, offset))?;
        match &self.open {
            Some((_, Open::Draft { is_placed_early: true, .. })) => self.place(),
            _ => Ok(()),
        }
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), ShipError> {
        match &self.open {
            Some((_, Open::InPlace(_))) => {
                let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
                self.write(offset, &zeros)
            }
            // A hole by now.
            _ => Ok(()),
        }
    }

    fn end(&mut self, length: u64) -> Result<(), ShipError> {
        self.on_file(|file| if file.metadata()?.len() == length { Ok(()) } else { file.set_len(length) })?;
        self.place()?;
        self.open = None;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), ShipError> {
        let (to_directory, to_name) = self.above(to)?;
        let run = self.run()?;
        let to_directory = to_directory.as_ref().unwrap_or(run);
        self.in_directory(from, |directory, name| directory.rename(name, to_directory, to_name))?;
        self.remove_above(from)
    }

    fn remove(&mut self, path: &str, _: &FileEntry, _: u64) -> Result<(), ShipError> {
        self.in_directory(path, |directory, name| directory.remove(name))?;
        self.remove_above(path)
    }

    fn save(&mut self, manifest: &Manifest) -> Result<(), ShipError> {
        let text = manifest.to_text()?;
        self.in_directory(SHIPMENT_FILE, |directory, name| directory.replace(name, &text))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn entry(length: u64) -> FileEntry {
        FileEntry { length, ..FileEntry::default() }
    }

    fn new() -> Manifest {
        Manifest::new("origin".to_owned(), BLOCK_BYTES)
    }

    #[test]
    fn replaced_file_is_seen_whole_and_growing_one_from_its_first_block() {
        let place = tempfile::tempdir().unwrap();
        let mut target = DirectoryTarget::open(&place.path().join("new"), false).unwrap();
        assert!(target.claim("run", &new()).unwrap() && !target.claim("run", &new()).unwrap());
        let at = |path: &str| place.path().join("new/run").join(path);
        target.begin("a/b/x.json", &entry(4), How::Replace).unwrap();
        target.write(0, b"ab").unwrap();
        assert!(!at("a/b/x.json").exists());
        target.write(2, b"cd").unwrap();
        target.end(4).unwrap();
        assert_eq!(std::fs::read(at("a/b/x.json")).unwrap(), b"abcd");
        target.begin("log", &entry(6), How::Fresh).unwrap();
        assert!(!at("log").exists());
        target.write(0, b"ab").unwrap();
        assert_eq!(std::fs::read(at("log")).unwrap(), b"ab\0\0\0\0");
        target.write(2, b"cd").unwrap();
        target.end(6).unwrap();
        target.begin("log", &entry(3), How::Patch).unwrap();
        target.zero(0, 1).unwrap();
        target.end(3).unwrap();
        assert_eq!(std::fs::read(at("log")).unwrap(), b"\0bc");
        target.rename("a/b/x.json", "c/y.json").unwrap();
        target.remove("c/y.json", &entry(4), 1).unwrap();
        assert!(!at("c").exists() && !at("a/b").exists() && at("a").exists());
    }

    #[test]
    fn target_that_was_moved_away_is_not_written_to_any_more() {
        let place = tempfile::tempdir().unwrap();
        let mut target = DirectoryTarget::open(&place.path().join("target"), false).unwrap();
        target.claim("run", &new()).unwrap();
        assert!(target.check().is_ok());
        std::fs::rename(place.path().join("target"), place.path().join("elsewhere")).unwrap();
        assert!(target.check().is_err());
        std::fs::create_dir_all(place.path().join("target/run")).unwrap();
        assert!(target.check().is_err(), "another directory has its name");
    }

    #[test]
    fn planted_link_at_the_target_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let mut target = DirectoryTarget::open(place.path(), false).unwrap();
        target.claim("run", &new()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), place.path().join("run/a")).unwrap();
        assert!(target.begin("a/x", &entry(1), How::Fresh).is_err());
        std::os::unix::fs::symlink(elsewhere.path(), place.path().join("planted")).unwrap();
        assert!(target.load("planted").is_err() && !target.claim("planted", &new()).unwrap());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
