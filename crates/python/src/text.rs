//! Text for people, as the commands write it: `stormlog_model::text` for the Python package.

use pyo3::prelude::*;
use stormlog_model::text;

/// Text as the content of an element or of a quoted attribute.
#[pyfunction]
fn escape_markup(text: &str) -> String {
    text::escape_markup(text).into_owned()
}

/// Text on one line that cannot command a terminal.
#[pyfunction]
fn inert_text(text: &str) -> String {
    text::inert_text(text).into_owned()
}

/// `1.25 GiB`.
#[pyfunction]
fn binary_size(bytes: u64) -> String {
    text::format_bytes(bytes)
}

/// `41 min 12 s`.
#[pyfunction]
fn duration_in_words(seconds: f64) -> String {
    text::format_duration(seconds)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(escape_markup, module)?)?;
    module.add_function(wrap_pyfunction!(inert_text, module)?)?;
    module.add_function(wrap_pyfunction!(binary_size, module)?)?;
    module.add_function(wrap_pyfunction!(duration_in_words, module)?)
}
