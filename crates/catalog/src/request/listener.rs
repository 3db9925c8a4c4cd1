//! The file by which a process shows that it takes requests itself, and what it can do.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stormlog_liveness::{Life, exists, host_name, pid_namespace};
use stormlog_model::{IdentityInputs, resolve_identity};

use super::{RequestError, read, user_of};
use crate::run::layout::{REQUESTS_DIRECTORY, listener_name};

/// What became of the signal that a user named for snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalState {
    /// It asks for a snapshot.
    Used,
    /// The program had a handler for it, or ignores it.
    Taken,
    /// The program installed its own handler later.
    Replaced,
    /// It cannot be used for this.
    Unfit,
}

impl SignalState {
    /// The state of a word; one that is not known cannot be used.
    #[must_use]
    pub fn of_word(word: &str) -> Self {
        serde_json::from_value(word.into()).unwrap_or(SignalState::Unfit)
    }

    /// A sentence for everything but use.
    #[must_use]
    pub fn note(self, signal: i32) -> Option<String> {
        Some(match self {
            SignalState::Used => return None,
            SignalState::Taken => {
                format!("signal {signal} does not trigger snapshots: the program handles or ignores it")
            }
            SignalState::Replaced => {
                format!("signal {signal} no longer triggers snapshots: the program installed its own handler")
            }
            SignalState::Unfit => {
                format!(
                    "signal {signal} cannot trigger snapshots; use SIGUSR1, SIGUSR2 or a real-time signal"
                )
            }
        })
    }
}

/// A process that takes requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The process.
    pub pid: u32,
    /// When it started.
    pub start_ticks: Option<u64>,
    /// Its machine.
    pub host: String,
    /// The namespace that its number is of.
    #[serde(default)]
    pub pid_namespace: Option<u64>,
    /// Its rank in its job.
    #[serde(default)]
    pub rank: u64,
    /// Ranks of its job; `None` in files of before it was written.
    #[serde(default)]
    pub world_size: Option<u64>,
    /// The signal that asks for a snapshot, where the user named one.
    #[serde(default)]
    pub signal: Option<i32>,
    /// What became of it.
    #[serde(default)]
    pub signal_state: Option<SignalState>,
}

impl Listener {
    /// This process.
    #[must_use]
    pub fn own(rank: u64) -> Self {
        let pid = std::process::id();
        let env = |key: &str| std::env::var(key).ok();
        let identity = resolve_identity(&IdentityInputs { env: Some(&env), ..IdentityInputs::default() });
        Listener {
            pid,
            start_ticks: stormlog_liveness::start_ticks(pid),
            host: host_name(),
            pid_namespace: pid_namespace(),
            rank,
            world_size: identity.ok().map(|identity| identity.world_size),
            signal: None,
            signal_state: None,
        }
    }

    /// Shows it, below `run`; what was shown before is replaced.
    pub fn show(&self, run: &Path) -> Result<(), RequestError> {
        let directory = run.join(REQUESTS_DIRECTORY);
        let text = serde_json::to_vec_pretty(self).map_err(|error| RequestError::io(&directory, error))?;
        stormlog_files::create_directory(&directory)
            .and_then(|open| open.replace(listener_name(self.pid), &text))
            .map_err(|error| RequestError::io(&directory, error))
    }

    /// Takes requests no more.
    pub fn hide(&self, run: &Path) {
        // It is gone with its process anyhow: readers ask whether that lives.
        let _ = stormlog_files::Directory::open(&run.join(REQUESTS_DIRECTORY))
            .and_then(|open| open.remove(listener_name(self.pid)));
    }

    /// Whether its number is one of a process that can be seen from here.
    fn is_here(&self) -> bool {
        self.host == host_name() && self.pid_namespace == pid_namespace()
    }

    /// Whether its process may live: a process of another machine cannot be seen from here.
    #[must_use]
    pub fn may_live(&self) -> bool {
        !self.is_here() || exists(self.pid, self.start_ticks) != Life::Dead
    }

    fn is_trusted(&self, owner: u32) -> bool {
        // Its user is known here; a file of another machine is as good as its directory.
        !self.is_here() || user_of(self.pid).is_none_or(|user| user == owner || owner == 0)
    }
}

/// The listener of a process that may live; `None` where there is none.
#[must_use]
pub fn listener_of(run: &Path, pid: u32) -> Option<Listener> {
    let (found, owner) = read::<Listener>(&run.join(REQUESTS_DIRECTORY).join(listener_name(pid)))?;
    (found.pid == pid && found.is_trusted(owner) && found.may_live()).then_some(found)
}
