//! What lies at a path, for `stormlog.query`: the sources the commands find, under the names scripts know them by.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_liveness::Life;
use stormlog_store::{Source, StoreError};

use crate::error::raise;

/// Kind and path of a source.
type Row = (&'static str, PathBuf);

/// Kind and path of every source at a path, and a sentence about each run that was left out; nothing where there is none. A run whose
/// supervisor was killed too is finished first, as every command does that looks at one.
#[pyfunction]
fn find_sources(py: Python<'_>, path: PathBuf) -> PyResult<(Vec<Row>, Vec<String>)> {
    let found = py.detach(|| {
        drop(stormlog_catalog::run::finish_abandoned(&path));
        Source::find_known(&path)
    });
    match found {
        Ok(sources) => {
            let rows = sources.found.iter().map(|source| (source.kind(), source.path().to_owned()));
            Ok((rows.collect(), sources.skipped.iter().map(StoreError::to_string).collect()))
        }
        Err(StoreError::Unrecognised { .. }) => Ok((Vec::new(), Vec::new())),
        Err(error) => Err(raise(error)),
    }
}

/// Whether the process of a session that claims to run, found at a path, has ended. What is not known is not an end.
#[pyfunction]
fn is_session_dead(py: Python<'_>, path: PathBuf, pid: i64, host: &str, started_at_ns: i64) -> bool {
    py.detach(|| stormlog_catalog::run::session_life(&path, pid, host, started_at_ns)) == Life::Dead
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(find_sources, module)?)?;
    module.add_function(wrap_pyfunction!(is_session_dead, module)?)
}
