//! The append-only sink and its rollups.
//!
//! The one class here that keeps state: the sink itself, which guards it with its own lock and makes a new one after
//! a fork. The GIL is released for every call that may wait for that lock or for a disk, and the sink's thread
//! never enters it; what it has to say waits until Python asks. Rollups cross in their object form.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde_json::Value;
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_store::sink::{
    self, Observation, RollupBuilder, RollupFile, SinkConfig, SinkError, manifest_path, segment_paths,
};

use crate::error::raise;
use crate::record::{Foreign, free_form, to_python};
use crate::session::{GivenSession, Session};

/// One segment as the manifest lists it.
#[pyclass(frozen, get_all, module = "stormlog._native.sink")]
#[derive(Clone)]
struct SinkSegment {
    filename: String,
    event_count: u64,
    size_bytes: u64,
    closed: bool,
    session_id: Option<String>,
}

/// The sessions and segments of a sink.
#[pyclass(frozen, get_all, module = "stormlog._native.sink")]
struct SinkManifest {
    schema_version: u64,
    format: String,
    sessions: Vec<Session>,
    segments: Vec<SinkSegment>,
}

/// Appends records to a directory of segments.
#[pyclass(frozen, module = "stormlog._native.sink")]
struct Sink {
    sink: sink::Sink,
}

#[pymethods]
impl Sink {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyAny>, host: String) -> PyResult<Self> {
        let config = sink_config(settings)?;
        let sink = py.detach(|| sink::Sink::open(config, host)).map_err(raise)?;
        Ok(Sink { sink })
    }

    /// Makes a session the active one, unless one is.
    fn start_session(&self, py: Python<'_>, summary: Option<GivenSession>) -> PyResult<Session> {
        let summary = summary.map(|given| given.in_state(SessionStatus::Running));
        py.detach(|| self.sink.start_session(summary)).map(Session::from).map_err(raise)
    }

    /// The active session.
    fn current_session(&self, py: Python<'_>) -> Option<Session> {
        py.detach(|| self.sink.current_session()).map(Session::from)
    }

    /// Appends the text of one record. True when warnings wait.
    fn append(&self, py: Python<'_>, line: &str, session_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let id = match session_id.cast::<PyString>() {
            Ok(text) => Some(text.to_str()?),
            Err(_) if session_id.is_none() => None,
            Err(_) => return Err(raise(SinkError::SessionNotText { found: session_id.to_string() })),
        };
        py.detach(|| self.sink.append(line, id)).map_err(raise)
    }

    /// Writes what waits; without `force` only when it is time.
    fn flush(&self, py: Python<'_>, force: bool) -> PyResult<()> {
        py.detach(|| self.sink.flush(force)).map_err(raise)
    }

    /// Flushes, ends the session, writes the rollups.
    fn close(&self, py: Python<'_>, session_status: &str) -> PyResult<()> {
        let status = SessionStatus::parse(&Value::from(session_status)).map_err(raise)?;
        py.detach(|| self.sink.close(status)).map_err(raise)
    }

    /// Counters of rollover and retention.
    fn diagnostics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let seen = py.detach(|| self.sink.diagnostics());
        let counters = PyDict::new(py);
        counters.set_item("rollover_count", seen.rollover_count)?;
        counters.set_item("pruned_segment_count", seen.pruned_segment_count)?;
        counters.set_item("pruned_bytes", seen.pruned_bytes)?;
        counters.set_item("final_retained_files", seen.final_retained_files)?;
        counters.set_item("final_retained_bytes", seen.final_retained_bytes)?;
        Ok(counters)
    }

    /// Counters of the buffer and of failures.
    fn failure_diagnostics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let seen = py.detach(|| self.sink.failure_diagnostics());
        let counters = PyDict::new(py);
        counters.set_item("buffered_records", seen.buffered_records)?;
        counters.set_item("buffered_bytes", seen.buffered_bytes)?;
        counters.set_item("dropped_records", seen.dropped_records)?;
        counters.set_item("dropped_bytes", seen.dropped_bytes)?;
        counters.set_item("flush_failures", seen.flush_failures)?;
        counters.set_item("consecutive_flush_failures", seen.consecutive_flush_failures)?;
        counters.set_item("last_flush_error", seen.last_flush_error)?;
        Ok(counters)
    }

    /// What there was to warn of since the last time.
    fn take_warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.sink.take_warnings())
    }
}

