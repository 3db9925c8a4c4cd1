//! Where to look among loaded events, without an object for each: for the landmarks of a timeline.
//!
//! [`likely_events`] must never leave out an event that is requested;
//! what it gives too much is sorted out by the caller, whose rules are 0.4.3's to the letter.

use std::sync::Arc;

use pyo3::prelude::*;
use serde_json::Value;
use stormlog_model::{Event, Metadata};

use crate::events::EventBuffer;

/// A key of the metadata, and the values asked for in it, in lower case; any where there are none.
type MetadataFilter = (String, Option<Vec<String>>);

/// The ranges that may contain events of one of the types or with one of the texts, of the rank and in the time range. `None` is any.
#[pyfunction]
fn likely_events(
    buffer: &EventBuffer,
    types: Option<Vec<String>>,
    said: Vec<MetadataFilter>,
    rank: Option<u64>,
    time_ns: (Option<u64>, Option<u64>),
) -> Vec<usize> {
    let (start_ns, end_ns) = (time_ns.0.unwrap_or(0), time_ns.1.unwrap_or(u64::MAX));
    let is_any = types.is_none() && said.is_empty();
    let types = types.unwrap_or_default();
    // Events that follow each other mostly share their metadata: it is searched once.
    let mut last: Option<(&Arc<Metadata>, bool)> = None;
    let mut found = Vec::new();
    for (place, event) in buffer.events().iter().enumerate() {
        let head = &event.head;
        if !(start_ns..=end_ns).contains(&event.timestamp_ns)
            || rank.is_some_and(|rank| rank != head.identity.rank)
        {
            continue;
        }
        let is_likely = is_any || types.iter().any(|wanted| wanted == head.event_type.trim()) || {
            let says = match last {
                Some((known, says)) if Arc::ptr_eq(known, &event.metadata) => says,
                _ => said.iter().any(|(key, values)| says(&event.metadata, key, values.as_deref())),
            };
            last = Some((&event.metadata, says));
            says
        };
        if is_likely {
            found.push(place);
        }
    }
    found
}

fn says(metadata: &Metadata, key: &str, values: Option<&[String]>) -> bool {
    match (metadata.map.get(key), values) {
        (None, _) => false,
        (Some(Value::String(text)), Some(values)) => values.contains(&text.trim().to_lowercase()),
        // What is not text may still become one.
        (Some(_), _) => true,
    }
}

/// The first event of each session and rank.
#[pyfunction]
fn first_events(buffer: &EventBuffer) -> Vec<usize> {
    let events = buffer.events();
    let mut firsts: Vec<usize> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        if !firsts.iter().rev().any(|first| is_same(&events[*first], event)) {
            firsts.push(place);
        }
    }
    firsts
}

fn is_same(one: &Event, other: &Event) -> bool {
    let (a, b) = (&one.head, &other.head);
    Arc::ptr_eq(a, b) || (a.session_id == b.session_id && a.identity.rank == b.identity.rank)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(likely_events, module)?)?;
    module.add_function(wrap_pyfunction!(first_events, module)?)
}
