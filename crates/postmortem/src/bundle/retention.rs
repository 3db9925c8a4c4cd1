//! Which bundles may stay: by count, then by total size, oldest first, never the one just written.
//!
//! Only directories named `oom_dump_…` are ever touched, never through a link. Other processes write and remove here at the
//! same time, so what is gone already is fine. A bundle is renamed before it is removed: none is ever seen half deleted.

use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::BundleError;
use super::draft::hidden_name;
use super::name::PREFIX;

/// Bundles are flat; what is deeper is counted no further.
const MAX_DEPTH: usize = 8;
/// Entries counted in one bundle before it is called large enough.
const MAX_ENTRIES: usize = 100_000;

/// How much may stay. 0 means no limit, as in 0.4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Bundles.
    pub max_bundles: u64,
    /// Bytes in all of them.
    pub max_total_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { max_bundles: 5, max_total_bytes: 256 << 20 }
    }
}

/// What retention did.
#[derive(Debug, Default)]
pub struct Removal {
    /// Bundles removed.
    pub removed: Vec<PathBuf>,
    /// Bundles that should have been but could not.
    pub failed: Vec<BundleError>,
}

struct BundleEntry {
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

impl Retention {
    /// Removes what is too much below `root`. `keep` stays, whatever the limits say.
    pub fn enforce(&self, root: &Path, keep: &Path) -> Removal {
        let mut removal = Removal::default();
        let mut others = bundles(root, keep, &mut removal);
        others.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
        let kept = u64::from(fs::symlink_metadata(keep).is_ok());
        let mut count = others.len() as u64 + kept;
        let mut total = others.iter().fold(0u64, |sum, bundle| sum.saturating_add(bundle.bytes));
        if self.max_total_bytes > 0 {
            total = total.saturating_add(size_of_tree(keep));
        }
        for bundle in others {
            let is_many = self.max_bundles > 0 && count > self.max_bundles;
            let is_much = self.max_total_bytes > 0 && total > self.max_total_bytes;
            if !is_many && !is_much {
                break;
            }
            match remove(root, &bundle.path) {
                Ok(true) => removal.removed.push(bundle.path),
                Ok(false) => {}
                Err(error) => {
                    removal.failed.push(error);
                    continue;
                }
            }
            count -= 1;
            total = total.saturating_sub(bundle.bytes);
        }
        removal
    }
}

fn bundles(root: &Path, keep: &Path, removal: &mut Removal) -> Vec<BundleEntry> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) => {
            removal.failed.push(BundleError::io(root, error));
            return Vec::new();
        }
    };
    let found = entries.filter_map(Result::ok).filter(|entry| is_named(entry, PREFIX) && is_directory(entry));
    found
        .filter(|entry| Some(entry.file_name().as_os_str()) != keep.file_name())
        .filter_map(|entry| {
            // Gone in between: another process removed it.
            let modified = entry.metadata().ok()?.modified().ok()?;
            let path = entry.path();
            Some(BundleEntry { bytes: size_of_tree(&path), path, modified })
        })
        .collect()
}

fn is_named(entry: &DirEntry, prefix: &str) -> bool {
    entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix))
}

/// A directory itself, not a link to one.
fn is_directory(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Bytes of the files below a directory; links count nothing.
fn size_of_tree(path: &Path) -> u64 {
    let mut pending = vec![(path.to_owned(), 0)];
    let (mut bytes, mut entries) = (0u64, 0);
    while let Some((directory, depth)) = pending.pop() {
        let Ok(listing) = fs::read_dir(&directory) else { continue };
        for entry in listing.filter_map(Result::ok) {
            entries += 1;
            if entries > MAX_ENTRIES {
                return bytes;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else if metadata.is_file() {
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    bytes
}

/// True when we removed it, false when another process did.
fn remove(root: &Path, path: &Path) -> Result<bool, BundleError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("bundle");
    let hidden = root.join(hidden_name(name.trim_start_matches(PREFIX)));
    match fs::rename(path, &hidden) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(BundleError::io(path, error)),
    }
    match fs::remove_dir_all(&hidden) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(BundleError::io(&hidden, error)),
    }
}

/// Removes what writers that died left under a temporary name, when nothing was written to it for `older_than`.
pub fn sweep_unfinished(root: &Path, now: SystemTime, older_than: Duration) -> Removal {
    let mut removal = Removal::default();
    let Ok(entries) = fs::read_dir(root) else { return removal };
    let hidden = format!(".{PREFIX}");
    for entry in entries.filter_map(Result::ok) {
        let is_temporary = entry.file_name().to_str().is_some_and(|name| name.ends_with(".tmp"));
        if !is_temporary || !is_named(&entry, &hidden) || !is_directory(&entry) {
            continue;
        }
        // A clock set back makes an age unknown, and what is unknown is left alone.
        let age = newest(&entry.path()).and_then(|modified| now.duration_since(modified).ok());
        if age.is_none_or(|age| age < older_than) {
            continue;
        }
        match fs::remove_dir_all(entry.path()) {
            Ok(()) => removal.removed.push(entry.path()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => removal.failed.push(BundleError::io(&entry.path(), error)),
        }
    }
    removal
}

/// When a directory or a file in it was last written to.
fn newest(path: &Path) -> Option<SystemTime> {
    let mut newest = fs::symlink_metadata(path).ok()?.modified().ok()?;
    for entry in fs::read_dir(path).ok()?.filter_map(Result::ok).take(MAX_ENTRIES) {
        newest = newest.max(entry.metadata().ok()?.modified().ok()?);
    }
    Some(newest)
}
