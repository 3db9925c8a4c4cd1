//! How a Python program's last exception gets out of it, and how its use of torch is noticed: a `sitecustomize` that
//! Python itself imports at start.
//!
//! It is plain standard-library Python, so it works in whatever environment the program uses. It is code that runs as the program's user,
//! so it is stored in that user's private cache, never in the run's directory, which may be shared. It must not change what the program
//! sees: hooks are chained, the user's own `sitecustomize` still runs, nothing is printed.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use stormlog_catalog::run::layout::{
    ENDS_FILE, ENDS_MAX_BYTES, ENDS_OF_AN_EXIT, EXCEPTIONS_DIRECTORY, LOCKS_DIRECTORY, RUN_VARIABLE,
    retained_name,
};
use stormlog_files::{cache_directories, install};

use crate::error::RunError;

const SCRIPT: &str = include_str!("sitecustomize.py");
const SCRUBBER: &str = include_str!("scrubber.py");
/// Part of the package too, for programs that are recorded without `stormlog run`.
const BACKWARD: &str = include_str!("../../../python/stormlog/_torch/backward.py");
const FILE: &str = "sitecustomize.py";
/// The line of the scrubber that the list of secrets replaces.
const TABLES: &str = "    # tables of secrets\n";
/// The line of the script that the names of the run directory replace.
const NAMES: &str = "    # names in a run directory\n";
/// Between the directories of `PYTHONPATH`; a directory with one in its path cannot be named there.
const SEPARATOR: u8 = b':';
const TORCH: &str = "STORMLOG_TORCH";
const CUDA_DRIVER: &str = "STORMLOG_CUDA_DRIVER";
const TORCH_HISTORY: &str = "STORMLOG_TORCH_HISTORY";
const EXCEPTIONS: &str = "STORMLOG_EXCEPTIONS";
const WHY: &str = "STORMLOG_WHY";
const SNAPSHOT_SIGNAL: &str = "STORMLOG_SNAPSHOT_SIGNAL";

/// The variable that every process of the run inherits.
pub(crate) fn mark(run: &Path) -> (OsString, OsString) {
    (RUN_VARIABLE.into(), run.as_os_str().to_owned())
}

/// What the history of PyTorch's own allocator keeps, beside the recording of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TorchHistory {
    /// Nothing.
    Off,
    /// Requests and segments, for a replay.
    Segments,
    /// Those with PyTorch's stacks.
    Stacks,
}

impl TorchHistory {
    /// As the variable has it.
    fn as_str(self) -> &'static str {
        match self {
            TorchHistory::Off => "off",
            TorchHistory::Segments => "segments",
            TorchHistory::Stacks => "stacks",
        }
    }
}

/// What the script does in each Python process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptFeatures {
    pub(crate) exceptions: bool,
    pub(crate) torch: bool,
    /// What keeps its memory, when that runs out.
    pub(crate) why: bool,
    pub(crate) cuda_driver: bool,
    pub(crate) torch_history: Option<TorchHistory>,
    pub(crate) snapshot_signal: Option<i32>,
}

/// Stores the script and gives the variables a child needs to find it.
pub(crate) fn prepare(wanted: ScriptFeatures) -> Result<Vec<(OsString, OsString)>, RunError> {
    if !wanted.exceptions && !wanted.torch {
        return Ok(vec![(TORCH.into(), "0".into())]);
    }
    let mut search = directory()?.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        search.push(":");
        search.push(before);
    }
    let mut variables = vec![("PYTHONPATH".into(), search)];
    // Not set where it is wanted: the user's own variable counts then.
    variables.extend((!wanted.torch).then(|| (TORCH.into(), "0".into())));
    variables.extend(wanted.cuda_driver.then(|| (CUDA_DRIVER.into(), "1".into())));
    variables.extend(wanted.torch_history.map(|history| (TORCH_HISTORY.into(), history.as_str().into())));
    variables
        .extend(wanted.snapshot_signal.map(|signal| (SNAPSHOT_SIGNAL.into(), signal.to_string().into())));
    variables.extend((!wanted.why).then(|| (WHY.into(), "off".into())));
    variables.extend((!wanted.exceptions).then(|| (EXCEPTIONS.into(), "0".into())));
    Ok(variables)
}

/// The directory of the script: one that only this user can write to, named after the script's content.
fn directory() -> Result<PathBuf, RunError> {
    let tables: String =
        stormlog_model::scrub::python_tables().lines().map(|line| format!("    {line}\n")).collect();
    let names = format!(
        "    run_variable, exceptions, locks = {RUN_VARIABLE:?}, {EXCEPTIONS_DIRECTORY:?}, {LOCKS_DIRECTORY:?}\n    \
         ends, ends_of_an_exit, ends_max_bytes = {ENDS_FILE:?}, {ENDS_OF_AN_EXIT:?}, {ENDS_MAX_BYTES}\n    \
         retained = {:?}\n",
        retained_name("%p")
    );
    let scrubber = SCRUBBER.replacen(TABLES, &tables, 1);
    let script = format!("{scrubber}\n\n{BACKWARD}\n\n{}", SCRIPT.replacen(NAMES, &names, 1));
    let mut hasher = DefaultHasher::new();
    script.hash(&mut hasher);
    let name = format!("python-{:016x}", hasher.finish());
    let mut failed = RunError::directory(&name, std::io::ErrorKind::NotFound.into());
    for place in cache_directories().map(|cache| cache.join(&name)) {
        if place.as_os_str().as_encoded_bytes().contains(&SEPARATOR) {
            continue;
        }
        let above = place.parent().unwrap_or(&place);
        // The directory above counts too: its owner could put another one in this one's place.
        let stored = stormlog_files::private_directory(above)
            .and_then(|()| install(&place, FILE, script.as_bytes(), false));
        match stored {
            Ok(_) => return Ok(place),
            Err(error) => failed = RunError::directory(&place, error),
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_a_line_for_secrets_and_one_for_names() {
        assert_eq!(SCRUBBER.matches(TABLES).count(), 1);
        assert_eq!(SCRIPT.matches(NAMES).count(), 1);
    }
}
