//! Kernel locks that show a process is alive: an exclusive `flock` on a file of its own, held until it ends.
//!
//! A lock belongs to an open file: a child of `fork` has it too, so a recorded process maps its file with `MADV_DONTFORK` and closes the
//! descriptor (the mapping keeps the open file), and a child takes one of its own. The supervisor keeps the descriptor, which `exec` closes.
//! A reader asks for a shared lock without waiting; readers do not disturb each other.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stormlog_files::{Directory, open_regular};

use crate::{LockState, is_on_network};

/// A lock that is held until this is dropped or the process ends.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

/// Takes a lock on a new file.
pub fn hold(directory: &Directory, name: &str) -> io::Result<Held> {
    let mut draft = directory.draft(name)?;
    // Locked before it has its name: under that it is never seen free.
    flock(&*draft.file(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(Held { _file: draft.place()? })
}

/// The right of one process to do something; its file is removed with it.
#[derive(Debug)]
pub struct Claim {
    file: File,
    directory: Directory,
    name: String,
}

impl Claim {
    /// Takes the lock on a file of a fixed name, which is made where it is missing; `None` where another process has it. Works on a network file system
    /// too, as far as its locks do: other processes are never asked by looking at their lock, only by trying to take it.
    pub fn take(directory: Directory, name: &str) -> io::Result<Option<Self>> {
        loop {
            let file = match directory.create_new(name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match directory.open_in_place(name) {
                        Ok(file) => file,
                        // It was given back in between.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // The holder before may have removed the file that is locked here.
            let own = file.metadata()?;
            let is_same = std::fs::symlink_metadata(directory.path().join(name))
                .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
            if is_same {
                return Ok(Some(Claim { file, directory, name: name.to_owned() }));
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while it is locked: a process that opened it meanwhile sees that it is gone. Left behind, an empty file.
        let _ = self.directory.remove(&self.name);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether some process holds the lock at `path`.
#[must_use]
pub fn state(path: &Path) -> LockState {
    // There a lock may be this process's own, and be lost by looking at it.
    if is_on_network(path) {
        return LockState::Missing;
    }
    let Ok(file) = open_regular(path) else { return LockState::Missing };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => LockState::Free,
        Err(Errno::WOULDBLOCK) => LockState::Held,
        Err(_) => LockState::Missing,
    }
}

/// Removes the lock files in directory `name` of `run` that no process holds; when the run is over, also those that were never locked, and
/// the directory when none is left.
pub fn sweep(run: &Directory, name: &str, is_over: bool) {
    let Ok(entries) = std::fs::read_dir(run.path().join(name)) else { return };
    let Ok(locks) = run.directory(name) else { return };
    for entry in entries.flatten() {
        // Under a temporary name it is about to be locked.
        let is_young = entry.path().extension().is_some() && !is_over;
        if !is_young && state(&entry.path()) != LockState::Held {
            // Left behind, an empty file.
            let _ = locks.remove(entry.file_name());
        }
    }
    if is_over {
        let _ = std::fs::remove_dir(run.path().join(name));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn locks_are_seen_while_they_are_held_and_swept_afterwards() {
        let place = tempfile::tempdir().unwrap();
        let run = Directory::open(place.path()).unwrap();
        let locks = place.path().join("locks");
        let held = hold(&run.directory("locks").unwrap(), "supervisor").unwrap();
        let path = locks.join("supervisor");
        assert_eq!((state(&path), state(&path)), (LockState::Held, LockState::Held), "a look takes nothing");
        let young = locks.join("7-1.tmp");
        std::fs::write(&young, "").unwrap();
        sweep(&run, "locks", false);
        assert!(path.exists() && young.exists());
        drop(held);
        assert_eq!(state(&path), LockState::Free);
        sweep(&run, "locks", true);
        assert_eq!(state(&path), LockState::Missing);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn claim_has_one_holder_at_a_time_also_when_many_want_it_at_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let place = tempfile::tempdir().unwrap();
        let take = || Claim::take(Directory::open(place.path()).unwrap(), "claim").unwrap();
        let path = place.path().join("claim");
        // A file that a killed process left.
        std::fs::write(&path, "").unwrap();
        let (holders, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..200 {
                let Some(claim) = take() else { continue };
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                taken.fetch_add(1, Ordering::SeqCst);
                holders.fetch_sub(1, Ordering::SeqCst);
                drop(claim);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(work);
            }
        });
        assert!(taken.into_inner() > 0 && !path.exists());
        let held = take().unwrap();
        assert_eq!(state(&path), LockState::Held);
        assert!(take().is_none());
        drop(held);
        assert!(take().is_some());
    }

    #[test]
    fn locks_end_with_the_process_that_holds_them() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        std::fs::write(&path, "").unwrap();
        let mut holder = std::process::Command::new("flock");
        holder.args(["-x", "-F"]).arg(&path).args(["sleep", "60"]);
        let mut holder = holder.spawn().unwrap();
        while state(&path) != LockState::Held {
            std::thread::yield_now();
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(state(&path), LockState::Free);
    }
}
