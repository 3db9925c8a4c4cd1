//! Loaded events, held the compact way until Python looks at one.
//!
//! Immutable, so threads may share it. It knows nothing of the Python event class: it gives field tuples, and
//! `stormlog._event_list` makes objects of them.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stormlog_event::Event;

use crate::record::{fields, object_to_python};

/// Events in order, read-only.
#[pyclass(frozen, module = "stormlog._native")]
pub(crate) struct EventBuffer {
    events: Vec<Event>,
}

impl EventBuffer {
    pub fn new(mut events: Vec<Event>) -> Self {
        // Readers grow their vector by doubling; up to half of it would stay unused for as long as this lives.
        events.shrink_to_fit();
        EventBuffer { events }
    }
}

#[pymethods]
impl EventBuffer {
    fn __len__(&self) -> usize {
        self.events.len()
    }

    /// The fields of one event in the order of the Python class; the metadata is the caller's to change.
    fn fields<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyTuple>> {
        let event =
            self.events.get(index).ok_or_else(|| PyIndexError::new_err("event index out of range"))?;
        fields(py, event, object_to_python(py, &event.metadata.map)?)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EventBuffer>()
}
