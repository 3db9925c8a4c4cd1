//! Loaded events, held the compact way until Python looks at one.
//!
//! Immutable, so threads may share it. An object is made of the class that the caller names
//! (`stormlog._telemetry.event_list`). Successive events mostly repeat their head: the Python objects made for one are
//! used again for the next, but never those that can be changed.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use stormlog_model::{Event, Head, Metadata};

use crate::record::{HeadObjects, event_object, object_to_python};

/// Events in order, read-only.
#[pyclass(frozen, module = "stormlog._native.telemetry")]
pub(crate) struct EventBuffer {
    events: Vec<Event>,
    // Locked only to copy references out and in, never while Python code may run: it cannot be held by a thread
    // that waits for the interpreter, nor at a fork.
    last: Mutex<Last>,
}

/// What the last event looked at was made of.
#[derive(Default)]
struct Last {
    head: Option<(Arc<Head>, Arc<HeadObjects>)>,
    metadata: Option<(Arc<Metadata>, Py<PyDict>)>,
}

impl EventBuffer {
    pub fn new(mut events: Vec<Event>) -> Self {
        // Readers grow their vector by doubling; up to half of it would stay unused for as long as this lives.
        events.shrink_to_fit();
        EventBuffer { events, last: Mutex::default() }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    fn head(&self, py: Python<'_>, head: &Arc<Head>) -> PyResult<Arc<HeadObjects>> {
        let known = self.with_last(|last| match &last.head {
            Some((of, made)) if Arc::ptr_eq(of, head) => Some(Arc::clone(made)),
            _ => None,
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(HeadObjects::of(py, head)?);
        let entry = Some((Arc::clone(head), Arc::clone(&made)));
        // What was there is dropped outside the lock.
        drop(self.with_last(|last| std::mem::replace(&mut last.head, entry)));
        Ok(made)
    }

    fn metadata<'py>(&self, py: Python<'py>, metadata: &Arc<Metadata>) -> PyResult<Bound<'py, PyDict>> {
        let known = self.with_last(|last| match &last.metadata {
            Some((of, made)) if Arc::ptr_eq(of, metadata) => Some(made.clone_ref(py)),
            _ => None,
        });
        let template = match known {
            Some(known) => known.into_bound(py),
            None => {
                let made = object_to_python(py, &metadata.map)?;
                let entry = Some((Arc::clone(metadata), made.clone().unbind()));
                drop(self.with_last(|last| std::mem::replace(&mut last.metadata, entry)));
                made
            }
        };
        copy_object(&template)
    }

    fn with_last<T>(&self, use_it: impl FnOnce(&mut Last) -> T) -> T {
        use_it(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl EventBuffer {
    fn __len__(&self) -> usize {
        self.events.len()
    }

    /// One event as an object of that class; the metadata is the caller's to change.
    fn event<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        class: &Bound<'py, PyType>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let event =
            self.events.get(index).ok_or_else(|| PyIndexError::new_err("event index out of range"))?;
        let head = self.head(py, &event.head)?;
        event_object(class, event, &head, self.metadata(py, &event.metadata)?)
    }
}

/// A copy down to the last container; keys, texts and numbers are shared.
fn copy_object<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let copy = dict.copy()?;
    for (key, value) in dict.iter() {
        if is_container(&value) {
            copy.set_item(key, copy_value(value)?)?;
        }
    }
    Ok(copy)
}

fn copy_value(value: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(copy_object(dict)?.into_any());
    }
    let Ok(list) = value.cast::<PyList>() else { return Ok(value) };
    let copy = PyList::empty(value.py());
    for inner in list.iter() {
        copy.append(copy_value(inner)?)?;
    }
    Ok(copy.into_any())
}

fn is_container(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyDict>() || value.is_instance_of::<PyList>()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EventBuffer>()
}
