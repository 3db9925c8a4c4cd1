//! Phases: the native rules behind `stormlog.phases.PhaseRecorder`.
//!
//! Attributes and scopes cross as JSON text. The lock is held for table look-ups only, never while Python code runs.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_model::Record;
use stormlog_model::phases::{PhaseBoundary, PhaseToken, Phases as Inner, Thread};

use crate::error::raise;

/// The event to emit where a phase begins or ends; its metadata is JSON text, as that of every event.
#[pyclass(frozen, get_all, module = "stormlog._native.tracking")]
struct Boundary {
    event_type: &'static str,
    context: String,
    metadata: String,
    scope_id: String,
    path: Vec<String>,
}

/// The open phases of one recorder.
#[pyclass(frozen, module = "stormlog._native.tracking")]
struct Phases {
    open: Mutex<Inner>,
}

#[pymethods]
impl Phases {
    #[new]
    fn new() -> Self {
        Phases { open: Mutex::default() }
    }

    fn reset(&self) {
        self.with(Inner::reset);
    }

    fn enter(
        &self,
        session_id: &str,
        rank: u64,
        thread: (u64, String),
        name: &str,
        attributes: &str,
    ) -> PyResult<Boundary> {
        let attributes = object(attributes)?;
        let thread = Thread { id: thread.0, name: &thread.1 };
        let (_, boundary) =
            self.with(|open| open.enter(session_id, rank, thread, name, attributes)).map_err(raise)?;
        Ok(crossing(boundary))
    }

    fn exit(&self, session_id: String, rank: u64, scope_id: String, thread_id: u64) -> PyResult<Boundary> {
        // The name and the entering thread play no part in leaving.
        let token = PhaseToken { scope_id, session_id, rank, thread_id, name: String::new() };
        self.with(|open| open.exit(&token, thread_id)).map(crossing).map_err(raise)
    }
}

impl Phases {
    fn with<T>(&self, use_it: impl FnOnce(&mut Inner) -> T) -> T {
        use_it(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn crossing(boundary: PhaseBoundary) -> Boundary {
    let path = boundary.path.iter().map(|part| part.to_string()).collect();
    let metadata = Value::Object(boundary.metadata).to_string();
    Boundary {
        event_type: boundary.event_type,
        context: boundary.context,
        metadata,
        scope_id: boundary.scope_id,
        path,
    }
}

/// The object in a JSON text.
pub(crate) fn object(text: &str) -> PyResult<Record> {
    match serde_json::from_str(text) {
        Ok(Value::Object(record)) => Ok(record),
        Ok(_) => Err(PyValueError::new_err("expected an object")),
        Err(error) => Err(raise(error)),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Boundary>()?;
    module.add_class::<Phases>()
}