/// Raises `ValueError` for the first setting that breaks its rule.
#[pyfunction]
fn check_sink_settings(settings: &Bound<'_, PyAny>) -> PyResult<()> {
    sink_config(settings)?.check().map_err(raise)
}

/// The manifest of a sink; `None` if it cannot be read.
#[pyfunction]
fn read_sink_manifest(py: Python<'_>, path: PathBuf) -> Option<SinkManifest> {
    let manifest = py.detach(|| sink::read_manifest(&path))?;
    let segments = manifest.segments.into_iter().map(|segment| SinkSegment {
        filename: segment.filename,
        event_count: segment.event_count,
        size_bytes: segment.size_bytes,
        closed: segment.closed,
        session_id: segment.session_id,
    });
    Some(SinkManifest {
        schema_version: manifest.schema_version,
        format: manifest.format,
        sessions: manifest.sessions.into_iter().map(Session::from).collect(),
        segments: segments.collect(),
    })
}

/// The manifest a path belongs to.
#[pyfunction]
fn sink_manifest_path(py: Python<'_>, path: PathBuf) -> Option<PathBuf> {
    py.detach(|| manifest_path(&path))
}

/// The segments of the sink a path is or names, in order.
#[pyfunction]
fn sink_segment_paths(py: Python<'_>, path: PathBuf) -> Vec<PathBuf> {
    py.detach(|| segment_paths(&path))
}

/// Where the rollups of the sink are that a path belongs to.
#[pyfunction]
fn sink_rollup_path(py: Python<'_>, path: PathBuf) -> PathBuf {
    py.detach(|| sink::rollup_path(&path))
}

/// A sink's rollups in their object form, if they are whole and cover its segments.
#[pyfunction]
fn read_rollups(py: Python<'_>, path: PathBuf) -> PyResult<Option<Bound<'_, PyAny>>> {
    let rollups = py.detach(|| sink::read_rollups(&path));
    rollups.map(|rollups| object_form(py, &rollups)).transpose()
}

/// The object form of rollups once more, checked: `ValueError` names what is wrong.
#[pyfunction]
fn check_rollups<'py>(py: Python<'py>, payload: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let record = free_form(payload, Foreign::Opaque)?;
    object_form(py, &RollupFile::from_record(&record).map_err(raise)?)
}

fn object_form<'py>(py: Python<'py>, rollups: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &serde_json::to_value(rollups).map_err(raise)?)
}

/// Puts the text of rollups in place; returns where.
#[pyfunction]
fn write_rollups(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<PathBuf> {
    py.detach(|| sink::write_rollup_text(&path, text.as_bytes())).map_err(raise)
}

/// The rollup of a session's events in its object form; the summary in it is not the session's own.
#[pyfunction]
fn rollup_session<'py>(
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    events: &Bound<'py, PyAny>,
    sources: Vec<String>,
    warnings: Vec<String>,
    window_ns: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let mut builder = RollupBuilder::new(started_at_ns, window_ns);
    let mut budget = RollupBuilder::budget();
    for event in events.try_iter()? {
        observe(&mut builder, &event?, &mut budget)?;
    }
    // The caller puts its own summary in the place of this one.
    let summary = SessionSummary {
        session_id: String::new(),
        status: SessionStatus::Running,
        started_at_ns,
        ended_at_ns,
        host: String::new(),
        pid: 0,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: String::new(),
    };
    let rollup = builder.finish(summary, sources, warnings);
    object_form(events.py(), &rollup)
}

