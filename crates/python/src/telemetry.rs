//! Checking, reading and loading telemetry records.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyType};
use serde_json::Value;
use stormlog_model::{
    Defaults, IdentityInputs, Interner, Record, event_from_record as read_event, resolve_identity,
    validate_record as check,
};
use stormlog_store::{LoadOptions, LoadedSession as Loaded, load_sessions as load};

use crate::error::raise;
use crate::events::EventBuffer;
use crate::record::{HeadObjects, PythonRecord, as_dict, event_object, metadata, top_level};
use crate::session::Session;

/// Raises `ValueError` for the first rule that a record of schema 2, 3 or 4 breaks.
#[pyfunction]
fn validate_record(record: &Bound<'_, PyAny>) -> PyResult<()> {
    check(&PythonRecord::of(record)?.record).map_err(raise)
}

/// The event that a record of any schema stands for, as an object of that class.
#[pyfunction]
fn event_from_record<'py>(
    class: &Bound<'py, PyType>,
    record: &Bound<'py, PyAny>,
    permissive_legacy: bool,
    default_collector: &str,
    default_sampling_interval_ms: &Bound<'py, PyAny>,
    default_session_id: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut given = PythonRecord::of(record)?;
    if !given.record.contains_key("schema_version") {
        given.or_insert("sampling_interval_ms", default_sampling_interval_ms)?;
    }
    let defaults = Defaults {
        permissive_legacy,
        collector: default_collector,
        session_id: default_session_id,
        ..Defaults::default()
    };
    let event = read_event(&given.record, &defaults, &mut Interner::default()).map_err(raise)?;
    // Only a blank default can bring this about: a record's own blank session is not taken.
    if event.head.session_id.trim().is_empty() {
        return Err(PyValueError::new_err("session_id must be a non-empty string"));
    }
    let head = HeadObjects::of(record.py(), &event.head)?;
    event_object(class, &event, &head, given.metadata(&event)?)
}

/// Job id, rank, local rank and world size, from explicit values, then metadata, then the environment.
#[pyfunction]
fn resolve_distributed_identity<'py>(
    py: Python<'py>,
    job_id: &Bound<'py, PyAny>,
    rank: &Bound<'py, PyAny>,
    local_rank: &Bound<'py, PyAny>,
    world_size: &Bound<'py, PyAny>,
    metadata: Option<&Bound<'py, PyAny>>,
    env: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let explicit = [
        top_level("job_id", job_id)?,
        top_level("rank", rank)?,
        top_level("local_rank", local_rank)?,
        top_level("world_size", world_size)?,
    ];
    let metadata = metadata.map(identity_metadata).transpose()?;
    let env = env.map(identity_env).transpose()?;
    let lookup =
        |key: &str| env.as_ref()?.iter().find(|(name, _)| *name == key).map(|(_, text)| text.clone());
    let identity = resolve_identity(&IdentityInputs {
        explicit: explicit.each_ref().map(Some),
        metadata: metadata.as_ref(),
        env: env.is_some().then_some(&lookup),
    })
    .map_err(raise)?;
    let named = PyDict::new(py);
    named.set_item("job_id", identity.job_id)?;
    named.set_item("rank", identity.rank)?;
    named.set_item("local_rank", identity.local_rank)?;
    named.set_item("world_size", identity.world_size)?;
    Ok(named)
}

fn identity_metadata(given: &Bound<'_, PyAny>) -> PyResult<Record> {
    match metadata(given, false)? {
        Value::Object(shown) => Ok(shown),
        _ => Ok(Record::new()),
    }
}

/// The texts of an environment. All of it is copied because which variables matter is not known here.
fn identity_env(env: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let env = match env.cast::<PyMapping>() {
        Ok(mapping) => as_dict(mapping)?,
        Err(_) => None,
    };
    let mut texts = Vec::new();
    for (key, value) in env.iter().flat_map(|env| env.iter()) {
        if let (Ok(key), Ok(value)) = (key.extract::<String>(), value.extract::<String>()) {
            texts.push((key, value));
        }
    }
    Ok(texts)
}

/// One session of a path, with its events.
#[pyclass(frozen, get_all, module = "stormlog._native.telemetry")]
pub(crate) struct LoadedSession {
    summary: Session,
    events: Py<EventBuffer>,
    sources: Vec<OsString>,
    warnings: Vec<String>,
}

impl LoadedSession {
    pub(crate) fn of(py: Python<'_>, session: Loaded) -> PyResult<Self> {
        Ok(LoadedSession {
            summary: session.summary.into(),
            events: Py::new(py, EventBuffer::new(session.events))?,
            sources: session.sources.into_iter().map(PathBuf::into_os_string).collect(),
            warnings: session.warnings,
        })
    }
}

/// The sessions at a path, the one meant by default first.
#[pyfunction]
fn load_sessions(
    py: Python<'_>,
    path: PathBuf,
    permissive_legacy: bool,
    events_key: Option<String>,
) -> PyResult<Vec<LoadedSession>> {
    let options = LoadOptions { permissive_legacy, events_key };
    let sessions = py.detach(|| load(&path, &options)).map_err(raise)?;
    sessions.into_iter().map(|session| LoadedSession::of(py, session)).collect()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LoadedSession>()?;
    module.add_function(wrap_pyfunction!(validate_record, module)?)?;
    module.add_function(wrap_pyfunction!(event_from_record, module)?)?;
    module.add_function(wrap_pyfunction!(resolve_distributed_identity, module)?)?;
    module.add_function(wrap_pyfunction!(load_sessions, module)?)
}
