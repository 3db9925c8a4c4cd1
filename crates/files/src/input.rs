//! Opening a file to read it: only regular files, so that a pipe, socket or device in its place can neither hold us up nor be changed by it.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use crate::directory::only_regular;

/// Opens a regular file for reading. Links are followed: the user, or a directory's owner, may keep data elsewhere.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Without NONBLOCK the opening of a pipe waits for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    only_regular(&fstat(&file)?)?;
    Ok(file.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};

    #[test]
    fn only_regular_files_are_opened() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for path in [pipe.as_path(), place.path(), Path::new("/dev/zero"), Path::new("/nonexistent")] {
            assert!(open_regular(path).is_err(), "{}", path.display());
        }
        std::fs::write(place.path().join("x"), "x").unwrap();
        assert!(open_regular(&place.path().join("x")).is_ok());
    }
}
