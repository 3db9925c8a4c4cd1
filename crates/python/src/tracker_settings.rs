//! The settings of a tracker, as they cross from Python.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stormlog_alert::alerts::Thresholds;
use stormlog_model::Identity;
use stormlog_postmortem::bundle::Retention;
use stormlog_track::{Config, Wording};

use crate::error::raise;
use crate::oom::retention;
use crate::phases::object;
use crate::session::GivenSession;

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
        session: GivenSession,
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TrackerSettings>()
}
