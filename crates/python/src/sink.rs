//! The append-only sink and its rollups.
//!
//! The one class here that keeps state: the sink itself, which guards it with its own lock and makes a new one after
//! a fork. The interpreter is let go for every call that may wait for that lock or for a disk, and the sink's thread
//! never enters it; what it has to say waits until Python asks. Rollups cross as JSON text.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde_json::Value;
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_store::sink::{
    self, Observation, RollupBuilder, RollupFile, SinkConfig, SinkError, manifest_path, segment_paths,
};

use crate::error::raise;
use crate::session::{SummaryFields, summary_fields};

/// The settings in the order of `TelemetrySinkConfig`.
type Settings<'py> = (
    PathBuf,
    Bound<'py, PyAny>,
    f64,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
    f64,
    f64,
);
/// The fields of a summary, taken as they are: one made by hand breaks rules that files must keep.
type GivenSummary = (String, String, i64, Option<i64>, String, i64, Option<String>, i64, i64, i64, String);
/// Filename, events, bytes, closed, session.
type SegmentFields = (String, u64, u64, bool, Option<String>);

/// Appends records to a directory of segments.
#[pyclass(frozen, module = "stormlog._native.sink")]
struct Sink {
    sink: sink::Sink,
}

#[pymethods]
impl Sink {
    #[new]
    fn new(py: Python<'_>, settings: Settings<'_>, host: String) -> PyResult<Self> {
        let config = config(settings)?;
        let sink = py.detach(|| sink::Sink::open(config, host)).map_err(raise)?;
        Ok(Sink { sink })
    }

    /// Makes a session the active one, unless one is.
    fn start_session<'py>(
        &self,
        py: Python<'py>,
        summary: Option<GivenSummary>,
    ) -> PyResult<SummaryFields<'py>> {
        let summary = summary.map(given_summary);
        let started = py.detach(|| self.sink.start_session(summary)).map_err(raise)?;
        summary_fields(py, &started)
    }

    /// The active session.
    fn current_session<'py>(&self, py: Python<'py>) -> PyResult<Option<SummaryFields<'py>>> {
        let current = py.detach(|| self.sink.current_session());
        current.map(|summary| summary_fields(py, &summary)).transpose()
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
fn check_sink_settings(settings: Settings<'_>) -> PyResult<()> {
    config(settings)?.check().map_err(raise)
}

/// Schema, format, sessions and segments of a sink's manifest.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple is what crosses; the Python class names its parts")]
fn read_sink_manifest(
    py: Python<'_>,
    path: PathBuf,
) -> PyResult<Option<(u64, String, Vec<SummaryFields<'_>>, Vec<SegmentFields>)>> {
    let Some(manifest) = py.detach(|| sink::read_manifest(&path)) else { return Ok(None) };
    let sessions = manifest.sessions.iter().map(|summary| summary_fields(py, summary));
    let segments = manifest
        .segments
        .into_iter()
        .map(|it| (it.filename, it.event_count, it.size_bytes, it.closed, it.session_id));
    Ok(Some((
        manifest.schema_version,
        manifest.format,
        sessions.collect::<PyResult<_>>()?,
        segments.collect(),
    )))
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

/// The text of a sink's rollups, if they are whole and cover its segments.
#[pyfunction]
fn read_rollups(py: Python<'_>, path: PathBuf) -> Option<String> {
    py.detach(|| sink::read_rollups(&path).map(|rollups| text_of(&rollups.to_text())))
}

/// The text of rollups once more, checked: `ValueError` names what is wrong.
#[pyfunction]
fn check_rollups(py: Python<'_>, text: &str) -> PyResult<String> {
    py.detach(|| {
        let wrong = |error: serde_json::Error| SinkError::Rollup(error.to_string());
        let record = serde_json::from_str(text).map_err(wrong)?;
        RollupFile::from_record(&record).map(|rollups| text_of(&rollups.to_text()))
    })
    .map_err(raise)
}

/// Puts the text of rollups in place; returns where.
#[pyfunction]
fn write_rollups(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<PathBuf> {
    py.detach(|| sink::write_rollup_text(&path, text.as_bytes())).map_err(raise)
}

/// The rollup of a session's events, as text; the summary in it is not the session's own.
#[pyfunction]
fn rollup_session(
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    events: &Bound<'_, PyAny>,
    sources: Vec<String>,
    warnings: Vec<String>,
    window_ns: u64,
) -> PyResult<String> {
    let mut builder = RollupBuilder::new(started_at_ns, window_ns);
    let mut budget = RollupBuilder::budget();
    for event in events.try_iter()? {
        observe(&mut builder, &event?, &mut budget)?;
    }
    let nobody = (
        String::new(),
        String::new(),
        started_at_ns,
        ended_at_ns,
        String::new(),
        0,
        None,
        0,
        0,
        1,
        String::new(),
    );
    let rollup = builder.finish(given_summary(nobody), sources, warnings);
    serde_json::to_string(&rollup).map_err(|error| PyValueError::new_err(error.to_string()))
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

fn config(settings: Settings<'_>) -> PyResult<SinkConfig> {
    let (root_dir, flush_events, flush_seconds, roll_bytes, roll_events, keep_files, ..) = &settings;
    let (.., keep_bytes, rollups, window, buffer, backoff, longest) = &settings;
    Ok(SinkConfig {
        root_dir: root_dir.clone(),
        flush_every_events: count(flush_events)?,
        flush_every_seconds: *flush_seconds,
        rollover_max_bytes: count(roll_bytes)?,
        rollover_max_events: count(roll_events)?,
        retention_max_files: count(keep_files)?,
        retention_max_total_bytes: count(keep_bytes)?,
        write_rollups: rollups.is_truthy()?,
        rollup_window_seconds: count(window)?,
        max_buffer_bytes: buffer.as_ref().map(count).transpose()?,
        failure_backoff_seconds: *backoff,
        failure_backoff_max_seconds: *longest,
    })
}

/// A limit: negative ones are 0, which no rule lets pass; fractions count up, as comparing with them would.
fn count(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    match value.extract::<u64>() {
        Ok(count) => Ok(count),
        Err(_) => Ok(value.extract::<f64>()?.ceil() as u64),
    }
}

fn given_summary(given: GivenSummary) -> SessionSummary {
    let (session_id, _, started_at_ns, ended_at_ns, host, pid, job_id, rank, local_rank, world_size, source) =
        given;
    SessionSummary {
        session_id,
        status: SessionStatus::Running,
        started_at_ns,
        ended_at_ns,
        host,
        pid,
        job_id,
        rank,
        local_rank,
        world_size,
        source,
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sink>()?;
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
