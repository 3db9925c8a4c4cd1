//! An event as `TrackingEvent` has it: seconds, other names, and metadata without what every event repeats.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3::{IntoPyObjectExt, intern};
use stormlog_model::{Counter, Event, Record};

use crate::record::{instance, to_python};

/// How the events of one tracker are spelt.
#[derive(Clone)]
pub(crate) struct Spelling {
    class: Arc<Py<PyType>>,
    backend: Arc<str>,
    /// What the collector reports of itself in every event of a file; `TrackingEvent` leaves it out.
    repeated: Arc<[String]>,
}

impl Spelling {
    pub(crate) fn new(class: Py<PyType>, backend: &str, metadata: &Record) -> Self {
        let repeated = metadata.keys().cloned().collect();
        Spelling { class: Arc::new(class), backend: backend.into(), repeated }
    }

    /// The event as an object of the Python class; the metadata is the caller's to change.
    pub(crate) fn event<'py>(&self, py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyAny>> {
        let (head, identity) = (&event.head, &event.head.identity);
        let metadata = PyDict::new(py);
        for (key, value) in &event.metadata.map {
            if !self.repeated.contains(key) {
                metadata.set_item(key, to_python(py, value)?)?;
            }
        }
        let counter = |counter| event.counters.get(counter).into_bound_py_any(py);
        let fields = [
            (intern!(py, "timestamp"), (event.timestamp_ns as f64 / 1e9).into_bound_py_any(py)?),
            (intern!(py, "event_type"), (&head.event_type).into_bound_py_any(py)?),
            (intern!(py, "memory_allocated"), counter(Counter::Allocated)?),
            (intern!(py, "memory_reserved"), counter(Counter::Reserved)?),
            (intern!(py, "memory_change"), event.counters.change().into_bound_py_any(py)?),
            (intern!(py, "device_id"), head.device_id.into_bound_py_any(py)?),
            (intern!(py, "session_id"), (&head.session_id).into_bound_py_any(py)?),
            (intern!(py, "context"), event.context.as_deref().into_bound_py_any(py)?),
            (intern!(py, "job_id"), identity.job_id.as_deref().into_bound_py_any(py)?),
            (intern!(py, "rank"), identity.rank.into_bound_py_any(py)?),
            (intern!(py, "local_rank"), identity.local_rank.into_bound_py_any(py)?),
            (intern!(py, "world_size"), identity.world_size.into_bound_py_any(py)?),
            (intern!(py, "metadata"), metadata.into_any()),
            (intern!(py, "active_memory"), counter(Counter::Active)?),
            (intern!(py, "inactive_memory"), counter(Counter::Inactive)?),
            (intern!(py, "device_used"), counter(Counter::Used)?),
            (intern!(py, "device_free"), counter(Counter::Free)?),
            (intern!(py, "device_total"), counter(Counter::Total)?),
            (intern!(py, "backend"), (&*self.backend).into_bound_py_any(py)?),
        ];
        instance(self.class.bind(py), fields)
    }
}
