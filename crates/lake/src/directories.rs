//! The directories of a lake as handles, opened step by step from the lake: nothing is written or removed through a link below it.

use std::io;
use std::path::{Path, PathBuf};

use stormlog_files::Directory;

use crate::layout::{OWN_DIRECTORY, PartFile, Partition};
use crate::schema::Table;

/// A lake as the user names it: the path itself may be a link (`/lake` to a mount), which nothing below it may be.
pub(crate) fn named_by_user(path: &Path) -> PathBuf {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
    // One that leads nowhere is reported when it is opened.
    if is_link { std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) } else { path.to_owned() }
}

/// The directory of a lake, whose path must not end in a link. A lake is an output: others than its owner may be meant to read and write it.
pub(crate) fn lake(path: &Path) -> io::Result<Directory> {
    Directory::open(path).map(Directory::of_user)
}

/// Our own directory in a lake, which is made where it is missing.
pub(crate) fn own(path: &Path) -> io::Result<Directory> {
    lake(path)?.directory(OWN_DIRECTORY)
}

/// The directory of a partition below `root`, which has the tables; it is made where it is missing.
pub(crate) fn make_partition(root: &Directory, table: Table, partition: &Partition) -> io::Result<Directory> {
    let [date, job] = partition.names();
    root.directory(table.name())?.directory(date)?.directory(job)
}

/// The same, which must exist.
pub(crate) fn partition(root: &Directory, table: Table, partition: &Partition) -> io::Result<Directory> {
    let [date, job] = partition.names();
    root.existing(table.name())?.existing(date)?.existing(job)
}

/// Removes a file of a table, and its directories with their last file. No error where it is gone.
pub(crate) fn remove_part(root: &Directory, table: Table, file: &PartFile) -> io::Result<()> {
    let [date_name, job_name] = file.partition.names();
    let removed = root.existing(table.name()).and_then(|table| {
        let date = table.existing(&date_name)?;
        date.existing(&job_name)?.remove(file.name())?;
        Ok((table, date))
    });
    match removed {
        Ok((table, date)) => {
            // One that is not empty stays; one that cannot be removed is empty.
            let _ = date.remove_empty(&job_name).and_then(|()| table.remove_empty(&date_name));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
