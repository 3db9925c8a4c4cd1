//! Private files and texts without secrets, by the rules of the crates that own them.

use std::io;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::from_io;

/// Replaces a file, whole or not at all; private.
#[pyfunction]
fn replace_file(py: Python<'_>, path: PathBuf, content: Vec<u8>) -> io::Result<()> {
    py.detach(|| stormlog_files::replace(&path, &content))
}

/// Makes a private file that does not exist yet; its descriptor is the caller's.
#[pyfunction]
fn create_file(path: PathBuf) -> io::Result<i32> {
    Ok(stormlog_files::create_new(&path)?.into_raw_fd())
}

/// Opens a regular file for reading; its descriptor is the caller's. A pipe is refused, where `open` would wait for its other end.
#[pyfunction]
fn open_regular(path: PathBuf) -> PyResult<i32> {
    Ok(stormlog_files::open_regular(&path).map_err(|error| from_io(&path, &error))?.into_raw_fd())
}

/// Makes a private directory and what is missing above it.
#[pyfunction]
fn create_directory(path: PathBuf) -> io::Result<()> {
    stormlog_files::create_directory(&path).map(drop)
}

/// A text without its secrets.
#[pyfunction]
fn scrub_text(text: &str) -> String {
    stormlog_model::scrub::text(text)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(replace_file, module)?)?;
    module.add_function(wrap_pyfunction!(create_file, module)?)?;
    module.add_function(wrap_pyfunction!(create_directory, module)?)?;
    module.add_function(wrap_pyfunction!(open_regular, module)?)?;
    module.add_function(wrap_pyfunction!(scrub_text, module)?)
}
