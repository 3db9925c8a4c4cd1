//! The capture a path means: a file itself, or the one in the directory of a session or run. Must say which it took when there were several.

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_capture::layout::LIVE_SUFFIX;
use stormlog_capture::live::Live;
use stormlog_heap::{FILE_NAME, HeapError};

use crate::error::ViewError;

/// Directories are looked at so deep: a run holds sessions, a folder of runs holds runs.
const DEPTH: usize = 4;
/// More files than this in a directory are not ours.
const MOST: usize = 10_000;

/// The capture that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its path.
    pub path: PathBuf,
    /// How many others there were: of its process, where one was asked for.
    pub others: usize,
}

/// The capture at `path`: of several the largest, of process `pid` where that is asked for. A process has one for each program it was.
pub fn find(path: &Path, pid: Option<u32>) -> Result<Chosen, ViewError> {
    if !path.is_dir() {
        let is_there = path.exists() || Live::path_of(path).exists();
        return match is_there {
            true => Ok(Chosen { path: path.to_owned(), others: 0 }),
            false => Err(ViewError::NotThere { path: path.to_owned() }),
        };
    }
    let mut found = Vec::new();
    collect(path, 0, &mut found);
    found.sort();
    found.dedup();
    if found.is_empty() {
        return Err(HeapError::NoCapture { path: path.to_owned() }.into());
    }
    if let Some(pid) = pid {
        let mut pids: Vec<u32> = Vec::new();
        found.retain(|path| {
            let own = pid_of(path);
            pids.extend(own);
            own == Some(pid)
        });
        if found.is_empty() {
            pids.sort_unstable();
            pids.dedup();
            let known = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            return Err(ViewError::NoSuchProcess { path: path.to_owned(), pid, known });
        }
    }
    let others = found.len().saturating_sub(1);
    let largest = found.into_iter().max_by_key(|path| size(path));
    largest
        .map(|path| Chosen { path, others })
        .ok_or_else(|| HeapError::NoCapture { path: path.to_owned() }.into())
}

fn collect(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().take(MOST) {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth < DEPTH {
            collect(&entry.path(), depth + 1, found);
        } else if kind.is_file()
            && let Some(name) = entry.file_name().to_str()
            && let name = name.strip_suffix(LIVE_SUFFIX).unwrap_or(name)
            && (is_capture(name) || is_growing(directory, name))
        {
            found.push(directory.join(name));
        }
    }
}

/// `heap.bin`, as a run names it; `heap-PID.bin` and `stormlog-heap-PID.bin`, as the library does; each with a number behind it for the
/// programs a process became.
fn is_capture(name: &str) -> bool {
    let name = match name.rsplit_once('.') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    let name = name.strip_prefix("stormlog-").unwrap_or(name);
    name == FILE_NAME || (name.starts_with("heap-") && name.ends_with(".bin"))
}

/// `heap/PID.bin`: where a run keeps the captures of processes that have not ended.
fn is_growing(directory: &Path, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.splitn(3, '.');
    let is_named = parts.next().is_some_and(is_number) && parts.next() == Some("bin");
    is_named && parts.next().is_none_or(is_number) && directory.file_name().is_some_and(|name| name == "heap")
}

fn size(path: &Path) -> u64 {
    let length = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
    // What is in a live file becomes far smaller, and some of it is room that is not written yet.
    length(path) + length(&Live::path_of(path)) / 32
}

fn pid_of(path: &Path) -> Option<u32> {
    let source = stormlog_capture::source::Source::open(path).ok()?;
    source.header().ok().map(|header| header.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_a_run_is_taken() {
        let run = tempfile::tempdir().unwrap();
        for (session, bytes) in [("a", 10), ("b", 500), ("c", 20)] {
            fs::create_dir(run.path().join(session)).unwrap();
            fs::write(run.path().join(session).join(FILE_NAME), vec![0; bytes]).unwrap();
        }
        fs::write(run.path().join("other.bin"), vec![0; 9999]).unwrap();
        let chosen = find(run.path(), None).unwrap();
        assert_eq!(chosen, Chosen { path: run.path().join("b").join(FILE_NAME), others: 2 });
    }

    #[test]
    fn a_run_that_goes_on_has_captures_too() {
        let run = tempfile::tempdir().unwrap();
        let growing = run.path().join("heap");
        fs::create_dir(&growing).unwrap();
        for name in ["12.bin.live", "12.bin", "12.bin.1.live", "notes.bin", "12.bin.old", ".bin"] {
            fs::write(growing.join(name), [0; 10]).unwrap();
        }
        fs::write(run.path().join("12.bin"), [0; 100]).unwrap();
        assert_eq!(find(run.path(), None).unwrap(), Chosen { path: growing.join("12.bin"), others: 1 });
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let empty = tempfile::tempdir().unwrap();
        assert!(find(empty.path(), None).unwrap_err().to_string().contains("holds no heap capture"));
        assert!(find(&empty.path().join("x"), None).unwrap_err().to_string().contains("is not there"));
    }
}
