//! Directories of evidence, held by a handle: renaming one, or putting a link in its place, redirects nothing that is created below it.
//!
//! A file is as open as its directory: private (0600), unless the directory was opened to its group (`--share`, mode 2750), where it is
//! 0640. Root that writes into another user's directory leaves files of that user.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat,
    openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::draft::Draft;

const PRIVATE: u32 = 0o700;
/// The set-group-ID bit hands the group on, and tells such a directory from one that merely has a liberal mode.
const SHARED: u32 = 0o2750;
/// Of what is below a directory that the user named: the umask takes bits off it.
const OF_USER: u32 = 0o777;
/// The bits that tell.
const SHARING: u32 = 0o2077;

/// An open directory that evidence is written below.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    path: PathBuf,
    /// Mode of directories made below it; files have it without the execute bits.
    mode: u32,
    /// The owner that new files get: the directory's, where root writes into the directory of another user.
    owner: Option<(Uid, Gid)>,
}

impl Directory {
    /// Opens a directory that exists. Its last component must not be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::from_handle(openat(CWD, or_here(path), DIRECTORY, Mode::empty())?, path.to_owned())
    }

    /// Makes a directory that does not exist yet, with mode 0700, or 2750 when it is shared with its group. Parents must exist.
    pub fn create(path: &Path, is_shared: bool) -> io::Result<Self> {
        let mode = if is_shared { SHARED } else { PRIVATE };
        mkdirat(CWD, path, Mode::from_raw_mode(mode))?;
        let directory = Self::open(path)?;
        // `mkdir` takes the umask's bits off.
        fchmod(&directory.handle, Mode::from_raw_mode(mode))?;
        Ok(Directory { mode, ..directory })
    }

    /// Makes a directory that does not exist yet, as open as the one above it.
    pub fn create_below(path: &Path) -> io::Result<Self> {
        let (above, name) = parent(path)?;
        let mode = Mode::from_raw_mode(above.mode);
        mkdirat(&above.handle, name, mode)?;
        let handle = openat(&above.handle, name, DIRECTORY, Mode::empty())?;
        fchmod(&handle, mode)?;
        above.hand_over(&handle)?;
        Self::from_handle(handle, path.to_owned())
    }

    fn from_handle(handle: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let there = fstat(&handle)?;
        let is_for_another = geteuid().is_root() && there.st_uid != 0;
        let owner = is_for_another.then(|| (Uid::from_raw(there.st_uid), Gid::from_raw(there.st_gid)));
        let mode = if there.st_mode & SHARING == SHARED & SHARING { SHARED } else { PRIVATE };
        Ok(Directory { handle, path, mode, owner })
    }

    /// The same directory as an output that the user named: what is made below it follows the umask and the directory's set-group-ID bit.
    #[must_use]
    pub fn of_user(self) -> Self {
        Directory { mode: OF_USER, ..self }
    }

    /// A directory in this one.
    fn below(&self, handle: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let directory = Self::from_handle(handle, self.path.join(name))?;
        Ok(if self.mode == OF_USER { directory.of_user() } else { directory })
    }

    /// Gives a new file or directory its mode: neither what the umask took off nor what a default ACL added counts, but for an output of the user.
    fn set_mode(&self, file: impl AsFd, mode: Mode) -> io::Result<()> {
        if self.mode == OF_USER { Ok(()) } else { Ok(fchmod(file, mode)?) }
    }

    /// Where it was when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still what its path leads to: it may have been removed, renamed or unmounted.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let there = statat(CWD, or_here(&self.path), AtFlags::SYMLINK_NOFOLLOW);
        let is_same = |(there, own): (rustix::fs::Stat, rustix::fs::Stat)| {
            (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)
        };
        there.ok().zip(fstat(&self.handle).ok()).is_some_and(is_same)
    }

    /// The user it belongs to.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.handle)?.st_uid)
    }

    /// A directory in it, which is made when it is missing. A link in its place is an error.
    pub fn directory(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = plain(name.as_ref())?;
        let is_new = match mkdirat(&self.handle, name, Mode::from_raw_mode(self.mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let handle = openat(&self.handle, name, DIRECTORY, Mode::empty())?;
        if is_new {
            self.set_mode(&handle, Mode::from_raw_mode(self.mode))?;
            self.hand_over(&handle)?;
        }
        self.below(handle, name)
    }

    /// Begins a file that will replace `name` when it is whole.
    pub fn draft(&self, name: impl AsRef<OsStr>) -> io::Result<Draft> {
        Draft::begin(self, plain(name.as_ref())?)
    }

    /// Replaces `name` by a file of these bytes, whole or not at all.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let mut draft = self.draft(name)?;
        io::Write::write_all(draft.file(), bytes)?;
        draft.place().map(drop)
    }

    /// Makes a new file to append to or to map; an error where anything has that name, a link included.
    pub fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode & 0o666);
        let file = openat(&self.handle, plain(name.as_ref())?, flags, mode)?;
        self.set_mode(&file, mode)?;
        self.hand_over(&file)?;
        Ok(file.into())
    }

    /// Opens a regular file that exists to write into it. A link, a pipe or a device in its place is an error.
    pub fn open_in_place(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.handle, plain(name.as_ref())?, flags, Mode::empty())?;
        only_regular(&fstat(&file)?)?;
        Ok(file.into())
    }

    /// A directory in it that exists. A link in its place is an error.
    pub fn existing(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = plain(name.as_ref())?;
        let handle = openat(&self.handle, name, DIRECTORY, Mode::empty())?;
        self.below(handle, name)
    }

    /// Opens a regular file in it to read. A link, a pipe or a device in its place is an error.
    pub fn open_to_read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.handle, plain(name.as_ref())?, flags, Mode::empty())?;
        only_regular(&fstat(&file)?)?;
        Ok(file.into())
    }

    /// Gives a file in it another name in `to`, in place of whatever has that.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: &Directory, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.handle, plain(from.as_ref())?, &to.handle, plain(name.as_ref())?)?)
    }

    /// Lets a file or a directory in it and one in `to` change places, in one step.
    pub fn exchange(
        &self,
        from: impl AsRef<OsStr>,
        to: &Directory,
        name: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (from, name) = (plain(from.as_ref())?, plain(name.as_ref())?);
        Ok(renameat_with(&self.handle, from, &to.handle, name, RenameFlags::EXCHANGE)?)
    }

    /// Removes a directory in it that is empty; one that is not stays.
    pub fn remove_empty(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.handle, plain(name.as_ref())?, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file in it; no error where there is none.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.handle, plain(name.as_ref())?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether `name` is there, as whatever it is.
    #[must_use]
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        plain(name.as_ref()).is_ok_and(|name| statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        self.handle.try_clone()
    }

    fn hand_over(&self, file: impl AsFd) -> io::Result<()> {
        match self.owner {
            Some((user, group)) => Ok(fchown(file, Some(user), Some(group))?),
            None => Ok(()),
        }
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Replaces the file at `path` by these bytes, whole or not at all; private.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    directory.replace(name, bytes)
}

/// Makes a new private file at `path` to append to or to map; an error where anything has that name.
pub fn create_new(path: &Path) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    directory.create_new(name)
}

