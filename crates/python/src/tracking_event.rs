//! An event as `TrackingEvent` has it: seconds, other names, and metadata without what every event repeats.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stormlog_model::{Counter, Event, Record};

use crate::record::to_python;

/// How the events of one tracker are spelt.
#[derive(Clone)]
pub(crate) struct Spelling {
    backend: Arc<str>,
    /// What the collector says of itself in every event of a file; `TrackingEvent` leaves it out.
    repeated: Arc<[String]>,
}

impl Spelling {
    pub(crate) fn new(backend: &str, metadata: &Record) -> Self {
        Spelling { backend: backend.into(), repeated: metadata.keys().cloned().collect() }
    }

    /// The fields in the order of the Python class; the metadata is the caller's to change.
    pub(crate) fn fields<'py>(&self, py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyTuple>> {
        let (head, identity) = (&event.head, &event.head.identity);
        let metadata = PyDict::new(py);
        for (key, value) in &event.metadata.map {
            if !self.repeated.contains(key) {
                metadata.set_item(key, to_python(py, value)?)?;
            }
        }
        let counter = |counter| event.counters.get(counter).into_pyobject(py);
        let fields = [
            (event.timestamp_ns as f64 / 1e9).into_pyobject(py)?.into_any(),
            (&head.event_type).into_pyobject(py)?.into_any(),
            counter(Counter::Allocated)?,
            counter(Counter::Reserved)?,
            event.counters.change().into_pyobject(py)?,
            head.device_id.into_pyobject(py)?.into_any(),
            (&head.session_id).into_pyobject(py)?.into_any(),
            event.context.as_deref().into_pyobject(py)?,
            identity.job_id.as_deref().into_pyobject(py)?,
            identity.rank.into_pyobject(py)?.into_any(),
            identity.local_rank.into_pyobject(py)?.into_any(),
            identity.world_size.into_pyobject(py)?.into_any(),
            metadata.into_any(),
            counter(Counter::Active)?,
            counter(Counter::Inactive)?,
            counter(Counter::Used)?,
            counter(Counter::Free)?,
            counter(Counter::Total)?,
            (&*self.backend).into_pyobject(py)?.into_any(),
        ];
        PyTuple::new(py, fields)
    }
}
