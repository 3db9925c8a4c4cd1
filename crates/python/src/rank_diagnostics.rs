//! The artifacts of a job's ranks and the ranks side by side, behind `stormlog.tui.distributed_diagnostics`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use pyo3::{IntoPyObjectExt, intern};
use stormlog_analyze::rank_diagnostics::{self as rule, Anomaly, RankRow, RankTimeline};
use stormlog_catalog::rank_artifacts::load_rank_artifacts as load;
use stormlog_model::{Capabilities, Counter, Counters, Event, Head, Identity, Metadata, Record, Support};

use crate::analysis::{natural, time_of};
use crate::derived::{memory_feature_enabled, present};
use crate::error::raise;
use crate::events::EventBuffer;
use crate::record::{Foreign, free_form, instance};
use crate::telemetry::LoadedSession;

/// What was loaded from the inputs of a job.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct RankArtifacts {
    sessions: Vec<Py<LoadedSession>>,
    selected: Option<usize>,
    warnings: Vec<String>,
    sources: Vec<OsString>,
}

/// The sessions of absolute paths, joined; `ValueError` where the named one is not among them.
#[pyfunction]
fn load_rank_artifacts(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    session_id: Option<&str>,
) -> PyResult<RankArtifacts> {
    let loaded = py.detach(|| load(&paths, session_id)).map_err(raise)?;
    let session = |session| Py::new(py, LoadedSession::of(py, session)?);
    let sessions: PyResult<_> = loaded.sessions.into_iter().map(session).collect();
    Ok(RankArtifacts {
        sessions: sessions?,
        selected: loaded.selected,
        warnings: loaded.warnings,
        sources: loaded.sources,
    })
}

/// The available ranks that an expression selects.
#[pyfunction]
fn select_ranks(expression: &str, available: BTreeSet<u64>) -> PyResult<BTreeSet<u64>> {
    rule::select_ranks(expression, &available).map_err(raise)
}

/// The ranks of a job; rows and indicators are objects of the caller's classes.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct RankDiagnostics {
    rows: Py<PyList>,
    indicators: Py<PyList>,
    expected_ranks: Vec<u64>,
    present_ranks: Vec<u64>,
    missing_ranks: Vec<u64>,
    timelines: Py<PyDict>,
    warnings: Vec<String>,
}

/// The ranks of events of any shape side by side.
#[pyfunction]
fn diagnose_ranks<'py>(
    row_class: &Bound<'py, PyType>,
    indicator_class: &Bound<'py, PyType>,
    events: &Bound<'py, PyAny>,
    selected: Option<BTreeSet<u64>>,
) -> PyResult<RankDiagnostics> {
    let py = events.py();
    let found = match events.cast::<EventBuffer>() {
        Ok(buffer) => {
            let buffer = buffer.get();
            py.detach(|| rule::diagnose_ranks(buffer.events(), selected.as_ref()))
        }
        Err(_) => {
            let events: PyResult<Vec<Event>> = events.try_iter()?.map(|event| event_of(&event?)).collect();
            let events = events?;
            py.detach(|| rule::diagnose_ranks(&events, selected.as_ref()))
        }
    };
    let rows = PyList::empty(py);
    for row in &found.rows {
        rows.append(row_object(row_class, row)?)?;
    }
    let indicators = PyList::empty(py);
    for indicator in &found.indicators {
        indicators.append(indicator_object(indicator_class, indicator.kind, &indicator.anomaly)?)?;
    }
    let timelines = PyDict::new(py);
    for (rank, timeline) in found.timelines {
        timelines.set_item(rank, series(py, timeline)?)?;
    }
    Ok(RankDiagnostics {
        rows: rows.unbind(),
        indicators: indicators.unbind(),
        expected_ranks: found.expected_ranks,
        present_ranks: found.present_ranks,
        missing_ranks: found.missing_ranks,
        timelines: timelines.unbind(),
        warnings: found.warnings,
    })
}

fn row_object<'py>(class: &Bound<'py, PyType>, row: &RankRow) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let first = row.first_anomaly.as_ref();
    let availability = if row.is_present { "present" } else { "missing" };
    let fields = [
        (intern!(py, "rank"), row.rank.into_bound_py_any(py)?),
        (intern!(py, "availability"), availability.into_bound_py_any(py)?),
        (intern!(py, "samples"), row.samples.into_bound_py_any(py)?),
        (intern!(py, "allocated_delta_bytes"), row.allocated_delta.into_bound_py_any(py)?),
        (intern!(py, "reserved_delta_bytes"), row.reserved_delta.into_bound_py_any(py)?),
        (intern!(py, "device_used_delta_bytes"), row.device_used_delta.into_bound_py_any(py)?),
        (intern!(py, "hidden_gap_latest_bytes"), row.gap_latest.into_bound_py_any(py)?),
        (intern!(py, "hidden_gap_peak_abs_bytes"), row.gap_peak.into_bound_py_any(py)?),
        (intern!(py, "has_anomaly"), first.is_some().into_bound_py_any(py)?),
        (intern!(py, "first_anomaly_timestamp_ns"), first.map(|it| it.timestamp_ns).into_bound_py_any(py)?),
        (intern!(py, "first_anomaly_signal"), first.map(|it| &it.signal).into_bound_py_any(py)?),
        (
            intern!(py, "first_anomaly_phase_path"),
            first.and_then(|it| it.phase_path.as_ref()).into_bound_py_any(py)?,
        ),
    ];
    instance(class, fields)
}

