//! The settings of a tracker, as they cross from Python: one JSON object, made by `stormlog._tracking.base`.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Identity, Record, SessionSummary};
use stormlog_postmortem::bundle::Retention;
use stormlog_store::sink::SinkConfig;
use stormlog_track::{Config, Wording};

use crate::error::raise;
use crate::oom::retention;
use crate::phases::object;

/// What a tracker is told.
pub(crate) struct Settings {
    pub config: Config,
    pub backend: String,
    /// Where bundles are kept how long; `None` when the flight recorder is off.
    pub retention: Option<Retention>,
}

/// Reads the settings; what is missing or wrong is a `ValueError`.
pub(crate) fn read(text: &str) -> PyResult<Settings> {
    let record = object(text)?;
    let wrong = |key: &str| PyValueError::new_err(format!("{key} is missing or wrong"));
    let get = |key: &str| record.get(key).ok_or_else(|| wrong(key));
    let text = |key: &str| get(key)?.as_str().map(str::to_owned).ok_or_else(|| wrong(key));
    let nested = |key: &str| get(key)?.as_object().cloned().ok_or_else(|| wrong(key));
    let flag = |key: &str| get(key)?.as_bool().ok_or_else(|| wrong(key));
    let count = |key: &str| {
        let number = get(key)?.as_u64().ok_or_else(|| wrong(key))?;
        usize::try_from(number).map_err(|_| wrong(key))
    };
    let session = SessionSummary::from_record(&nested("session")?).map_err(raise)?;
    let interval = get("sampling_interval")?.as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let identity = Identity {
        job_id: session.job_id.clone(),
        rank: unsigned(session.rank),
        local_rank: unsigned(session.local_rank),
        world_size: unsigned(session.world_size).max(1),
    };
    let config = Config {
        identity,
        session,
        collector: text("collector")?,
        interval: interval.ok_or_else(|| wrong("sampling_interval"))?,
        max_events: count("max_events")?,
        flight_events: count("flight_events")?,
        metadata: nested("metadata")?,
        wording: if text("wording")? == "cpu" { Wording::Cpu } else { Wording::Device },
        says_health: flag("says_health")?,
        alerts: flag("alerts")?,
        thresholds: thresholds(&nested("thresholds")?)?,
        total_bytes: get("total_bytes")?.as_u64(),
    };
    let limit = |key: &str| record.get(key).and_then(Value::as_i64).unwrap_or(0);
    let retention = (config.flight_events > 0).then(|| retention(limit("max_dumps"), limit("max_total_mb")));
    Ok(Settings { config, backend: text("backend")?, retention })
}

fn thresholds(given: &Record) -> PyResult<Thresholds> {
    let mut thresholds = Thresholds::default();
    for (name, value) in given {
        let value = value.as_f64().unwrap_or(f64::NAN);
        thresholds.set(name, value).map_err(raise)?;
    }
    Ok(thresholds)
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
