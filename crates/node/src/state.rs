//! The file of `--state`: deaths and slots, so that a restart forgets neither. Private, replaced whole. A file that is not ours is refused, and never
//! written over.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stormlog_catalog::run::deaths::{DeathCount, Deaths};
use stormlog_postmortem::Cause;

use crate::ledger::Ledger;
use crate::slots::Slots;

const FORMAT: &str = "stormlog.serve_state";
const VERSION: u64 = 1;
/// A file with all runs that are kept is below this.
const MAX_BYTES: u64 = 64 << 20;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written.
    #[error("{}: {source}; name a file in a directory that you can write", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// It is another file.
    #[error("{}: not a state file of this version; name another file, or remove it to count from the runs that are left", .0.display())]
    Foreign(PathBuf),
    /// Another user could have written it.
    #[error("{}: belongs to another user; name a file of your own", .0.display())]
    NotOwn(PathBuf),
}

/// Where the state is kept.
#[derive(Debug, Clone)]
pub struct StateFile {
    path: PathBuf,
}

type Causes = BTreeMap<String, DeathCount>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    format: String,
    schema_version: u64,
    #[serde(default)]
    earlier: Causes,
    #[serde(default)]
    runs: BTreeMap<String, Causes>,
    #[serde(default)]
    slots: Vec<StoredSlot>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredSlot {
    job_id: String,
    rank: i64,
    slot: u64,
    run: String,
}

impl StateFile {
    /// At that path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        StateFile { path }
    }

    /// What it has; nothing where it is not there yet.
    pub(crate) fn read(&self) -> Result<(Ledger, Slots), StateError> {
        let io = |source| StateError::Io { path: self.path.clone(), source };
        let file = match stormlog_files::open_regular(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(io(error)),
        };
        if file.metadata().map_err(io)?.uid() != rustix::process::geteuid().as_raw() {
            return Err(StateError::NotOwn(self.path.clone()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(io)?;
        let stored: Stored =
            serde_json::from_slice(&bytes).map_err(|_| StateError::Foreign(self.path.clone()))?;
        if stored.format != FORMAT || stored.schema_version != VERSION {
            return Err(StateError::Foreign(self.path.clone()));
        }
        let mut slots = Slots::default();
        for StoredSlot { job_id, rank, slot, run } in stored.slots {
            slots.restore(job_id, rank, slot, run.into());
        }
        let runs = stored.runs.into_iter().map(|(run, causes)| (PathBuf::from(run), deaths(causes)));
        Ok((Ledger { base: deaths(stored.earlier), runs: runs.collect() }, slots))
    }

    /// Replaces it.
    pub(crate) fn write(&self, ledger: &Ledger, slots: &Slots) -> Result<(), StateError> {
        let name = |path: &Path| path.to_string_lossy().into_owned();
        let stored = Stored {
            format: FORMAT.to_owned(),
            schema_version: VERSION,
            earlier: causes(&ledger.base),
            runs: ledger.runs.iter().map(|(run, deaths)| (name(run), causes(deaths))).collect(),
            slots: slots
                .iter()
                .map(|(job, rank, slot, run)| StoredSlot {
                    job_id: job.to_owned(),
                    rank,
                    slot,
                    run: name(run),
                })
                .collect(),
        };
        let bytes = serde_json::to_vec(&stored).map_err(std::io::Error::from);
        bytes
            .and_then(|bytes| stormlog_files::replace(&self.path, &bytes))
            .map_err(|source| StateError::Io { path: self.path.clone(), source })
    }
}

fn deaths(causes: Causes) -> Deaths {
    causes.into_iter().filter_map(|(word, count)| Some((Cause::of_word(&word)?, count))).collect()
}

fn causes(deaths: &Deaths) -> Causes {
    deaths.iter().map(|(cause, count)| (cause.as_str().to_owned(), count.clone())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn state_reads_back_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("state.json"));
        assert_eq!(file.read().unwrap(), (Ledger::default(), Slots::default()));
        let mut ledger = Ledger::default();
        let count = DeathCount { count: 2, last_at_ns: 7, bundle: Some("oom_dump_a".to_owned()) };
        ledger.raise(Path::new("/runs/a"), &Deaths::from([(Cause::CgroupOomKill, count)]));
        let mut slots = Slots::default();
        slots.of("job", 3, Path::new("/runs/b"));
        file.write(&ledger, &slots).unwrap();
        assert_eq!(file.read().unwrap(), (ledger, slots));
        let mode = std::fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn file_of_another_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.json");
        for text in ["", "{}", "[1]", r#"{"format": "stormlog.serve_state", "schema_version": 9}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(StateFile::new(path.clone()).read(), Err(StateError::Foreign(_))), "{text}");
        }
        let link = directory.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&link).status().unwrap().success());
        assert!(matches!(StateFile::new(link).read(), Err(StateError::Io { .. })));
    }
}
