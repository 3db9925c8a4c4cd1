//! The only place that turns our errors into Python exceptions.
//!
//! What the operating system refused is the `OSError` its number stands for; everything else wrong with an input
//! is a `ValueError` whose text is the whole sentence.

use std::io;
use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use stormlog_model::Problem;
use stormlog_store::StoreError;
use stormlog_store::sink::SinkError;

/// A rule that a record or a value breaks.
pub(crate) fn from_problem(problem: Problem) -> PyErr {
    PyValueError::new_err(problem.message)
}

/// A path that could not be read.
pub(crate) fn from_store(error: StoreError) -> PyErr {
    match error {
        StoreError::Io { path, source } => from_io(&path, &source),
        StoreError::Missing { path } => from_io(&path, &io::Error::from_raw_os_error(libc::ENOENT)),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// What a sink could not do.
pub(crate) fn from_sink(error: SinkError) -> PyErr {
    match error {
        SinkError::Io { path: Some(path), source } => from_io(&path, &source),
        SinkError::Io { path: None, source } => match spelt(&source) {
            (Some(number), text) => PyOSError::new_err((number, text)),
            (None, text) => PyOSError::new_err(text),
        },
        SinkError::Store(error) => from_store(error),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// Called with a number, `OSError` picks the subclass (`FileNotFoundError`, …) by itself.
fn from_io(path: &Path, error: &io::Error) -> PyErr {
    match spelt(error) {
        (Some(number), text) => PyOSError::new_err((number, text, path.as_os_str().to_owned())),
        (None, text) => PyOSError::new_err(format!("{}: {text}", path.display())),
    }
}

/// The system's number and its sentence without that number.
fn spelt(error: &io::Error) -> (Option<i32>, String) {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else { return (None, text) };
    let plain = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    (Some(number), plain.to_owned())
}
