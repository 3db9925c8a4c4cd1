//! Files that the user named: they follow the umask and the user's own links.
//!
//! A regular file is written beside its name and renamed when whole. What is not a regular file (`/dev/null`, `/dev/stdout`, a pipe) is
//! written to as it is: renaming over a device would replace it for everyone.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced when the new one is whole.
    Replace,
    /// It stays, and writing fails with [`io::ErrorKind::AlreadyExists`].
    Keep,
}

/// An open file that the user named; in place once [`finish`](Self::finish) has returned.
#[derive(Debug)]
pub struct Output {
    file: Option<File>,
    /// Temporary and final name; `None` where it is written to directly.
    pending: Option<(PathBuf, PathBuf)>,
    existing: Existing,
}

impl Output {
    /// Begins the file that will be at `path`, whose directory must exist.
    pub fn create(path: &Path, existing: Existing) -> io::Result<Self> {
        let target = behind_links(path)?;
        let there = match fs::metadata(&target) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(&target)?;
                return Ok(Output { file: Some(file), pending: None, existing });
            }
            Ok(_) if existing == Existing::Keep => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (temporary, file) = temporary(&target)?;
        let output = Output { file: Some(file), pending: Some((temporary, target)), existing };
        if let (Some(there), Some(file)) = (there, &output.file) {
            // Who may read it does not change with its content. Another user's file cannot keep all of it.
            let _ = file.set_permissions(fs::Permissions::from_mode(there.permissions().mode() & 0o777));
        }
        Ok(output)
    }

    /// The file again, for an encoder that keeps what it writes to.
    pub fn writer(&self) -> io::Result<File> {
        self.file.as_ref().ok_or(io::ErrorKind::BrokenPipe)?.try_clone()
    }

    /// Puts the file in place.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.flush()?;
        drop(file);
        let Some((temporary, target)) = &self.pending else { return Ok(()) };
        match self.existing {
            Existing::Replace => fs::rename(temporary, target)?,
            Existing::Keep => match renameat_with(CWD, temporary, CWD, target, RenameFlags::NOREPLACE) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    fs::hard_link(temporary, target)?;
                    fs::remove_file(temporary)?;
                }
                result => result?,
            },
        }
        self.pending = None;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.pending {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Writes a small file that the user named.
pub fn write_output(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let mut output = Output::create(path, existing)?;
    output.write_all(bytes)?;
    output.finish()
}

/// Makes `path`, which the user named, a second name of a file of ours, and as readable as the umask lets new files be. False where there
/// can be no second name: on another disk, or where `path` is not a regular file.
pub fn link_output(ours: &Path, path: &Path) -> io::Result<bool> {
    let target = behind_links(path)?;
    if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        return Ok(false);
    }
    let random = RandomState::new().hash_one(std::process::id());
    let temporary = target.with_file_name(format!(".stormlog-{random:016x}.tmp"));
    if fs::hard_link(ours, &temporary).is_err() {
        return Ok(false);
    }
    let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o666 & !umask()))
        .and_then(|()| fs::rename(&temporary, &target));
    // Both may be names of one file already, which a rename leaves as they are.
    let _ = fs::remove_file(&temporary);
    placed.map(|()| true)
}

/// The process's umask, read without changing it for other threads.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

/// Links in a row that are followed, as many as the kernel does.
const MAX_LINKS: usize = 40;

/// The file that a path means: what a link of the user's leads to is replaced, not the link. It need not exist.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&path) {
            // `/dev/stdout` leads to what no name leads to: a pipe, a deleted file.
            Ok(there) if there.is_symlink() && fs::metadata(&path).is_ok_and(|target| !target.is_file()) => {
                break;
            }
            Ok(there) if there.is_symlink() => {
                let to = fs::read_link(&path)?;
                path = path.parent().unwrap_or_else(|| Path::new("")).join(to);
            }
            _ => break,
        }
    }
    if path.file_name().is_none() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(path)
}

fn temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let random = RandomState::new().hash_one(std::process::id());
        let path = target.with_file_name(format!(".stormlog-{random:016x}.tmp"));
        match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode, mknodat};
    use std::os::unix::fs::{FileTypeExt, symlink};

    #[test]
    fn regular_files_are_replaced_whole_and_keep_their_mode() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/report.html");
        let missing = write_output(&path, b"one", Existing::Keep).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        fs::create_dir(path.parent().unwrap()).unwrap();
        write_output(&path, b"one", Existing::Keep).unwrap();
        let kept = write_output(&path, b"two", Existing::Keep).unwrap_err();
        assert_eq!(kept.kind(), io::ErrorKind::AlreadyExists);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_output(&path, b"three", Existing::Replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn links_of_the_user_stay_links() {
        let place = tempfile::tempdir().unwrap();
        let (link, real) = (place.path().join("latest"), place.path().join("real"));
        symlink("real", &link).unwrap();
        write_output(&link, b"new", Existing::Replace).unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn pipes_and_devices_are_written_to() {
        let place = tempfile::tempdir().unwrap();
        let null = place.path().join("null");
        let device = rustix::fs::makedev(1, 3);
        // Only root may make a device; the machine's own serves others.
        let null = match mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device) {
            Ok(()) => null,
            Err(_) => "/dev/null".into(),
        };
        write_output(&null, b"x", Existing::Replace).unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
        let pipe = place.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_output(&pipe, b"through", Existing::Keep).unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }
}
