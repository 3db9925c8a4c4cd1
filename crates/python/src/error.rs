//! The only place that turns our errors into Python exceptions.
//!
//! What the operating system refused is the `OSError` its number stands for; everything else wrong with an input
//! is a `ValueError` whose text is the whole sentence.

use std::io;
use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use stormlog_event::Problem;
use stormlog_store::StoreError;

/// A rule that a record or a value breaks.
pub(crate) fn from_problem(problem: Problem) -> PyErr {
    PyValueError::new_err(problem.message)
}

/// A path that could not be read.
pub(crate) fn from_store(error: StoreError) -> PyErr {
    match error {
        StoreError::Io { path, source } => from_io(&path, &source),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// Called with a number, `OSError` picks the subclass (`FileNotFoundError`, …) by itself.
fn from_io(path: &Path, error: &io::Error) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(format!("{}: {error}", path.display()));
    };
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text).to_owned();
    PyOSError::new_err((number, text, path.as_os_str().to_owned()))
}
