//! Session ids, states and summaries.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::Value;
use stormlog_model::{SessionStatus, SessionSummary};

use crate::error::raise;
use crate::record::{as_dict, object_to_python, top_level};

/// The fields of a summary in the order of the Python class.
pub(crate) type SummaryFields<'py> = Bound<'py, PyTuple>;

/// A new opaque session id.
#[pyfunction]
fn new_session_id() -> String {
    stormlog_model::new_session_id()
}

/// The synthetic id of artifacts that carry none.
#[pyfunction]
fn legacy_session_id(parts: Vec<String>) -> String {
    stormlog_model::legacy_session_id(parts.iter().map(String::as_str))
}

/// The state a word stands for.
#[pyfunction]
fn normalize_session_status(value: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    let status = SessionStatus::parse(&top_level("status", value)?).map_err(raise)?;
    Ok(status.as_str())
}

/// The fields of a summary read from its object form.
#[pyfunction]
fn session_summary_from_record<'py>(payload: &Bound<'py, PyAny>) -> PyResult<SummaryFields<'py>> {
    let Some(items) = as_dict(payload)? else {
        return Err(PyValueError::new_err("session summary payload must be an object"));
    };
    let mut record = stormlog_model::Record::new();
    for (key, value) in items.iter() {
        let name = key.str()?.to_string_lossy().into_owned();
        let shown = top_level(&name, &value)?;
        record.insert(name, shown);
    }
    let summary = SessionSummary::from_record(&record).map_err(raise)?;
    summary_fields(payload.py(), &summary)
}

/// The object form has the order of the Python class already.
pub(crate) fn summary_fields<'py>(py: Python<'py>, summary: &SessionSummary) -> PyResult<SummaryFields<'py>> {
    let record: stormlog_model::Record = summary.to_record();
    debug_assert!(matches!(record.get("session_id"), Some(Value::String(_))));
    PyTuple::new(py, object_to_python(py, &record)?.values())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(new_session_id, module)?)?;
    module.add_function(wrap_pyfunction!(legacy_session_id, module)?)?;
    module.add_function(wrap_pyfunction!(normalize_session_status, module)?)?;
    module.add_function(wrap_pyfunction!(session_summary_from_record, module)?)
}
