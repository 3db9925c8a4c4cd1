//! The environment that a process was started with: its identity in a distributed job, and the file in which its launcher expects a failure report.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;
use stormlog_model::{Identity, IdentityInputs, Problem, attempt, resolve_identity};
use stormlog_postmortem::elastic::ERROR_FILE_VARIABLE;

/// More of an environment is not read.
const MOST: usize = 1 << 20;

/// The environment of a process.
pub(crate) struct Environ {
    pid: u32,
    text: Vec<u8>,
    /// It could not be read, and is taken to be ours.
    is_ours: bool,
}

impl Environ {
    /// Of a living process; of one that ended before it could be read, our own, which it started with, when `or_ours`.
    pub(crate) fn of(pid: u32, or_ours: bool) -> Self {
        let mut text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        text.truncate(MOST);
        Environ { pid, is_ours: text.is_empty() && or_ours, text }
    }

    /// Whether nothing of it could be read: it is gone, or in the middle of an exec, where the kernel has no environment of it for a moment.
    pub(crate) fn is_unread(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        if self.is_ours {
            return std::env::var(name).ok();
        }
        let mut entries = self.text.split(|byte| *byte == 0);
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Rank and job: what is given explicitly first, then the environment.
    pub(crate) fn identity(&self, explicit: [Option<&Value>; 4]) -> Result<Identity, Problem> {
        let env = |name: &str| self.get(name);
        resolve_identity(&IdentityInputs { explicit, env: Some(&env), ..IdentityInputs::default() })
    }

    /// How often its launcher had restarted the job.
    pub(crate) fn attempt(&self) -> Option<u64> {
        attempt(&|name: &str| self.get(name))
    }

    /// The file in which torchrun wants to find why the process failed. Of another user's process `None`: its environment must not choose what we write.
    pub(crate) fn error_file(&self) -> Option<PathBuf> {
        let path = self.get(ERROR_FILE_VARIABLE).filter(|path| !path.is_empty())?;
        let owner = std::fs::metadata(format!("/proc/{}", self.pid)).ok()?.uid();
        (owner == rustix::process::geteuid().as_raw()).then(|| path.into())
    }
}
