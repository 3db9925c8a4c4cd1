//! Phases rebuilt from events, for `stormlog.phases`: the rules of `stormlog_analyze::phases` for events and spans of any class.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use stormlog_analyze::phases::{
    self, Boundary, Intervals, PhaseAttribution as Found, PhaseRecord, PhaseScope, SCOPE_KEY, Span,
};

use crate::events::EventBuffer;
use crate::record::{Foreign, free_form};

/// A boundary of a phase, as an event states it.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct PhaseBoundary {
    action: &'static str,
    name: String,
    path: Vec<String>,
    scope_id: String,
    parent_scope_id: Option<String>,
    thread_id: i64,
    thread_name: String,
    sequence: i64,
}

/// A phase from its beginning to its end, on its way to Python.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct ReplayedPhase {
    session_id: String,
    rank: i64,
    thread_id: i64,
    thread_name: String,
    scope_id: String,
    path: Vec<String>,
    start_ns: u64,
    end_ns: u64,
    sequence: i64,
    synthetic_end: bool,
}

/// A `stormlog.phases.PhaseSpan` of the caller, as far as an attribution depends on it.
#[derive(FromPyObject)]
struct GivenSpan {
    thread_id: i64,
    thread_name: String,
    scope_id: String,
    path: Vec<String>,
    sequence: i64,
}

/// A `stormlog.phases.PhaseAttribution` of the caller.
#[derive(FromPyObject)]
struct GivenAttribution {
    phase_resolution: String,
    phase_path: Option<String>,
    phase_paths: Vec<String>,
    scope_id: Option<String>,
    thread_id: Option<i64>,
}

/// The phase of a moment; `unique` where it is one.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct PhaseAttribution {
    unique: bool,
    source: Option<&'static str>,
    paths: Vec<String>,
    scope_id: Option<String>,
    thread_id: Option<i64>,
    thread_name: Option<String>,
    likely: Option<String>,
}

/// Takes events one by one, or a buffer of them, and gives their phases.
#[pyclass(module = "stormlog._native.analysis")]
#[derive(Default)]
struct PhaseReplay {
    records: BTreeMap<(String, i64), PhaseRecord>,
}

#[pymethods]
impl PhaseReplay {
    #[new]
    fn new() -> Self {
        PhaseReplay::default()
    }

    /// Takes an event, with its scope where it has one. One whose time no record could have has no part.
    fn observe(
        &mut self,
        session_id: String,
        rank: i64,
        timestamp_ns: &Bound<'_, PyAny>,
        event_type: &str,
        scope: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Ok(at_ns) = timestamp_ns.extract::<u64>() else { return Ok(()) };
        let found = scope.map(|scope| boundary(event_type, scope)).transpose()?.flatten();
        self.records.entry((session_id, rank)).or_default().add(at_ns, found);
        Ok(())
    }

    /// Takes loaded events.
    fn observe_buffer(&mut self, buffer: &EventBuffer) {
        let mut last: Option<(&str, i64, PhaseRecord)> = None;
        for event in buffer.events() {
            let (session_id, rank) = (event.head.session_id.as_str(), event.head.identity.rank as i64);
            // Events that follow each other mostly are of one session and rank: looked up once.
            if !matches!(&last, Some((session, of, _)) if (*session, *of) == (session_id, rank)) {
                self.put_back(last.take());
                let known = self.records.remove(&(session_id.to_owned(), rank));
                last = Some((session_id, rank, known.unwrap_or_default()));
            }
            if let Some((_, _, record)) = &mut last {
                let scope = event.metadata.map.get(SCOPE_KEY).and_then(serde_json::Value::as_object);
                let found = scope.and_then(|scope| Boundary::of(&event.head.event_type, scope));
                record.add(event.timestamp_ns, found);
            }
        }
        self.put_back(last);
    }

    /// The phases by session and rank, in the order in which they were left; groups without one that was left come last.
    fn phases(&mut self) -> Vec<ReplayedPhase> {
        let mut groups: Vec<((String, i64), Vec<Span>)> = std::mem::take(&mut self.records)
            .into_iter()
            .map(|(key, record)| (key, record.spans()))
            .collect();
        groups.sort_by_key(|(_, spans)| spans.first().is_none_or(|span| span.is_open));
        let phases = groups.into_iter().flat_map(|((session_id, rank), spans)| {
            spans.into_iter().map(move |span| ReplayedPhase {
                session_id: session_id.clone(),
                rank,
                thread_id: span.thread_id,
                thread_name: span.thread_name,
                scope_id: span.scope_id,
                path: span.parts,
                start_ns: span.from_ns,
                end_ns: span.to_ns,
                sequence: span.sequence,
                synthetic_end: span.is_open,
            })
        });
        phases.collect()
    }
}

