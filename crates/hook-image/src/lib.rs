//! The hooks' shared library, carried inside our own programs and put on disk where a loader can find it.
//!
//! Must never write over a file that another process may have mapped: a library goes under a name that its content decides, by
//! rename, and an existing file is used only when its content is right.

#![forbid(unsafe_code)]

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stormlog_files::cache_directories;

/// The library's bytes; empty on systems it does not support.
pub static HOOK: &[u8] = include_bytes!(env!("STORMLOG_HOOK_IMAGE"));

/// What stands between the libraries of an `LD_PRELOAD`; there is no way to write one that is part of a path.
const SEPARATORS: &[u8] = b" :";

/// Why the library could not be put on disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The hooks were not built for this system.
    #[error(
        "allocations cannot be recorded on this system: they need Linux on x86-64 with the GNU C library"
    )]
    Unsupported,
    /// No directory would take the file.
    #[error("cannot write the recording library to {}: {error}; set XDG_CACHE_HOME to a directory you can write to", .path.display())]
    Write {
        /// The last place tried.
        path: PathBuf,
        /// What was wrong there.
        error: io::Error,
    },
}

/// Puts the library into the user's cache and gives its path; what is there already is used.
///
/// # Errors
/// Where the system is not supported, or no place could be written to.
pub fn install() -> Result<PathBuf, Error> {
    install_first(cache_directories())
}

/// As [`install`], with a directory for when the cache cannot be used (a read-only home).
///
/// # Errors
/// As [`install`].
pub fn install_or(fallback: &Path) -> Result<PathBuf, Error> {
    let mut places: Vec<PathBuf> = cache_directories().collect();
    let last = places.len().saturating_sub(1);
    places.insert(last, fallback.to_owned());
    install_first(places.into_iter())
}

fn install_first(places: impl Iterator<Item = PathBuf>) -> Result<PathBuf, Error> {
    if HOOK.is_empty() {
        return Err(Error::Unsupported);
    }
    let mut last = Error::Unsupported;
    for directory in places {
        match install_in(&directory) {
            Ok(path) => return Ok(path),
            Err(error) => last = Error::Write { path: directory, error },
        }
    }
    Err(last)
}

/// Puts the library into `directory` under a name made of its content.
fn install_in(directory: &Path) -> io::Result<PathBuf> {
    if directory.as_os_str().as_bytes().iter().any(|byte| SEPARATORS.contains(byte)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the loader does not accept a path with a space or colon",
        ));
    }
    let name = format!("libstormlog_hook-{:016x}.so", fingerprint(HOOK));
    stormlog_files::install(directory, &name, HOOK, true)
}

/// FNV-1a: only a name, the content is compared whole.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn the_library_is_a_library() {
        assert_eq!(HOOK[..4], *b"\x7fELF");
    }

    #[test]
    fn a_damaged_file_is_replaced_and_a_right_one_kept() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("cache");
        let path = install_in(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), HOOK);
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(fs::metadata(install_in(&directory).unwrap()).unwrap().ino(), inode);
        fs::write(&path, b"damaged").unwrap();
        assert_eq!(fs::read(install_in(&directory).unwrap()).unwrap(), HOOK);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_path_the_loader_would_take_apart_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let odd = [place.path().join("John Smith"), place.path().join("a:b")];
        assert!(odd.iter().all(|odd| install_in(odd).is_err() && !odd.exists()));
        let plain = place.path().join("plain");
        let places = odd.into_iter().chain([plain.clone()]);
        assert_eq!(install_first(places).unwrap().parent(), Some(plain.as_path()));
    }

    #[test]
    fn many_at_once_agree() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("cache");
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| install_in(&directory).unwrap())).collect();
            for one in all {
                assert_eq!(fs::read(one.join().unwrap()).unwrap(), HOOK);
            }
        });
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn directory_writable_by_others_is_rejected() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(install_in(place.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(install_in(Path::new("/proc/nothing")).is_err());
    }
}
