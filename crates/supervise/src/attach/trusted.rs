//! Which interpreter of a target may be executed.
//!
//! A target names its own program: `/proc/PID/exe` of another user's process may be anything, and executing it would run that user's code
//! with our rights. Only a file that only root or the caller could have put there is executed, and only where its path means the
//! same file to us as to the target.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The interpreter of a Python process, where it can be executed safely.
pub(super) fn interpreter(pid: u32) -> Option<PathBuf> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = fs::read_link(&link).ok()?;
    let is_python = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    (is_python && shares_our_mounts(pid) && is_same_file(&path, &link) && is_ours_alone(&path))
        .then_some(path)
}

fn shares_our_mounts(pid: u32) -> bool {
    let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let theirs = mounts(&pid.to_string());
    theirs.is_some() && theirs == mounts("self")
}

/// A path that the kernel names may be of another root directory, or of a file that was replaced since.
fn is_same_file(path: &Path, link: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let there = identity(path);
    there.is_some() && there == identity(link)
}

/// Whether the file and every directory above it belong to root or to the caller, and no one else may write to them.
fn is_ours_alone(path: &Path) -> bool {
    // A path from the kernel has no links in it; another one could lead elsewhere between the look and the use.
    let is_canonical = fs::canonicalize(path).is_ok_and(|canonical| canonical == path);
    let us = geteuid().as_raw();
    let is_safe = |there: &Metadata| matches!(there.uid(), 0) || there.uid() == us;
    is_canonical
        && path.ancestors().all(|part| {
            fs::symlink_metadata(part)
                .is_ok_and(|there| is_safe(&there) && there.mode() & OTHERS_WRITE == 0 && !there.is_symlink())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_others_could_change_are_not_trusted() {
        let place = tempfile::Builder::new().prefix("trusted").tempdir_in(home()).unwrap();
        let path = place.path().canonicalize().unwrap().join("python3");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(is_ours_alone(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o775)).unwrap();
        assert!(!is_ours_alone(&path), "the group may write to it");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(!is_ours_alone(&path), "anyone may replace it");
        assert!(!is_ours_alone(Path::new("/nonexistent/python3")));
    }

    /// A directory above which no one else may write, as `/tmp` is not.
    fn home() -> PathBuf {
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..")
    }
}
