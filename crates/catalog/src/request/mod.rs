//! What a recorded process is asked to do while it runs: request files, and the answers to them.
//!
//! A request is one small file below the run's directory. It counts only where its owner is the user of the process or root, and it is taken once: its
//! file is removed before anything is done. The answer is a file too, so that a request reaches a process of another machine over a shared file system.
//! Who leaves a request never touches the process. Must never follow a link, read more than [`MAX_BYTES`] of a file, or trust what it reads.

mod ask;
mod inbox;
mod listener;
mod progress;
mod snapshot_directory;

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stormlog_files::Directory;

pub use ask::{PendingRequest, Target, ask, ask_in, asked_of, targets, that_may_step};
pub use inbox::{Inbox, pending_without_listener};
pub use listener::{Listener, SignalState, listener_of};
pub use progress::RequestProgress;
pub use snapshot_directory::{new_snapshot_directory, new_snapshot_directory_in};

use crate::run::layout::{REQUESTS_DIRECTORY, RUN_FILE, SNAPSHOTS_DIRECTORY, answer_name, is_request_id};

/// A file of this directory is at most so large.
pub const MAX_BYTES: u64 = 16 << 10;
/// Requests to a process that wait at the same time. A run may have hundreds of processes that are all asked at once.
pub const MAX_PENDING: usize = 64;
/// Answers that are kept of a process.
const MAX_ANSWERS: usize = 64;
/// Entries of the directory that are looked at.
const MAX_ENTRIES: usize = 65_536;

/// What is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The memory now: components, holders, the allocator of each device.
    Snapshot,
    /// The allocations of a while, by line.
    Heap,
}

impl Kind {
    /// As files and scripts have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Snapshot => "snapshot",
            Kind::Heap => "heap",
        }
    }
}

/// One request to one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Tells it from others: letters and digits.
    pub id: String,
    /// The process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: a later one of its number is not meant.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    /// What is requested.
    pub kind: Kind,
    /// At the end of this training step, or of the first one after it.
    #[serde(default)]
    pub at_step: Option<u64>,
    /// How long a heap is recorded where steps do not end it.
    #[serde(default)]
    pub heap_seconds: Option<f64>,
    /// Which command asks.
    pub asked_by: String,
    /// When, in nanoseconds since 1970.
    pub asked_at_ns: i64,
    /// From then on it is not worth an answer.
    #[serde(default)]
    pub expires_at_ns: Option<i64>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was taken, and waits for its step.
    Waiting,
    /// The result is there.
    Done,
    /// It is not for this process, or not from its user.
    Refused,
    /// It was tried.
    Failed,
}

impl State {
    /// The state of a word.
    pub fn of_word(word: &str) -> Result<Self, RequestError> {
        serde_json::from_value(word.into()).map_err(|_| RequestError::State(word.to_owned()))
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_final(self) -> bool {
        self != State::Waiting
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the request.
    pub id: String,
    /// The process.
    pub pid: u32,
    /// What became of it.
    pub state: State,
    /// The directory of the result, below the run's.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Why there is none, and what to do.
    #[serde(default)]
    pub reason: Option<String>,
    /// The last step the process had ended.
    #[serde(default)]
    pub step: Option<u64>,
    /// When, in nanoseconds since 1970.
    pub answered_at_ns: i64,
}

/// Why a request cannot be left or an answer not be written.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The directory belongs to another user.
    #[error("{}: belongs to another user; run this as that user or as root", .0.display())]
    NotYours(PathBuf),
    /// Too many wait.
    #[error("{}: {MAX_PENDING} requests to one process are waiting for an answer; wait, or stop the process that does not answer", .0.display())]
    Busy(PathBuf),
    /// Too many results.
    #[error("{}: too many snapshots in this directory; remove old ones", .0.display())]
    Full(PathBuf),
    /// The word for a state is not one.
    #[error("unknown request state {0:?}")]
    State(String),
    /// The number is not one.
    #[error("invalid request id {0:?}: expected letters and digits")]
    Id(String),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
}

impl RequestError {
    fn io(path: &Path, source: impl Into<std::io::Error>) -> Self {
        RequestError::Io { path: path.to_owned(), source: source.into() }
    }
}

impl Answer {
    /// Writes it, whole or not at all.
    pub fn write(&self, run: &Path) -> Result<(), RequestError> {
        if !is_request_id(&self.id) {
            return Err(RequestError::Id(self.id.clone()));
        }
        let directory = run.join(REQUESTS_DIRECTORY);
        let text = serde_json::to_vec_pretty(self).map_err(|error| RequestError::io(&directory, error))?;
        Directory::open(&directory)
            .and_then(|open| open.replace(answer_name(self.pid, &self.id), &text))
            .map_err(|error| RequestError::io(&directory, error))
    }

    /// What is answered so far; `None` where nothing is. The path of the result is one of the run's own snapshots, or left out.
    #[must_use]
    pub fn read(run: &Path, pid: u32, id: &str) -> Option<Self> {
        let (mut answer, _) = read::<Answer>(&run.join(REQUESTS_DIRECTORY).join(answer_name(pid, id)))?;
        answer.path = answer.path.and_then(|path| own_snapshot(run, &path));
        (answer.pid == pid && answer.id == id).then_some(answer)
    }
}

/// A snapshot of the run by the path that its process wrote, as a path below `run`. The process has the run by its absolute path, and another machine
/// by another one, so only the names count.
fn own_snapshot(run: &Path, path: &Path) -> Option<PathBuf> {
    // None for `..`, which is not a file name.
    let name = path.file_name()?;
    let is_snapshot = path.parent()?.file_name()? == SNAPSHOTS_DIRECTORY;
    is_snapshot.then(|| run.join(SNAPSHOTS_DIRECTORY).join(name))
}

/// A small JSON file and its owner. `None` for a link, for anything that is not a regular file, a larger one, and for other content.
fn read<T: DeserializeOwned>(path: &Path) -> Option<(T, u32)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let handle = openat(CWD, path, flags, Mode::empty()).ok()?;
    let there = fstat(&handle).ok()?;
    if FileType::from_raw_mode(there.st_mode) != FileType::RegularFile || there.st_size as u64 > MAX_BYTES {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::from(handle).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some((serde_json::from_slice(&text).ok()?, there.st_uid))
}

/// The names in a directory of requests; none where it is missing or a link.
fn names(directory: &Path) -> Vec<String> {
    let is_directory = std::fs::symlink_metadata(directory).is_ok_and(|there| there.is_dir());
    let entries = is_directory.then(|| std::fs::read_dir(directory).ok()).flatten();
    let names = entries.into_iter().flatten().flatten().take(MAX_ENTRIES);
    names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The user of a process; `None` where it is gone.
#[must_use]
pub fn user_of(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|there| there.uid())
}

/// Whether something may be written into a directory because process `pid` names it as its run's. Its environment is its user's to choose, and the caller
/// may be root: it is that user's directory, or one of the caller's that is a run's.
#[must_use]
pub fn is_run_of(run: &Directory, pid: u32) -> bool {
    let Ok(owner) = run.owner() else { return false };
    let is_own_run = owner == rustix::process::geteuid().as_raw() && run.open_to_read(RUN_FILE).is_ok();
    user_of(pid) == Some(owner) || is_own_run
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests;
