//! Where recordings are when no path is given: the directory in which `stormlog run` makes its own.

use std::path::{Path, PathBuf};

use stormlog_catalog::run::layout::{DUMPS_DIRECTORY, RUNS_DIRECTORY, RUNS_VARIABLE, usual_runs};

use crate::exit::UsageError;

/// Where bundles are when no path is given: the folder of all runs, and the trackers' own directory.
pub(crate) fn of_bundles(given: Option<&Path>) -> Result<Vec<PathBuf>, UsageError> {
    let dumps = PathBuf::from(DUMPS_DIRECTORY);
    let is_there = given.is_none() && dumps.is_dir();
    match or_runs(given) {
        Ok(runs) => Ok(std::iter::once(runs).chain(is_there.then_some(dumps)).collect()),
        Err(_) if is_there => Ok(vec![dumps]),
        Err(wrong) => Err(wrong),
    }
}

/// The path that was given, or the folder of all runs where there is one.
pub(crate) fn or_runs(given: Option<&Path>) -> Result<PathBuf, UsageError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let folder = usual_runs();
    let is_named = folder != Path::new(RUNS_DIRECTORY);
    if folder.is_dir() {
        return Ok(folder);
    }
    let missing = if is_named {
        format!("{} ({RUNS_VARIABLE}) is not a directory", folder.display())
    } else {
        format!("there is no {RUNS_DIRECTORY} here")
    };
    Err(UsageError(format!(
        "no PATH was given, and {missing}: name a recording, or make one with `stormlog run -- python3 train.py`"
    )))
}
