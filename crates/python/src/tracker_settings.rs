//! The settings of a tracker, as they cross from Python.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Identity, SessionStatus, SessionSummary};
use stormlog_postmortem::bundle::Retention;
use stormlog_store::sink::SinkConfig;
use stormlog_track::{Config, Wording};

use crate::error::raise;
use crate::oom::retention;
use crate::phases::object;

/// The attributes of a Python `SessionSummary`.
#[derive(FromPyObject)]
struct Session {
    session_id: String,
    status: String,
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    host: String,
    pid: i64,
    job_id: Option<String>,
    rank: i64,
    local_rank: i64,
    world_size: i64,
    source: String,
}

impl Session {
    fn summary(self) -> PyResult<SessionSummary> {
        Ok(SessionSummary {
            status: SessionStatus::parse(&Value::from(self.status)).map_err(raise)?,
            session_id: self.session_id,
            started_at_ns: self.started_at_ns,
            ended_at_ns: self.ended_at_ns,
            host: self.host,
            pid: self.pid,
            job_id: self.job_id,
            rank: self.rank,
            local_rank: self.local_rank,
            world_size: self.world_size,
            source: self.source,
        })
    }
}

/// What a tracker samples, keeps and reports.
#[pyclass(frozen, module = "stormlog._native.tracking")]
pub(crate) struct TrackerSettings {
    pub(crate) config: Config,
    pub(crate) backend: String,
    /// How long bundles are kept; `None` when the flight recorder is off.
    pub(crate) retention: Option<Retention>,
}

#[pymethods]
impl TrackerSettings {
    /// `metadata` is the JSON text that every event's metadata ends with; `wording` is `cpu` or `device`.
    #[new]
    #[pyo3(signature = (
        *, session, collector, backend, sampling_interval, max_events, metadata, wording, flight_events=0,
        max_dumps=0, max_total_mb=0, says_health=false, alerts=false, thresholds=BTreeMap::new(), total_bytes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python constructor, one for each setting")]
    fn new(
        session: Session,
        collector: String,
        backend: String,
        sampling_interval: f64,
        max_events: usize,
        metadata: &str,
        wording: &str,
        flight_events: usize,
        max_dumps: i64,
        max_total_mb: i64,
        says_health: bool,
        alerts: bool,
        thresholds: BTreeMap<String, f64>,
        total_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let session = session.summary()?;
        let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
        let identity = Identity {
            job_id: session.job_id.clone(),
            rank: unsigned(session.rank),
            local_rank: unsigned(session.local_rank),
            world_size: unsigned(session.world_size).max(1),
        };
        let interval = Duration::try_from_secs_f64(sampling_interval)
            .map_err(|_| PyValueError::new_err(format!("sampling_interval is {sampling_interval}")))?;
        let mut limits = Thresholds::default();
        for (name, value) in &thresholds {
            limits.set(name, *value).map_err(raise)?;
        }
        let config = Config {
            identity,
            session,
            collector,
            interval,
            max_events,
            flight_events,
            metadata: object(metadata)?,
            wording: if wording == "cpu" { Wording::Cpu } else { Wording::Device },
            says_health,
            alerts,
            thresholds: limits,
            total_bytes,
        };
        let retention = (flight_events > 0).then(|| retention(max_dumps, max_total_mb));
        Ok(TrackerSettings { config, backend, retention })
    }
}

/// The policy of a `TelemetrySinkConfig`, which has checked its values itself.
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
    module.add_class::<TrackerSettings>()
}
