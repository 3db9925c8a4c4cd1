//! What is recorded of the frameworks' allocators: snapshots, captures and telemetry below some directories, and what telemetry has of each device.
//!
//! The list is made from names and times of files; nothing is read before it is requested. Bounded in number.

mod jax;
mod telemetry;

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustc_hash::FxHashSet;
use stormlog_model::layout::{CAPTURE_FILE, is_capture};
use stormlog_store::Source;

pub use jax::{JAX_PROFILE, JaxDevice, JaxProgram, JaxRecord, jax_records};
pub use telemetry::{FrameworkDevice, FrameworkTelemetry, PhaseRow, framework_telemetry};

use crate::cuda_oom::SNAPSHOT;

/// The most sources that are listed, the newest.
const MOST: usize = 2000;
/// The ends of names under which PyTorch's snapshots are kept.
const SNAPSHOT_ENDS: [&str; 6] = [".pickle", ".pickle.gz", ".pickle.zst", ".pkl", ".pkl.gz", ".pkl.zst"];

/// A framework that has a command of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// `tfmemprof`
    Tensorflow,
    /// `jaxmemprof`
    Jax,
}

impl Framework {
    /// As it writes itself.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Framework::Tensorflow => "TensorFlow",
            Framework::Jax => "JAX",
        }
    }
}

/// A source of a framework's memory figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameworkSource {
    /// The file or directory.
    pub path: PathBuf,
    /// What it is.
    pub kind: FrameworkSourceKind,
    /// When it was written last, nanoseconds since the epoch; 0 where unknown.
    pub modified_ns: u64,
    /// Size of the file; `None` for a directory.
    pub bytes: Option<u64>,
}

/// What kind of source it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameworkSourceKind {
    /// A snapshot of PyTorch's allocator.
    Snapshot,
    /// A heap capture, which may have device memory.
    Capture,
    /// Telemetry of a session.
    Telemetry(Source),
}

impl FrameworkSourceKind {
    /// The word in lists.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            FrameworkSourceKind::Snapshot => "snapshot",
            FrameworkSourceKind::Capture => "capture",
            FrameworkSourceKind::Telemetry(_) => "telemetry",
        }
    }
}

/// The sources at these paths, the newest first; what cannot be read is left out.
#[must_use]
pub fn framework_sources(paths: &[PathBuf]) -> Vec<FrameworkSource> {
    let mut found = Vec::new();
    for path in paths {
        if let Some(kind) = FrameworkSourceKind::of_name(path).filter(|_| path.is_file()) {
            found.push(FrameworkSource::of(path.clone(), kind));
            continue;
        }
        let Ok(sources) = Source::survey(path, &[SNAPSHOT, CAPTURE_FILE]) else { continue };
        let files = sources.companions.into_iter().chain(files_in(path));
        found.extend(files.filter_map(|path| {
            let kind = FrameworkSourceKind::of_name(&path)?;
            Some(FrameworkSource::of(path, kind))
        }));
        found.extend(sources.found.into_iter().map(|source| {
            FrameworkSource::of(source.path().to_owned(), FrameworkSourceKind::Telemetry(source))
        }));
    }
    let mut seen = FxHashSet::default();
    found.retain(|source| seen.insert(source.path.clone()));
    found.sort_by(|a, b| {
        Reverse(a.modified_ns).cmp(&Reverse(b.modified_ns)).then_with(|| a.path.cmp(&b.path))
    });
    found.truncate(MOST);
    found
}

impl FrameworkSource {
    fn of(path: PathBuf, kind: FrameworkSourceKind) -> Self {
        let metadata = fs::metadata(&path).ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0);
        let bytes = metadata.filter(fs::Metadata::is_file).map(|metadata| metadata.len());
        FrameworkSource { path, kind, modified_ns, bytes }
    }
}

impl FrameworkSourceKind {
    /// What a file is by its name alone: a snapshot or a capture.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        if SNAPSHOT_ENDS.iter().any(|end| name.ends_with(end)) {
            return Some(FrameworkSourceKind::Snapshot);
        }
        is_capture(&name).then_some(FrameworkSourceKind::Capture)
    }
}

/// The files of a directory itself: a program may put snapshots and captures there under names of its own. Links are not followed.
fn files_in(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn snapshots_and_telemetry_are_listed_newest_first() {
        let root = tempfile::tempdir().unwrap();
        let bundle = root.path().join("run/rank0-pid7-cuda0/oom_dump_1");
        fs::create_dir_all(&bundle).unwrap();
        let names = ["dump.pickle.gz", "notes.txt", "track.jsonl"].map(|name| root.path().join(name));
        let capture = root.path().join("run/rank0-pid7-cuda0").join(CAPTURE_FILE);
        let files = [bundle.join(SNAPSHOT), names[0].clone(), names[1].clone(), names[2].clone(), capture];
        for (age, path) in files.iter().enumerate() {
            fs::write(path, "x").unwrap();
            let at = SystemTime::now() - Duration::from_secs(100 * age as u64);
            fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        }
        let found = framework_sources(&[root.path().to_owned(), files[0].clone(), root.path().join("none")]);
        let listed: Vec<(&Path, &str)> =
            found.iter().map(|source| (source.path.as_path(), source.kind.word())).collect();
        let expected = [
            (&files[0], "snapshot"),
            (&files[1], "snapshot"),
            (&files[3], "telemetry"),
            (&files[4], "capture"),
        ];
        assert_eq!(listed, expected.map(|(path, word)| (path.as_path(), word)));
        assert_eq!(found[0].bytes, Some(1));
    }
}