fn indicator_object<'py>(
    class: &Bound<'py, PyType>,
    kind: &str,
    anomaly: &Anomaly,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let fields = [
        (intern!(py, "kind"), kind.into_bound_py_any(py)?),
        (intern!(py, "rank"), anomaly.rank.into_bound_py_any(py)?),
        (intern!(py, "severity"), anomaly.severity.as_str().into_bound_py_any(py)?),
        (intern!(py, "timestamp_ns"), anomaly.timestamp_ns.into_bound_py_any(py)?),
        (intern!(py, "signal"), anomaly.signal.as_str().into_bound_py_any(py)?),
        (intern!(py, "details"), anomaly.details.as_str().into_bound_py_any(py)?),
        (intern!(py, "confidence"), anomaly.confidence.into_bound_py_any(py)?),
        (intern!(py, "reason_codes"), anomaly.reasons.clone().into_bound_py_any(py)?),
        (intern!(py, "phase_path"), anomaly.phase_path.as_deref().into_bound_py_any(py)?),
    ];
    instance(class, fields)
}

fn series(py: Python<'_>, timeline: RankTimeline) -> PyResult<Bound<'_, PyDict>> {
    let named = PyDict::new(py);
    match timeline {
        RankTimeline::Allocator { timestamps_ns, allocated, reserved, gap } => {
            named.set_item("timestamps_ns", timestamps_ns)?;
            named.set_item("allocated", allocated)?;
            named.set_item("reserved", reserved)?;
            named.set_item("gap", gap)?;
        }
        RankTimeline::Device { timestamps_ns, device_used } => {
            named.set_item("timestamps_ns", timestamps_ns)?;
            named.set_item("device_used", device_used)?;
        }
    }
    Ok(named)
}

/// An event of Python's as far as the rules look at it; one of schema 2 has no session.
fn event_of(event: &Bound<'_, PyAny>) -> PyResult<Event> {
    let text = |name: &str| -> PyResult<Option<String>> {
        present(event, name)?.map(|value| Ok(value.str()?.to_string_lossy().into_owned())).transpose()
    };
    let mut counters = Counters::UNKNOWN;
    for (counter, name) in [
        (Counter::Allocated, "allocator_allocated_bytes"),
        (Counter::Reserved, "allocator_reserved_bytes"),
        (Counter::Inactive, "allocator_inactive_bytes"),
        (Counter::Used, "device_used_bytes"),
        (Counter::Total, "device_total_bytes"),
    ] {
        counters.set(counter, natural(event, name)?);
    }
    let mut capabilities = Capabilities::default();
    for support in [Support::FragmentationAnalysis, Support::AllocatorInactive] {
        if memory_feature_enabled(event, support.name())? {
            capabilities = capabilities.with(support);
        }
    }
    let map = match present(event, "metadata")? {
        Some(metadata) => free_form(&metadata, Foreign::Opaque).unwrap_or_default(),
        None => Record::new(),
    };
    let number = |name: &str| Ok::<_, PyErr>(natural(event, name)?.unwrap_or(0));
    let head = Head {
        session_id: text("session_id")?.unwrap_or_default(),
        event_type: text("event_type")?.unwrap_or_default(),
        collector: String::new(),
        sampling_interval_ms: 0,
        pid: -1,
        host: String::new(),
        identity: Identity {
            job_id: None,
            rank: number("rank")?,
            local_rank: number("local_rank")?,
            world_size: number("world_size")?,
        },
        device_id: 0,
    };
    Ok(Event {
        timestamp_ns: time_of(event)?,
        counters,
        context: text("context")?.map(Into::into),
        head: Arc::new(head),
        metadata: Arc::new(Metadata { map, capabilities, inferred: false }),
    })
}

pub(crate) fn register_artifacts(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RankArtifacts>()?;
    module.add_function(wrap_pyfunction!(load_rank_artifacts, module)?)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RankDiagnostics>()?;
    module.add_function(wrap_pyfunction!(select_ranks, module)?)?;
    module.add_function(wrap_pyfunction!(diagnose_ranks, module)?)
}