impl PhaseReplay {
    fn put_back(&mut self, last: Option<(&str, i64, PhaseRecord)>) {
        if let Some((session_id, rank, record)) = last {
            self.records.insert((session_id.to_owned(), rank), record);
        }
    }
}

/// Spans (start, end) in the order of their starts, to be asked by time.
#[pyclass(frozen, module = "stormlog._native.analysis")]
struct PhaseIntervals {
    intervals: Intervals<i128>,
}

#[pymethods]
impl PhaseIntervals {
    #[new]
    fn new(bounds: Vec<(i128, i128)>) -> Self {
        PhaseIntervals { intervals: Intervals::of(bounds) }
    }

    /// The numbers of the spans that a moment is in.
    fn at(&self, timestamp_ns: i128) -> Vec<usize> {
        self.intervals.at(timestamp_ns)
    }
}

/// The boundary of an event of that type with that scope; `None` when it is none, or not whole.
#[pyfunction]
fn phase_boundary(event_type: &str, scope: &Bound<'_, PyAny>) -> PyResult<Option<PhaseBoundary>> {
    Ok(boundary(event_type, scope)?.map(|found| PhaseBoundary {
        action: if found.enters { "enter" } else { "exit" },
        name: found.name,
        path: found.parts,
        scope_id: found.scope_id,
        parent_scope_id: found.parent_scope_id,
        thread_id: found.thread_id,
        thread_name: found.thread_name,
        sequence: found.sequence,
    }))
}

fn boundary(event_type: &str, scope: &Bound<'_, PyAny>) -> PyResult<Option<Boundary>> {
    // Attributes are the caller's own, and may hold anything.
    Ok(Boundary::of(event_type, &free_form(scope, Foreign::Opaque)?))
}

/// The phase among spans that were open at one moment.
#[pyfunction]
fn attribute_phases(
    spans: Vec<GivenSpan>,
    thread_id: Option<i64>,
    scope_id: Option<&str>,
) -> Option<PhaseAttribution> {
    let spans: Vec<Span> = spans
        .into_iter()
        .map(|span| Span {
            from_ns: 0,
            to_ns: 0,
            depth: span.path.len(),
            sequence: span.sequence,
            thread_id: span.thread_id,
            thread_name: span.thread_name,
            scope_id: span.scope_id,
            path: span.path.join(" / "),
            parts: span.path,
            label: String::new(),
            is_open: false,
        })
        .collect();
    let found = phases::attribute(&spans.iter().collect::<Vec<_>>(), thread_id, scope_id)?;
    let scope = found.unique;
    Some(PhaseAttribution {
        unique: scope.is_some(),
        source: scope.as_ref().map(|scope| scope.source),
        scope_id: scope.as_ref().map(|scope| scope.scope_id.clone()),
        thread_id: scope.as_ref().map(|scope| scope.thread_id),
        thread_name: scope.map(|scope| scope.thread_name),
        paths: found.paths,
        likely: found.likely,
    })
}

/// The paths of two attributions of one stretch; `None` where both are the one phase of the one thread.
#[pyfunction]
fn merge_phases(first: GivenAttribution, second: GivenAttribution) -> Option<Vec<String>> {
    let merged = Found::merged(Some(first.into()), Some(second.into()))?;
    merged.unique.is_none().then_some(merged.paths)
}

impl From<GivenAttribution> for Found {
    fn from(given: GivenAttribution) -> Self {
        let is_unique = given.phase_resolution == "unique";
        let unique = is_unique.then(|| PhaseScope {
            source: "heuristic",
            scope_id: given.scope_id.unwrap_or_default(),
            thread_id: given.thread_id.unwrap_or_default(),
            thread_name: String::new(),
        });
        let paths = if given.phase_paths.is_empty() {
            given.phase_path.into_iter().collect()
        } else {
            given.phase_paths
        };
        Found {
            unique,
            paths: paths.into_iter().filter(|path: &String| !path.is_empty()).collect(),
            likely: None,
        }
    }
}

/// A resolution as people read it.
#[pyfunction]
fn phase_label(is_unique: bool, path: Option<&str>, paths: Vec<String>) -> Option<String> {
    phases::label(is_unique, path, &paths)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PhaseBoundary>()?;
    module.add_class::<ReplayedPhase>()?;
    module.add_class::<PhaseAttribution>()?;
    module.add_class::<PhaseReplay>()?;
    module.add_class::<PhaseIntervals>()?;
    module.add_function(wrap_pyfunction!(phase_boundary, module)?)?;
    module.add_function(wrap_pyfunction!(attribute_phases, module)?)?;
    module.add_function(wrap_pyfunction!(merge_phases, module)?)?;
    module.add_function(wrap_pyfunction!(phase_label, module)?)
}
