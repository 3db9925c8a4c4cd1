//! The allocator snapshot at a path: the file itself, or the newest one of a bundle, a process or a run. Bounded in depth and number, links
//! are not followed. Must never read a snapshot.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::SNAPSHOT;

/// Levels from a directory of runs to a snapshot: run, process, bundle.
const MAX_DEPTH: usize = 3;
/// Directories looked at before the search ends.
const MAX_DIRECTORIES: usize = 100_000;

/// No snapshot is at a path.
#[derive(Debug, thiserror::Error)]
pub enum NoSnapshot {
    /// The directory has none.
    #[error(
        "{}: no allocator snapshot here; PyTorch's allocator leaves one ({SNAPSHOT}) when a request fails under `stormlog run`, or name a file that torch.cuda.memory._dump_snapshot wrote",
        path.display()
    )]
    Nowhere {
        /// The directory.
        path: PathBuf,
    },
}

/// A file as it is; of a directory the newest snapshot in it.
pub fn snapshot_at(path: &Path) -> Result<PathBuf, NoSnapshot> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut pending = vec![(path.to_owned(), 0)];
    let mut looked_at = 0;
    while let Some((directory, depth)) = pending.pop() {
        looked_at += 1;
        if looked_at > MAX_DIRECTORIES {
            break;
        }
        // What this user may not read has nothing to list.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else if kind.is_file() && entry.file_name() == SNAPSHOT {
                let written = entry.metadata().and_then(|data| data.modified());
                let found = (written.unwrap_or(SystemTime::UNIX_EPOCH), entry.path());
                newest = newest.max(Some(found));
            }
        }
    }
    newest.map(|(_, path)| path).ok_or_else(|| NoSnapshot::Nowhere { path: path.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn the_newest_snapshot_of_a_run_is_found() {
        let root = tempfile::tempdir().unwrap();
        let [older, newer] = ["oom_dump_1", "oom_dump_2"].map(|name| {
            let bundle = root.path().join("run/rank0-pid7-cuda0").join(name);
            fs::create_dir_all(&bundle).unwrap();
            fs::write(bundle.join(SNAPSHOT), name).unwrap();
            bundle.join(SNAPSHOT)
        });
        let hour_ago = SystemTime::now() - std::time::Duration::from_secs(3600);
        fs::File::options().write(true).open(&older).unwrap().set_modified(hour_ago).unwrap();
        assert_eq!(snapshot_at(root.path()).unwrap(), newer);
        assert_eq!(snapshot_at(older.parent().unwrap()).unwrap(), older);
        assert_eq!(snapshot_at(&older).unwrap(), older);
    }

    #[test]
    fn a_directory_without_one_and_a_link_to_one_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(SNAPSHOT), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join(SNAPSHOT), root.path().join(SNAPSHOT)).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), root.path().join("linked")).unwrap();
        let error = snapshot_at(root.path()).unwrap_err().to_string();
        assert!(error.contains("no allocator snapshot here"), "{error}");
    }
}