fn observe(builder: &mut RollupBuilder, event: &Bound<'_, PyAny>, budget: &mut usize) -> PyResult<()> {
    let event_type: String = event.getattr("event_type")?.extract()?;
    let metadata = event.getattr("metadata")?;
    let text = |key: &str| -> PyResult<Option<String>> {
        let value = metadata.call_method1("get", (key,))?;
        Ok(value.cast::<PyString>().ok().map(|text| text.to_string_lossy().into_owned()))
    };
    let (severity, health_status) = (text("severity")?, text("collector_health_status")?);
    let is_error = event_type == "error";
    let has_oom_mark =
        is_error && (metadata.contains("oom_reason")? || metadata.contains("oom_dump_path")?);
    let oom_dump_path = if has_oom_mark { text("oom_dump_path")? } else { None };
    let observation = Observation {
        timestamp_ns: event.getattr("timestamp_ns")?.extract()?,
        event_type: &event_type,
        rank: event.getattr("rank")?.extract()?,
        local_rank: event.getattr("local_rank")?.extract()?,
        world_size: event.getattr("world_size")?.extract()?,
        device_id: event.getattr("device_id")?.extract()?,
        allocated: event.getattr("allocator_allocated_bytes")?.extract()?,
        reserved: event.getattr("allocator_reserved_bytes")?.extract()?,
        used: event.getattr("device_used_bytes")?.extract()?,
        severity: severity.as_deref(),
        health_status: health_status.as_deref(),
        has_oom_mark,
        oom_dump_path: oom_dump_path.as_deref(),
    };
    builder.observe(&observation, budget).map_err(raise)
}

/// The settings of a `TelemetrySinkConfig`, by its attributes.
///
/// Of the limits, negative ones are 0, which no rule accepts; fractions count up, as comparing with them would.
pub(crate) fn sink_config(given: &Bound<'_, PyAny>) -> PyResult<SinkConfig> {
    let count = |name: &str| -> PyResult<u64> {
        let value = given.getattr(name)?;
        value.extract::<u64>().or_else(|_| Ok(value.extract::<f64>()?.ceil() as u64))
    };
    let seconds = |name: &str| -> PyResult<f64> { given.getattr(name)?.extract() };
    let buffer = given.getattr("max_buffer_bytes")?;
    Ok(SinkConfig {
        root_dir: given.getattr("root_dir")?.extract::<PathBuf>()?,
        flush_every_events: count("flush_every_events")?,
        flush_every_seconds: seconds("flush_every_seconds")?,
        rollover_max_bytes: count("rollover_max_bytes")?,
        rollover_max_events: count("rollover_max_events")?,
        retention_max_files: count("retention_max_files")?,
        retention_max_total_bytes: count("retention_max_total_bytes")?,
        write_rollups: given.getattr("write_rollups")?.is_truthy()?,
        rollup_window_seconds: count("rollup_window_seconds")?,
        max_buffer_bytes: if buffer.is_none() { None } else { Some(count("max_buffer_bytes")?) },
        failure_backoff_seconds: seconds("failure_backoff_seconds")?,
        failure_backoff_max_seconds: seconds("failure_backoff_max_seconds")?,
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sink>()?;
    module.add_class::<SinkManifest>()?;
    module.add_class::<SinkSegment>()?;
    module.add_function(wrap_pyfunction!(check_sink_settings, module)?)?;
    module.add_function(wrap_pyfunction!(read_sink_manifest, module)?)?;
    module.add_function(wrap_pyfunction!(sink_manifest_path, module)?)?;
    module.add_function(wrap_pyfunction!(sink_segment_paths, module)?)?;
    module.add_function(wrap_pyfunction!(sink_rollup_path, module)?)?;
    module.add_function(wrap_pyfunction!(read_rollups, module)?)?;
    module.add_function(wrap_pyfunction!(check_rollups, module)?)?;
    module.add_function(wrap_pyfunction!(write_rollups, module)?)?;
    module.add_function(wrap_pyfunction!(rollup_session, module)?)
}
