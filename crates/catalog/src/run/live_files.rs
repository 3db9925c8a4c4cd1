//! The live files of captures: what programs still write, or left behind without a supervisor. Names of any kind are listed, because a capture
//! that is attached to a process is named by the user. Must never open a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stormlog_capture::layout::LIVE_SUFFIX;

/// How deep captures are below a run's directory.
const DEPTH: usize = 1;
/// Of `st_blocks`.
const BLOCK: u64 = 512;

/// The live file of one capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// The name of the capture, without the suffix of the live file.
    pub name: OsString,
    /// The disk that the live file takes, which has holes.
    pub bytes: u64,
}

/// The captures of a directory that have a live file, in the order they were made: where a name is taken, the library adds a number. `None`
/// where the directory cannot be read.
#[must_use]
pub fn live_files(directory: &Path) -> Option<Vec<LiveFile>> {
    let entries = std::fs::read_dir(directory).ok()?;
    let mut found: Vec<LiveFile> = entries
        .flatten()
        .filter_map(|entry| {
            let live = entry.file_name();
            let name = live.as_bytes().strip_suffix(LIVE_SUFFIX.as_bytes())?;
            let bytes = entry.metadata().map_or(0, |file| file.blocks() * BLOCK);
            Some(LiveFile { name: OsStr::from_bytes(name).to_owned(), bytes })
        })
        .collect();
    found.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    Some(found)
}

/// Directories at or below `run` with captures that are not complete, and the disk that their live files take.
#[must_use]
pub fn unfinished_captures(run: &Path) -> Vec<(PathBuf, u64)> {
    let mut unfinished = Vec::new();
    let mut directories = vec![(run.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        if depth < DEPTH {
            let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            directories.extend(below.map(|entry| (entry.path(), depth + 1)));
        }
        let live = live_files(&directory).unwrap_or_default();
        if !live.is_empty() {
            unfinished.push((directory, live.iter().map(|file| file.bytes).sum()));
        }
    }
    unfinished
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn live_files_are_listed_in_the_order_they_were_made_and_by_the_disk_they_take() {
        let run = tempfile::tempdir().unwrap();
        let growing = run.path().join("heap");
        std::fs::create_dir(&growing).unwrap();
        for name in ["9.bin.10.live", "9.bin.live", "9.bin.2.live", "9.bin", "notes"] {
            std::fs::write(growing.join(name), [1; 5000]).unwrap();
        }
        std::os::unix::fs::symlink("/", run.path().join("link")).unwrap();
        let names: Vec<OsString> = live_files(&growing).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["9.bin", "9.bin.2", "9.bin.10"]);
        let [(directory, bytes)] = unfinished_captures(run.path()).try_into().unwrap();
        assert_eq!(directory, growing);
        assert!((3 * 5000..1 << 20).contains(&bytes));
        assert_eq!(live_files(&run.path().join("nothing")), None);
    }
}