/// Opens the regular file at `path` to write into it. A link, a pipe or a device in its place is an error.
pub fn open_in_place(path: &Path) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    directory.open_in_place(name)
}

/// Makes a directory as open as the one above it, and the parents that are missing; one that exists is opened as it is.
pub fn create_directory(path: &Path) -> io::Result<Directory> {
    match Directory::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(above) if !above.as_os_str().is_empty() && !above.exists() => {
                create_directory(above)?.directory(path.file_name().unwrap_or_default())
            }
            _ => {
                let (directory, name) = parent(path)?;
                directory.directory(name)
            }
        },
        result => result,
    }
}

/// The directory of a path, whose own links the caller chose, and the name in it.
pub(crate) fn parent(path: &Path) -> io::Result<(Directory, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = or_here(path.parent().unwrap_or_else(|| Path::new("")));
    // A directory need not be readable to be written to.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = openat(CWD, above, flags, Mode::empty())?;
    Ok((Directory::from_handle(handle, above.to_owned())?, name))
}

fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A name in a directory, not a way out of it.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{:?} is not a name in a directory", name),
        )),
    }
}

pub(crate) fn only_regular(stat: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
        kind => {
            let kind = match kind {
                FileType::Fifo => "a named pipe",
                FileType::Socket => "a socket",
                FileType::CharacterDevice | FileType::BlockDevice => "a device",
                _ => "something else",
            };
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("this is {kind}, not a regular file")))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn evidence_is_private_whatever_the_umask() {
        let place = tempfile::tempdir().unwrap();
        let before = rustix::process::umask(Mode::empty());
        let directory = Directory::create(&place.path().join("run"), false).unwrap();
        directory.create_new("log").unwrap();
        directory.replace("run.json", b"{}").unwrap();
        directory.directory("rank0").unwrap().create_new("ring").unwrap();
        rustix::process::umask(before);
        let run = directory.path();
        assert_eq!((mode(run), mode(&run.join("rank0"))), (0o700, 0o700));
        for name in ["log", "run.json", "rank0/ring"] {
            assert_eq!(mode(&run.join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn shared_directories_share_what_is_below_them() {
        let place = tempfile::tempdir().unwrap();
        let run = Directory::create(&place.path().join("run"), true).unwrap();
        run.directory("rank0").unwrap().replace("x", b"").unwrap();
        assert_eq!((mode(&run.path().join("rank0")), mode(&run.path().join("rank0/x"))), (0o750, 0o640));
        let liberal = place.path().join("liberal");
        fs::create_dir(&liberal).unwrap();
        fs::set_permissions(&liberal, fs::Permissions::from_mode(0o750)).unwrap();
        create_directory(&liberal.join("new/rank0")).unwrap();
        assert_eq!(mode(&liberal.join("new")), 0o700);
    }

    #[test]
    fn planted_links_are_never_followed() {
        let place = tempfile::tempdir().unwrap();
        let precious = place.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let run = Directory::create(&place.path().join("run"), false).unwrap();
        symlink(&precious, run.path().join("run.json")).unwrap();
        symlink(place.path(), run.path().join("rank0")).unwrap();
        assert!(run.create_new("run.json").is_err());
        assert!(run.open_in_place("run.json").is_err());
        assert!(run.directory("rank0").is_err());
        assert!(run.existing("rank0").is_err() && run.open_to_read("run.json").is_err());
        run.replace("run.json", b"ours").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert_eq!(fs::read(run.path().join("run.json")).unwrap(), b"ours");
        assert!(Directory::open(&run.path().join("rank0")).is_err());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn names_do_not_lead_out_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let run = Directory::create(&place.path().join("run"), false).unwrap();
        for name in ["../x", "a/b", "..", ".", "", "/x", "x/"] {
            assert!(run.create_new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn pipes_are_not_written_in_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(open_in_place(&path).unwrap_err().to_string().contains("named pipe"));
    }
}
