//! Where recordings lie when nobody says: the folder `stormlog run` makes its own in.

use std::path::{Path, PathBuf};

use crate::exit::Wrong;

/// The folder `stormlog run` makes where it is started.
pub(crate) const FOLDER: &str = "stormlog-runs";
/// Names another one.
pub(crate) const VARIABLE: &str = "STORMLOG_DIR";

/// The path that was given, or the folder of all runs where there is one.
pub(crate) fn or_runs(given: Option<&Path>) -> Result<PathBuf, Wrong> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let named = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let is_named = named.is_some();
    let folder = named.unwrap_or_else(|| FOLDER.into());
    if folder.is_dir() {
        return Ok(folder);
    }
    let missing = if is_named {
        format!("{} ({VARIABLE}) is no folder", folder.display())
    } else {
        format!("there is no {FOLDER} here")
    };
    Err(Wrong(format!(
        "no PATH was given, and {missing}: name a recording, or make one with `stormlog run -- python3 train.py`"
    )))
}
