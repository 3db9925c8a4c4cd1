//! The user's private cache: code that other programs load (the hook library, the script for Python) is put there under a name that its
//! content decides.
//!
//! Must never hand out a path that another user could write to, and never write over a file that a process may have mapped.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::directory::{Directory, create_directory};

/// Directories to try in this order: the user's cache, then one of this user's among the temporary files, whose path is plain where a
/// home's is not.
pub fn cache_directories() -> impl Iterator<Item = PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let user = geteuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("stormlog-{user}"));
    cache.map(|cache| cache.join("stormlog")).into_iter().chain([temporary])
}

/// Puts `bytes` into `directory` as `name`, unless they are there already; the file's path. The directory is made where it is missing, and
/// refused where others may write to it.
pub fn install(directory: &Path, name: &str, bytes: &[u8], is_executable: bool) -> io::Result<PathBuf> {
    let place = create_directory(directory)?;
    private_directory(directory)?;
    let path = directory.join(name);
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    write(&place, name, bytes, is_executable)?;
    Ok(path)
}

fn write(place: &Directory, name: &str, bytes: &[u8], is_executable: bool) -> io::Result<()> {
    let mut draft = place.draft(name)?;
    draft.file().write_all(bytes)?;
    if is_executable {
        draft.file().set_permissions(Permissions::from_mode(0o700))?;
    }
    draft.place().map(drop)
}

/// Makes a directory for code where it is missing. One that others may write to is refused: they could put other code there.
pub fn private_directory(directory: &Path) -> io::Result<()> {
    create_directory(directory)?;
    let there = fs::symlink_metadata(directory)?;
    if there.is_dir() && there.uid() == geteuid().as_raw() && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the directory belongs to another user, or others may write to it",
    ))
}
