//! The rules of `stormlog_model::{classify, fingerprint}` for values of any kind that Python has: what an event counts as, what an issue is about.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyMapping, PyString};
use serde_json::{Number, Value};
use stormlog_model::fingerprint::{self, Fingerprint};
use stormlog_model::{Record, classify};

use crate::error::raise;
use crate::record::{as_dict, object_to_python};

/// A text with what varies from run to run taken out; `default` where there is nothing in it.
#[pyfunction]
fn normalize_text(text: &str, default: &str) -> String {
    fingerprint::dimension_of_text(text, default)
}

/// The beginning of an error's text.
#[pyfunction]
fn error_stem(error: &str) -> String {
    fingerprint::error_stem(&error.into())
}

/// What an alert is about, by its sentence.
#[pyfunction]
fn alert_category(context: &str) -> String {
    fingerprint::alert_category(&context.into())
}

/// The state a word stands for.
#[pyfunction]
fn issue_state(word: &str) -> PyResult<&'static str> {
    fingerprint::issue_state(word).map_err(raise)
}

/// Dimensions with what varies taken out, in the order of their names.
#[pyfunction]
fn normalize_dimensions<'py>(
    py: Python<'py>,
    dimensions: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let normalized = fingerprint::normalize_dimensions(&record(dimensions)?).map_err(raise)?;
    object_to_python(py, &normalized)
}

/// The id of an issue about dimensions that are normalized.
#[pyfunction]
fn fingerprint_id(schema_version: u64, kind: String, dimensions: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(Fingerprint { schema_version, kind, dimensions: record(dimensions)? }.id())
}

/// Whether an event of that type whose metadata states that severity is an alert.
#[pyfunction]
fn is_alert(event_type: &str, severity: Option<&str>) -> bool {
    classify::is_alert(event_type, severity)
}

/// The severity it is counted under.
#[pyfunction]
fn severity_of(event_type: &str, severity: Option<&str>) -> String {
    classify::severity_of(event_type, severity)
}

/// Whether an event of that type, with a mark of an out-of-memory error in its metadata, is one.
#[pyfunction]
fn is_oom(event_type: &str, has_oom_mark: bool) -> bool {
    classify::is_oom(event_type, has_oom_mark)
}

/// Whether an event of that type whose metadata states that health reports a collector in trouble.
#[pyfunction]
fn is_collector_degradation(event_type: &str, health: Option<&str>) -> bool {
    classify::is_collector_degradation(event_type, health)
}

fn record(dimensions: &Bound<'_, PyAny>) -> PyResult<Record> {
    let nameless = || PyValueError::new_err("fingerprint dimension keys must be non-empty strings");
    let mut found = Record::new();
    for (key, value) in as_dict(dimensions)?.iter().flat_map(|items| items.iter()) {
        found.insert(key.extract::<String>().map_err(|_| nameless())?, dimension(&value)?);
    }
    Ok(found)
}

/// A value as the rules see it: scalars, lists of any kind, mappings, and the text of everything else.
fn dimension(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().into());
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract::<i64>().map(Value::from).or_else(|_| value.extract::<u64>().map(Value::from));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        let number = Number::from_f64(float.value());
        return number.map(Value::Number).ok_or_else(|| PyValueError::new_err("a dimension must be finite"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_string_lossy().into_owned().into());
    }
    if value.cast::<PyMapping>().is_ok() {
        return record(value).map(Value::Object);
    }
    let is_list =
        ["list", "tuple", "set", "frozenset"].contains(&value.get_type().name()?.to_string_lossy().as_ref());
    if is_list {
        return value.try_iter()?.map(|item| dimension(&item?)).collect();
    }
    Ok(value.str()?.to_string_lossy().into_owned().into())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ALERT_EVENT_TYPES", classify::ALERTS)?;
    module.add("COLLECTOR_TRANSITION_TYPES", classify::COLLECTOR_TRANSITIONS)?;
    module.add("COLLECTOR_DEGRADED_STATUSES", classify::DEGRADED_STATUSES)?;
    module.add("OOM_MARKS", classify::OOM_MARKS)?;
    module.add_function(wrap_pyfunction!(normalize_text, module)?)?;
    module.add_function(wrap_pyfunction!(error_stem, module)?)?;
    module.add_function(wrap_pyfunction!(alert_category, module)?)?;
    module.add_function(wrap_pyfunction!(issue_state, module)?)?;
    module.add_function(wrap_pyfunction!(normalize_dimensions, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint_id, module)?)?;
    module.add_function(wrap_pyfunction!(is_alert, module)?)?;
    module.add_function(wrap_pyfunction!(severity_of, module)?)?;
    module.add_function(wrap_pyfunction!(is_oom, module)?)?;
    module.add_function(wrap_pyfunction!(is_collector_degradation, module)?)
}
