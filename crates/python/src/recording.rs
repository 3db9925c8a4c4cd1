//! Recording telemetry of this process into files that survive its death.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_model::{Defaults, Interner, SessionStatus, SessionSummary, event_from_record};
use stormlog_store::recording::{Recorder as Inner, RecorderConfig};

use crate::error::raise;
use crate::record::{Foreign, free_form};
use crate::session::GivenSession;

/// An open recording; `None` once closed.
#[pyclass(name = "Recorder", module = "stormlog._native.telemetry", frozen)]
struct Recorder {
    state: Mutex<Option<State>>,
}

struct State {
    recorder: Inner,
    interner: Interner,
}

#[pymethods]
impl Recorder {
    #[new]
    fn new(
        py: Python<'_>,
        directory: OsString,
        summary: GivenSession,
        ring_slots: u64,
        keep_log: bool,
    ) -> PyResult<Self> {
        // One made by hand may break the rules that files keep.
        let summary = SessionSummary::from_record(&summary.summary()?.to_record()).map_err(raise)?;
        let config = RecorderConfig { ring_slots, keep_log, ..RecorderConfig::default() };
        let recorder =
            py.detach(|| Inner::create(&PathBuf::from(directory), summary, &config)).map_err(raise)?;
        Ok(Recorder { state: Mutex::new(Some(State { recorder, interner: Interner::default() })) })
    }

    /// Records an event in its object form. `False` when it was lost, which the files count.
    fn append(&self, record: &Bound<'_, PyAny>) -> PyResult<bool> {
        let record = free_form(record, Foreign::Refused)?;
        self.with(|state| {
            let session = state.recorder.summary().session_id.clone();
            let defaults = Defaults { session_id: Some(&session), ..Defaults::default() };
            let event = event_from_record(&record, &defaults, &mut state.interner).map_err(raise)?;
            if event.head.session_id != session {
                return Err(PyValueError::new_err(format!(
                    "the event belongs to session {}",
                    event.head.session_id
                )));
            }
            Ok(state.recorder.append(&event))
        })
    }

    /// Records and bytes lost so far, and why.
    fn loss(&self) -> PyResult<(u64, u64, Option<String>)> {
        self.with(|state| {
            let loss = state.recorder.loss();
            Ok((loss.records, loss.bytes, loss.reason.map(|reason| format!("{reason:?}"))))
        })
    }

    /// Ends the session. A second time does nothing.
    fn close(&self, py: Python<'_>, status: &str, ended_at_ns: i64) -> PyResult<()> {
        let status = SessionStatus::parse(&Value::from(status)).map_err(raise)?;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        match state {
            Some(state) => py.detach(|| state.recorder.close(status, ended_at_ns)).map_err(raise),
            None => Ok(()),
        }
    }
}

impl Recorder {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
        match self.state.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(state) => work(state),
            None => Err(PyValueError::new_err("the recording is closed")),
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Recorder>()
}
