//! Questions to loaded events that need no object an event: where to look, who is there, the highest, the gaps.
//!
//! For `stormlog.query`, which makes rows only of what is left. [`likely_events`] must never leave out an event that is asked for;
//! what it gives too much is sorted out by the caller, whose rules are 0.4.3's to the letter.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_model::{Counter, Event, Metadata};

use crate::events::EventBuffer;

/// A key of the metadata, and the values asked for in it, in lower case; any where there are none.
type Said = (String, Option<Vec<String>>);

/// Session, rank, highest value, and when it was first reached.
type Peak = (String, u64, u64, u64);

/// Session, rank, moment and size of the first gap, of the last one, the largest, how many.
type Gaps = (String, u64, u64, i128, u64, i128, i128, u64);

/// Where events may lie that are of one of the types or say one of the things, of the rank and in the time. `None` is any.
#[pyfunction]
fn likely_events(
    buffer: &EventBuffer,
    types: Option<Vec<String>>,
    said: Vec<Said>,
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
        // What is no text may still become one.
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

/// Whether events are in the order of time, those of one moment in that of their sessions.
#[pyfunction]
fn are_in_order(buffer: &EventBuffer) -> bool {
    buffer.events().is_sorted_by(|a, b| {
        a.timestamp_ns < b.timestamp_ns
            || (a.timestamp_ns == b.timestamp_ns && a.head.session_id <= b.head.session_id)
    })
}

/// The highest value of a counter in each session and rank.
#[pyfunction]
fn counter_peaks(buffer: &EventBuffer, counter: &str) -> PyResult<Vec<Peak>> {
    let counter = match counter {
        "allocator_allocated_bytes" => Counter::Allocated,
        "allocator_reserved_bytes" => Counter::Reserved,
        "device_used_bytes" => Counter::Used,
        other => return Err(PyValueError::new_err(format!("{other} has no peak"))),
    };
    let mut best: Vec<(&Event, u64)> = Vec::new();
    for event in buffer.events() {
        let Some(value) = event.counter(counter) else { continue };
        match best.iter_mut().rev().find(|(known, _)| is_same(known, event)) {
            Some((known, highest)) => {
                let is_earlier = value == *highest && event.timestamp_ns < known.timestamp_ns;
                if value > *highest || is_earlier {
                    (*known, *highest) = (event, value);
                }
            }
            None => best.push((event, value)),
        }
    }
    let peak = |(event, value): (&Event, u64)| {
        (event.head.session_id.clone(), event.head.identity.rank, value, event.timestamp_ns)
    };
    Ok(best.into_iter().map(peak).collect())
}

/// What a device uses beyond what its allocator holds, in each session and rank: at first, at last, at most.
#[pyfunction]
fn hidden_gaps(buffer: &EventBuffer) -> Vec<Gaps> {
    let mut found: Vec<(&Event, Gaps)> = Vec::new();
    for event in buffer.events().iter().filter(|event| event.head.event_type == "sample") {
        let counters = (event.counter(Counter::Used), event.counter(Counter::Reserved));
        let (Some(used), Some(reserved)) = counters else { continue };
        let (at_ns, gap) = (event.timestamp_ns, i128::from(used) - i128::from(reserved));
        match found.iter_mut().rev().find(|(known, _)| is_same(known, event)) {
            Some((_, (_, _, first_ns, first, last_ns, last, most, count))) => {
                if at_ns < *first_ns {
                    (*first_ns, *first) = (at_ns, gap);
                }
                if at_ns >= *last_ns {
                    (*last_ns, *last) = (at_ns, gap);
                }
                *most = gap.max(*most);
                *count += 1;
            }
            None => {
                let head = &event.head;
                let gaps = (head.session_id.clone(), head.identity.rank, at_ns, gap, at_ns, gap, gap, 1);
                found.push((event, gaps));
            }
        }
    }
    found.into_iter().map(|(_, gaps)| gaps).collect()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(likely_events, module)?)?;
    module.add_function(wrap_pyfunction!(first_events, module)?)?;
    module.add_function(wrap_pyfunction!(are_in_order, module)?)?;
    module.add_function(wrap_pyfunction!(counter_peaks, module)?)?;
    module.add_function(wrap_pyfunction!(hidden_gaps, module)?)
}
