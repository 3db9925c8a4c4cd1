//! The run directory that is shipped, read through handles: a link that a program planted in it leads nowhere, also where root ships it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use stormlog_files::{DRAFT_SUFFIX, Directory};
use stormlog_model::layout::{REQUESTS_DIRECTORY, SHIPMENT_FILE, SHIPPING_FILE, SHIPPING_LOCK};

use crate::error::ShipError;
use crate::manifest::{MOST_FILES, is_legal};
use crate::order;

/// A run directory.
pub(crate) struct Source {
    run: Directory,
}

/// A file of it, as it is now.
pub(crate) struct SourceFile {
    file: File,
    pub(crate) inode: u64,
    pub(crate) length: u64,
    pub(crate) modified_ns: u64,
}

impl Source {
    pub(crate) fn open(run: &Path) -> Result<Self, ShipError> {
        Ok(Source { run: Directory::open(run).map_err(|error| ShipError::file(run, error))? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.run.path()
    }

    /// The paths of its files, in the order in which they are sent.
    pub(crate) fn list(&self) -> Result<Vec<String>, ShipError> {
        let mut found = Vec::new();
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            let path = self.run.path().join(&directory);
            let entries = match std::fs::read_dir(&path) {
                Ok(entries) => entries,
                // The run itself must be there; a directory in it may have gone meanwhile.
                Err(error) if directory.is_empty() => return Err(ShipError::file(&path, error)),
                Err(_) => continue,
            };
            for entry in entries.flatten() {
                let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                    continue;
                };
                let below = if directory.is_empty() { name } else { format!("{directory}/{name}") };
                if !is_legal(&below) || is_own(&below) {
                    continue;
                }
                if kind.is_dir() {
                    directories.push(below);
                } else if kind.is_file() && found.len() < MOST_FILES {
                    found.push(below);
                }
            }
        }
        found.sort_by(|a, b| order::key(a).cmp(&order::key(b)));
        Ok(found)
    }

    /// Opens a file; `None` where it has gone, or is none of ours.
    pub(crate) fn file(&self, path: &str) -> Result<Option<SourceFile>, ShipError> {
        let open = || -> io::Result<SourceFile> {
            let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut parts = directories.split('/').filter(|part| !part.is_empty());
            let file = match parts.next() {
                None => self.run.open_to_read(name)?,
                Some(first) => {
                    let above = self.run.existing(first)?;
                    parts.try_fold(above, |above, part| above.existing(part))?.open_to_read(name)?
                }
            };
            let about = file.metadata()?;
            let seconds = u64::try_from(about.mtime()).unwrap_or(0);
            let modified_ns =
                seconds.saturating_mul(1_000_000_000) + u64::try_from(about.mtime_nsec()).unwrap_or(0);
            Ok(SourceFile { inode: about.ino(), length: about.len(), modified_ns, file })
        };
        match open() {
            Ok(file) => Ok(Some(file)),
            // Gone, or a link in its place.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if matches!(error.raw_os_error(), Some(20 | 40)) => Ok(None),
            Err(error) => Err(ShipError::file(&self.run.path().join(path), error)),
        }
    }
}

impl SourceFile {
    /// Reads a block; fewer bytes where the file ends.
    pub(crate) fn read(&self, offset: u64, block: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < block.len() {
            match self.file.read_at(&mut block[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// Drafts, what belongs to the shipment, and requests: the processes that take them are here.
fn is_own(path: &str) -> bool {
    if path.split('/').next() == Some(REQUESTS_DIRECTORY) {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_draft = name.rsplit_once('.').is_some_and(|(_, ending)| ending == DRAFT_SUFFIX);
    is_draft || name == "archive.slog" || [SHIPMENT_FILE, SHIPPING_FILE, SHIPPING_LOCK].contains(&path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn links_drafts_locks_and_requests_of_a_run_are_not_listed() {
        let run = tempfile::tempdir().unwrap();
        let at = |path: &str| run.path().join(path);
        std::fs::create_dir_all(at("rank0-pid7/log")).unwrap();
        std::fs::create_dir(at(".locks")).unwrap();
        std::fs::create_dir(at("requests")).unwrap();
        for path in [
            "run.json",
            ".shipping.json",
            ".shipping.lock",
            ".run.json.7.ab.tmp",
            ".locks/supervisor",
            "requests/7.listener.json",
            "rank0-pid7/log/000001.slog",
            "rank0-pid7/log/archive.slog",
            "rank0-pid7/heap.bin.tmp",
        ] {
            std::fs::write(at(path), path).unwrap();
        }
        std::os::unix::fs::symlink("/etc", at("rank0-pid8")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("output.log")).unwrap();
        let source = Source::open(run.path()).unwrap();
        assert_eq!(source.list().unwrap(), ["rank0-pid7/log/000001.slog", "run.json"]);
        assert!(source.file("rank0-pid8/passwd").unwrap().is_none());
        assert!(source.file("output.log").unwrap().is_none());
        let file = source.file("run.json").unwrap().unwrap();
        let mut block = [0; 100];
        assert_eq!((file.length, file.read(4, &mut block).unwrap()), (8, 4));
        assert_eq!(&block[..4], b"json");
    }
}
