//! How a Python program's last exception gets out of it: a `sitecustomize` that Python itself imports at start.
//!
//! It is plain standard-library Python, written into the run directory, so it works in whatever environment the program
//! uses. It must not change what the program sees: hooks are chained, the user's own `sitecustomize` still runs, nothing
//! is printed.

use std::ffi::OsString;
use std::path::Path;

use crate::error::RunError;

const SCRIPT: &str = include_str!("sitecustomize.py");
const DIRECTORY: &str = ".inject";
/// Tells the script where to report.
const REPORT_TO: &str = "STORMLOG_RUN_DIR";

/// Writes the script and gives the variables a child needs to find it.
pub(crate) fn prepare(run: &Path) -> Result<Vec<(OsString, OsString)>, RunError> {
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
    Ok(vec![("PYTHONPATH".into(), search), (REPORT_TO.into(), run.as_os_str().to_owned())])
}

/// Takes the script away again; what it reported stays.
pub(crate) fn remove(run: &Path) {
    // A child that outlives the run may have Python keep a copy beside it; nothing depends on it being gone.
    let _ = std::fs::remove_dir_all(run.join(DIRECTORY));
}
