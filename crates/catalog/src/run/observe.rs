//! A run as a reader finds it that looks again and again: its record, whether it lives, and where its sessions are. Reads `run.json` only where it
//! changed, and no recording. Must never follow a link, and never call dead what may live.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stormlog_liveness::{Life, ProcessId};
use stormlog_store::StoreError;

use super::directory::RunDirectory;
use super::finish::finish_run;
use super::layout::{RUN_FILE, SessionName};
use super::life::RunLife;
use super::process::RunStatus;
use super::record::RunRecord;

/// Entries of one run that are looked at; more of them are not ours.
const MAX_ENTRIES: usize = 100_000;
/// A record with every process that is listed is a third of this.
const MAX_RECORD: u64 = 4 << 20;

/// Which file there is, and in which version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// Of a regular file; a link or a pipe in its place is an error.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(FileVersion {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedState {
    /// Its supervisor lives, or that cannot be found out from here.
    Living,
    /// It has ended as this says.
    Ended(RunStatus),
}

/// A run at one look.
#[derive(Debug)]
pub struct ObservedRun {
    /// What it recorded about itself; where its supervisor was killed, as a reader finished it.
    pub record: RunRecord,
    /// How far it is.
    pub state: ObservedState,
    /// Whether the supervisor is known to live.
    pub is_supervised: bool,
    /// The program's process, where its number means the same here as in the record.
    pub local_pid: Option<u32>,
    supervisor: Option<RunLife>,
}

impl ObservedRun {
    fn ended(record: RunRecord, status: RunStatus) -> Self {
        let state = ObservedState::Ended(status);
        ObservedRun { record, state, is_supervised: false, local_pid: None, supervisor: None }
    }

    /// Looks whether the supervisor still lives, where the record has not changed since; false where it may not.
    pub fn is_supervised_still(&mut self) -> bool {
        let life = self.supervisor.as_ref().map(RunLife::look);
        self.is_supervised = life == Some(Life::Alive);
        self.is_supervised
    }
}

impl RunDirectory {
    /// The version of its record.
    pub fn version(&self) -> io::Result<FileVersion> {
        FileVersion::of(&self.path().join(RUN_FILE))
    }

    /// The run as it is now. `None` where its file is a link, too large, another program's, or cannot be read.
    pub fn observe(&self) -> Result<Option<ObservedRun>, StoreError> {
        if !self.version().is_ok_and(|version| version.bytes <= MAX_RECORD) {
            return Ok(None);
        }
        let Some(mut record) = RunRecord::read(self.path())? else { return Ok(None) };
        let status = RunStatus::of_word(record.status.as_deref());
        if status != RunStatus::Running {
            return Ok(Some(ObservedRun::ended(record, status)));
        }
        let object = self.read();
        let supervisor = RunLife::of(self, &object);
        let life = supervisor.life;
        if life == Life::Dead
            && let Some(finished) = finish_run(self)
        {
            let read = serde_json::from_value(serde_json::Value::Object(finished.record));
            record = read.unwrap_or(record);
            return Ok(Some(ObservedRun::ended(record, RunStatus::Interrupted)));
        }
        let is_supervised = life == Life::Alive;
        let own = ProcessId::own();
        let is_here = object.get("supervisor").is_some_and(|supervisor| {
            let boot = supervisor.get("boot_id").and_then(|id| id.as_str());
            let namespace = supervisor.get("pid_namespace").and_then(|number| number.as_u64());
            boot.is_some()
                && boot == own.boot_id.as_deref()
                && namespace.is_some()
                && namespace == own.pid_namespace
        });
        let local_pid = record.pid.filter(|_| is_supervised && is_here);
        Ok(Some(ObservedRun {
            record,
            state: ObservedState::Living,
            is_supervised,
            local_pid,
            supervisor: Some(supervisor),
        }))
    }
}

/// A session's directory in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDirectory {
    /// Which process it is of, and where that was recorded from.
    pub name: SessionName,
    /// Where it is.
    pub path: PathBuf,
}

/// The directories of sessions in a run, in no order. Links are left out.
#[must_use]
pub fn session_directories(run: &Path) -> Vec<SessionDirectory> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries
        .filter_map(|entry| {
            let name = SessionName::parse(entry.file_name().to_str()?)?;
            entry
                .file_type()
                .is_ok_and(|kind| kind.is_dir())
                .then(|| SessionDirectory { name, path: entry.path() })
        })
        .collect()
}
