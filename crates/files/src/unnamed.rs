//! A file without a name: it is gone when the last descriptor of it is closed, in whichever process.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::directory::Directory;
use crate::draft::Draft;

/// Makes a private file in a directory that is read and appended to.
pub fn unnamed(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
    match open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // NFS has no such files, and old kernels do not know the flag.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let mut draft = Draft::begin(&Directory::open(directory)?, "unnamed".as_ref())?;
            let file = draft.file().try_clone()?;
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
            // A draft that is not placed removes its name.
            drop(draft);
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn unnamed_file_has_no_entry_and_appends_after_it_was_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = unnamed(directory.path()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        file.write_all(b"first").unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"second").unwrap();
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"second");
    }
}
