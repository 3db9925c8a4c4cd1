//! What lies at a path, for `stormlog.query`: the sources the commands find, under the names scripts know them by.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_store::{Source, StoreError};

use crate::error::from_store;

/// Kind and path of a source.
type Row = (&'static str, PathBuf);

/// Kind and path of every source at a path, and a sentence about each run that was left out; nothing where there is none. A run whose
/// supervisor was killed too is finished first, as every command does that looks at one.
#[pyfunction]
fn find_sources(py: Python<'_>, path: PathBuf) -> PyResult<(Vec<Row>, Vec<String>)> {
    let found = py.detach(|| {
        stormlog_supervise::resume(&path);
        Source::find_known(&path)
    });
    match found {
        Ok(sources) => {
            let rows = sources.found.iter().map(|source| (source.kind(), source.path().to_owned()));
            Ok((rows.collect(), sources.skipped.iter().map(StoreError::to_string).collect()))
        }
        Err(StoreError::Unrecognised { .. }) => Ok((Vec::new(), Vec::new())),
        Err(error) => Err(from_store(error)),
    }
}

/// Whether a process of this machine still runs.
#[pyfunction]
fn is_process_alive(pid: u32) -> bool {
    stormlog_supervise::is_alive(pid)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(find_sources, module)?)?;
    module.add_function(wrap_pyfunction!(is_process_alive, module)?)
}
