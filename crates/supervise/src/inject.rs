//! How a Python program's last exception gets out of it, and how its use of torch is noticed: a `sitecustomize` that
//! Python itself imports at start.
//!
//! It is plain standard-library Python, written into the run directory, so it works in whatever environment the program
//! uses. It must not change what the program sees: hooks are chained, the user's own `sitecustomize` still runs, nothing
//! is printed.

use std::ffi::OsString;
use std::path::Path;

use crate::error::RunError;

const SCRIPT: &str = include_str!("sitecustomize.py");
const DIRECTORY: &str = ".inject";
/// Tells the script where to report, and us which processes are of this run.
pub(crate) const RUN_DIR: &str = "STORMLOG_RUN_DIR";
const TORCH: &str = "STORMLOG_TORCH";
const CUDA_DRIVER: &str = "STORMLOG_CUDA_DRIVER";
const EXCEPTIONS: &str = "STORMLOG_EXCEPTIONS";

/// The variable that every process of the run inherits.
pub(crate) fn mark(run: &Path) -> (OsString, OsString) {
    (RUN_DIR.into(), run.as_os_str().to_owned())
}

/// What the script does in each Python process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) exceptions: bool,
    pub(crate) torch: bool,
    pub(crate) cuda_driver: bool,
}

/// Writes the script and gives the variables a child needs to find it.
pub(crate) fn prepare(run: &Path, wanted: Wanted) -> Result<Vec<(OsString, OsString)>, RunError> {
    if !wanted.exceptions && !wanted.torch {
        return Ok(vec![(TORCH.into(), "0".into())]);
    }
    let directory = run.join(DIRECTORY);
    let script = directory.join("sitecustomize.py");
    std::fs::create_dir(&directory)
        .and_then(|()| std::fs::write(&script, SCRIPT))
        .map_err(|error| RunError::directory(&script, error))?;
    let mut search = directory.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        search.push(":");
        search.push(before);
    }
    let mut variables = vec![("PYTHONPATH".into(), search)];
    // Not said where it is wanted: the user's own variable counts then.
    variables.extend((!wanted.torch).then(|| (TORCH.into(), "0".into())));
    variables.extend(wanted.cuda_driver.then(|| (CUDA_DRIVER.into(), "1".into())));
    variables.extend((!wanted.exceptions).then(|| (EXCEPTIONS.into(), "0".into())));
    Ok(variables)
}

/// Takes the script away again; what it reported stays.
pub(crate) fn remove(run: &Path) {
    // A child that outlives the run may have Python keep a copy beside it; nothing depends on it being gone.
    let _ = std::fs::remove_dir_all(run.join(DIRECTORY));
}
