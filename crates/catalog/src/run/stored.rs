//! Runs as what they take on disk: for the list of runs, and for the rule that removes old ones. Links are never followed, and what is
//! looked at is bounded; another user's directory is listed and not judged. Must never write or remove.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use stormlog_capture::live::Live;
use stormlog_liveness::{Life, LockState, lock};
use stormlog_model::Launch;
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::BundleName;

use super::directory::RunDirectory;
use super::finish::finish_run;
use super::layout::{LOCKS_DIRECTORY, RUN_FILE, SHIPPING_LOCK};
use super::life::RunLife;
use super::live_files::{live_files, unfinished_captures};
use super::process::RunStatus;
use super::record::RunRecord;

/// Of `st_blocks`.
const BLOCK: u64 = 512;
/// Levels below a run's directory: `rank0-pid7/oom_dump_…/files`.
const MAX_DEPTH: usize = 6;
/// Entries of one run that are counted; more of them are not ours.
const MAX_ENTRIES: usize = 1_000_000;

/// A run as it is stored.
#[derive(Debug, Clone)]
pub struct StoredRun {
    /// Its directory.
    pub path: PathBuf,
    /// How far it is, and how its program ended.
    pub state: RunStatus,
    /// Nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at_ns: Option<i64>,
    /// The disk it takes.
    pub bytes: u64,
    /// What ended the program, as a sentence.
    pub verdict: Option<String>,
    /// The same as a word, where it is known.
    pub cause: Option<Cause>,
    /// Job, step, rank and attempt, where a launcher started it.
    pub launch: Option<Launch>,
    /// Whether its directory and its file are this user's own.
    pub is_own: bool,
    /// Whether the supervisor and every process that still records have ended; not known counts as no.
    pub is_over: bool,
    /// Whether it, or a process of it, left a bundle, or its program ended by more than its own exit code.
    pub is_death: bool,
    /// Whether there is more to say of it than that it completed: a death, another exit code, a warning.
    pub has_findings: bool,
}

impl StoredRun {
    /// The run in a directory; `None` where its file is a link, another program's, or of another version.
    #[must_use]
    pub fn of(directory: &RunDirectory) -> Option<Self> {
        let path = directory.path();
        let (folder, file) =
            (fs::symlink_metadata(path).ok()?, fs::symlink_metadata(path.join(RUN_FILE)).ok()?);
        if !folder.is_dir() || !file.is_file() {
            return None;
        }
        let mut record = RunRecord::read(path).ok()??;
        let mut state = RunStatus::of_word(record.status.as_deref());
        let user = rustix::process::geteuid().as_raw();
        let is_own = folder.uid() == user && file.uid() == user;
        if state == RunStatus::Running {
            match finish_run(directory) {
                Some(finished) => {
                    state = RunStatus::Interrupted;
                    let finished = serde_json::Value::Object(finished.record);
                    record = serde_json::from_value(finished).unwrap_or(record);
                }
                None if RunLife::of(directory, &directory.read()).life != Life::Alive => {
                    state = RunStatus::Unknown
                }
                None => {}
            }
        }
        let taken = DirectoryUsage::by(path);
        let is_interrupted = state == RunStatus::Interrupted;
        let is_death = taken.has_bundle || (is_interrupted && record.is_death());
        Some(StoredRun {
            path: path.to_owned(),
            is_over: matches!(state, RunStatus::Completed | RunStatus::Interrupted) && !is_in_use(directory),
            state: state.refined(record.ended()),
            started_at_ns: record.started_at_ns,
            ended_at_ns: record.ended_at_ns,
            bytes: taken.bytes,
            is_own,
            is_death,
            has_findings: is_death || is_interrupted || record.has_findings(),
            cause: record.cause.as_deref().and_then(Cause::of_word),
            launch: record.launch,
            verdict: record.verdict,
        })
    }

    /// The object form; the keys are a promise to scripts.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        let moment = |at: Option<i64>| {
            at.and_then(|at| jiff::Timestamp::from_nanosecond(at.into()).ok())
                .map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        };
        let mut row = json!({
            "path": self.path.display().to_string(), "state": self.state.as_str(),
            "started_at": moment(self.started_at_ns), "ended_at": moment(self.ended_at_ns),
            "bytes": self.bytes, "verdict": self.verdict,
        });
        if let Some(launch) = &self.launch {
            row["launch"] = json!(launch);
        }
        row
    }
}

/// Whether a process still holds a lock of the run, writes one of its captures, compresses them, or ships it.
fn is_in_use(run: &RunDirectory) -> bool {
    let life = RunLife::of(run, &run.read());
    let locks = fs::read_dir(run.path().join(LOCKS_DIRECTORY)).into_iter().flatten().flatten();
    let is_shipped = lock::state(&run.path().join(SHIPPING_LOCK)) == LockState::Held;
    if life.life == Life::Alive
        || is_shipped
        || locks.into_iter().any(|lock| lock::state(&lock.path()) == LockState::Held)
    {
        return true;
    }
    let writes = |capture: PathBuf| {
        let header = Live::open(&Live::path_of(&capture)).and_then(|live| live.header());
        // What is not a live file is written by nothing of ours.
        header.is_ok_and(|header| life.process(header.pid, Some(header.process_start_ticks)) != Life::Dead)
    };
    let directories = unfinished_captures(run.path()).into_iter();
    let mut captures = directories.flat_map(|(directory, _)| {
        let live = live_files(&directory).unwrap_or_default();
        live.into_iter().map(move |file| directory.join(file.name))
    });
    captures.any(writes)
}

/// What a directory takes, and whether there is a bundle in it.
#[derive(Default)]
struct DirectoryUsage {
    bytes: u64,
    has_bundle: bool,
}

impl DirectoryUsage {
    fn by(directory: &Path) -> Self {
        let mut taken = DirectoryUsage::default();
        let mut pending = vec![(directory.to_owned(), 0)];
        let mut entries = 0;
        while let Some((directory, depth)) = pending.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                entries += 1;
                if entries > MAX_ENTRIES {
                    return taken;
                }
                // Of a link its own size.
                let Ok(metadata) = entry.metadata() else { continue };
                taken.bytes += metadata.blocks() * BLOCK;
                if metadata.is_dir() && depth < MAX_DEPTH {
                    taken.has_bundle |= entry.file_name().to_str().and_then(BundleName::parse).is_some();
                    pending.push((entry.path(), depth + 1));
                }
            }
        }
        taken
    }
}
