//! Session ids, states and summaries.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_model::{SessionStatus, SessionSummary};

use crate::error::raise;
use crate::record::{as_dict, top_level};

/// A session summary on its way to Python, where `stormlog.session.SessionSummary` is made of it.
#[pyclass(frozen, get_all, module = "stormlog._native.telemetry")]
#[derive(Clone)]
pub(crate) struct Session {
    session_id: String,
    status: &'static str,
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    host: String,
    pid: i64,
    job_id: Option<String>,
    rank: i64,
    local_rank: i64,
    world_size: i64,
    source: String,
}

impl From<SessionSummary> for Session {
    fn from(summary: SessionSummary) -> Self {
        Session {
            session_id: summary.session_id,
            status: summary.status.as_str(),
            started_at_ns: summary.started_at_ns,
            ended_at_ns: summary.ended_at_ns,
            host: summary.host,
            pid: summary.pid,
            job_id: summary.job_id,
            rank: summary.rank,
            local_rank: summary.local_rank,
            world_size: summary.world_size,
            source: summary.source,
        }
    }
}

/// A `stormlog.session.SessionSummary` of the caller, by its attributes; one made by hand may break the rules of files.
#[derive(FromPyObject)]
pub(crate) struct GivenSession {
    session_id: String,
    status: String,
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    host: String,
    pid: i64,
    #[pyo3(from_py_with = job_text)]
    job_id: Option<String>,
    rank: i64,
    local_rank: i64,
    world_size: i64,
    source: String,
}

impl GivenSession {
    /// The summary in the state it names.
    pub(crate) fn summary(self) -> PyResult<SessionSummary> {
        let status = SessionStatus::parse(&Value::from(self.status.as_str())).map_err(raise)?;
        Ok(self.in_state(status))
    }

    /// The summary in another state than it names.
    pub(crate) fn in_state(self, status: SessionStatus) -> SessionSummary {
        SessionSummary {
            status,
            session_id: self.session_id,
            started_at_ns: self.started_at_ns,
            ended_at_ns: self.ended_at_ns,
            host: self.host,
            pid: self.pid,
            job_id: self.job_id,
            rank: self.rank,
            local_rank: self.local_rank,
            world_size: self.world_size,
            attempt: None,
            source: self.source,
        }
    }
}

/// Job ids were not always text, and files hold nothing else.
fn job_text(job_id: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if job_id.is_none() { Ok(None) } else { Ok(Some(job_id.str()?.to_string_lossy().into_owned())) }
}

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

/// A summary read from its object form.
#[pyfunction]
fn session_summary_from_record(payload: &Bound<'_, PyAny>) -> PyResult<Session> {
    let Some(items) = as_dict(payload)? else {
        return Err(PyValueError::new_err("session summary payload must be an object"));
    };
    let mut record = stormlog_model::Record::new();
    for (key, value) in items.iter() {
        let name = key.str()?.to_string_lossy().into_owned();
        let shown = top_level(&name, &value)?;
        record.insert(name, shown);
    }
    SessionSummary::from_record(&record).map(Session::from).map_err(raise)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Session>()?;
    module.add_function(wrap_pyfunction!(new_session_id, module)?)?;
    module.add_function(wrap_pyfunction!(legacy_session_id, module)?)?;
    module.add_function(wrap_pyfunction!(normalize_session_status, module)?)?;
    module.add_function(wrap_pyfunction!(session_summary_from_record, module)?)
}
