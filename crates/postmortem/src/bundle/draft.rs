//! A bundle that is complete but for its manifest: further files may join it, then it gets its final name in one step.
//!
//! Dropped without being published it is removed. Must never replace anything that has the name already.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::Value;
use stormlog_model::Record;

use super::name::PREFIX;
use super::write::{BundleWriter, Written};
use super::{BundleError, EVIDENCE_FILE, FILES};

/// Names tried. More taken ones in a row are not other recorders.
const MAX_NAMES: u32 = 1000;

/// What a bundle's name is made of.
#[derive(Debug)]
pub(super) struct Naming {
    pub(super) created_at_ns: u64,
    pub(super) pid: u64,
    pub(super) backend: String,
}

/// A directory under a name no reader takes for a bundle; removed unless it is given its final one.
#[derive(Debug)]
pub(super) struct Unpublished(Option<PathBuf>);

impl Unpublished {
    pub(super) fn create(root: &Path, pid: u64) -> Result<Self, BundleError> {
        for _ in 0..MAX_NAMES {
            let path = root.join(hidden_name(&pid.to_string()));
            match stormlog_files::Directory::create_below(&path) {
                Ok(_) => return Ok(Unpublished(Some(path))),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BundleError::io(&path, error)),
            }
        }
        Err(BundleError::NoFreeName { root: root.to_owned(), tried: MAX_NAMES })
    }

    pub(super) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // What cannot be removed now is swept later.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// `.oom_dump_<what>.<pid>.<n>.tmp`: hidden, of this process, never the same twice.
pub(super) fn hidden_name(what: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".{PREFIX}{what}.{}.{count}.tmp", std::process::id())
}

/// A bundle under its temporary name.
#[derive(Debug)]
pub struct Draft<'a> {
    writer: &'a mut BundleWriter,
    root: PathBuf,
    directory: Unpublished,
    naming: Naming,
    manifest: Record,
    files: Vec<String>,
    event_count: u64,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        writer: &'a mut BundleWriter,
        root: &Path,
        directory: Unpublished,
        naming: Naming,
        manifest: Record,
        event_count: u64,
    ) -> Self {
        let files = FILES.into_iter().chain([EVIDENCE_FILE]).map(str::to_owned).collect();
        Draft { writer, root: root.to_owned(), directory, naming, manifest, files, event_count }
    }

    /// Where further files may be put.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Lists a file that was put there.
    pub fn list(&mut self, name: &str) -> Result<(), BundleError> {
        let is_plain = matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
        let exists = fs::symlink_metadata(self.directory().join(name)).is_ok_and(|found| found.is_file());
        if !is_plain || !exists {
            return Err(BundleError::NotInBundle { name: name.to_owned() });
        }
        if !self.files.iter().any(|listed| listed == name) {
            self.files.push(name.to_owned());
        }
        Ok(())
    }

    /// Adds a key to the manifest, after those of 0.4.3.
    pub fn note(&mut self, key: &str, value: Value) {
        self.manifest.insert(key.to_owned(), value);
    }

    /// Writes the manifest, gives the bundle its name, and removes what retention no longer allows.
    pub fn publish(mut self) -> Result<Written, BundleError> {
        let manifest_path = self.directory().join("manifest.json");
        for _ in 0..MAX_NAMES {
            let name = self.writer.next_name(&self.naming);
            let path = self.root.join(&name);
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            let mut manifest = self.manifest.clone();
            manifest.insert("bundle_name".to_owned(), name.into());
            // The files come last but for what was noted, as in 0.4.3.
            let noted: Vec<String> = manifest.keys().skip(FIXED_KEYS).cloned().collect();
            manifest.insert("files".to_owned(), self.files.clone().into());
            for key in noted {
                if let Some(value) = manifest.shift_remove(&key) {
                    manifest.insert(key, value);
                }
            }
            // Of an earlier try whose name was taken in between.
            let _ = fs::remove_file(&manifest_path);
            self.writer.put(&manifest_path, &manifest)?;
            match rename_new(self.directory.path(), &path) {
                Ok(()) => {
                    self.directory.0 = None;
                    let removal = self.writer.retention().enforce(&self.root, &path);
                    return Ok(Written { path, event_count: self.event_count, removal });
                }
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(BundleError::io(&path, error)),
            }
        }
        Err(BundleError::NoFreeName { root: self.root.clone(), tried: MAX_NAMES })
    }
}

/// The keys of a manifest before `files`.
const FIXED_KEYS: usize = 9;

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory)
}

/// Renames, but never over something.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot promise it; there a plain rename still refuses a bundle with anything in it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(from, to),
        done => Ok(done?),
    }
}
