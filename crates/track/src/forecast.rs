//! Forecasts and their alerts: one predictor for each limit that readings come for.
//!
//! Reads no clock and no file: readings are handed in, and the alerts that begin or end with them are handed back.

use std::sync::Arc;
use std::time::Duration;

use stormlog_alert::alerts::AlertEvent;
use stormlog_alert::predict::{Forecast, PredictConfig, Predictor, Reading};

/// How sure a forecast must be to be reported as a fact about the end.
const BELIEVED: f64 = 0.5;
/// For this long a forecast that ended still says how memory grew: a dying program gives its memory back before it is
/// gone.
const GROWTH_HOLDS_NS: u64 = 5_000_000_000;

/// How far a limit is used up. `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitReading {
    /// What limits, in words; `None` when that is the device of the sample itself.
    pub source: Option<Arc<str>>,
    /// Bytes used of it.
    pub used: Option<u64>,
    /// The limit.
    pub limit: Option<u64>,
    /// Bytes of it that the kernel can take back at once.
    pub reclaimable: Option<u64>,
    /// Percent of the last ten seconds in which some tasks waited for memory.
    pub psi_some_avg10: Option<f64>,
    /// The same of all tasks at once.
    pub psi_full_avg10: Option<f64>,
}

/// The forecasts of one process or device.
#[derive(Debug)]
pub struct Forecasts {
    config: PredictConfig,
    predictors: Vec<(Option<Arc<str>>, Predictor)>,
    growth: Option<(u64, Forecast)>,
}

impl Forecasts {
    /// For readings taken every `interval`.
    pub fn every(interval: Duration) -> Self {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Forecasts { config: PredictConfig::for_interval(interval), predictors: Vec::new(), growth: None }
    }

    /// The alerts that begin or end with this reading.
    pub fn observe(&mut self, reading: &LimitReading, now_ns: u64) -> Vec<AlertEvent> {
        let source = reading.source.as_ref();
        let known = self.predictors.iter().position(|(name, _)| name.as_ref() == source);
        let at = known.unwrap_or_else(|| {
            self.predictors.push((source.cloned(), Predictor::new(self.config)));
            self.predictors.len() - 1
        });
        let (_, predictor) = &mut self.predictors[at];
        let mut alerts = predictor.observe(&Reading {
            timestamp_ns: now_ns,
            used_bytes: reading.used,
            limit_bytes: reading.limit,
            reclaimable_bytes: reading.reclaimable,
            psi_some_avg10: reading.psi_some_avg10,
            psi_full_avg10: reading.psi_full_avg10,
        });
        if let Some(found) = predictor.forecast().filter(|found| found.confidence >= BELIEVED) {
            self.growth = Some((now_ns, found));
        }
        for alert in &mut alerts {
            if let Some(source) = source {
                alert.context = format!("{} [{source}]", alert.context);
                alert.metadata.insert("limit_source".to_owned(), source.as_ref().into());
            }
            // What `analyze` judges pressure by.
            let stalls =
                [("psi_some_avg10", reading.psi_some_avg10), ("psi_full_avg10", reading.psi_full_avg10)];
            let known = stalls.into_iter().filter_map(|(key, share)| Some((key.to_owned(), share?.into())));
            alert.metadata.extend(known);
        }
        alerts
    }

    /// The limit that is reached first, and when; `None` when nothing grows or too little was seen.
    pub fn nearest(&self) -> Option<Forecast> {
        let forecasts = self.predictors.iter().filter_map(|(_, predictor)| predictor.forecast());
        forecasts.min_by(|a, b| a.seconds_left.total_cmp(&b.seconds_left))
    }

    /// The nearest of them that warns.
    pub fn warning(&self) -> Option<Forecast> {
        let config = self.config;
        let warns = |found: &Forecast| {
            found.confidence >= config.min_confidence && found.seconds_left <= config.warning_seconds
        };
        self.nearest().filter(warns)
    }

    /// How memory grew at the end, where a forecast that can be believed saw it.
    pub fn growth(&self, now_ns: u64) -> Option<Forecast> {
        self.growth.filter(|(at, _)| now_ns.saturating_sub(*at) <= GROWTH_HOLDS_NS).map(|(_, growth)| growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecast_names_the_limit_that_fills_up() {
        let mut forecasts = Forecasts::every(Duration::from_millis(100));
        let mut alerts = Vec::new();
        for step in 0..200u64 {
            let reading = LimitReading {
                source: Some("address space, RLIMIT_AS".into()),
                used: Some((512 << 20) + step * (2 << 20)),
                limit: Some(1 << 30),
                psi_some_avg10: Some(12.5),
                ..LimitReading::default()
            };
            alerts.extend(forecasts.observe(&reading, step * 100_000_000));
        }
        let alert = alerts.first().unwrap();
        assert!(alert.context.ends_with(" [address space, RLIMIT_AS]"), "{}", alert.context);
        assert_eq!(alert.metadata["limit_source"], "address space, RLIMIT_AS");
        assert_eq!(alert.metadata["psi_some_avg10"], 12.5);
        assert!(alert.metadata["seconds_to_limit"].as_f64().unwrap() > 0.0);
        assert!(forecasts.nearest().is_some() && forecasts.growth(20_000_000_000).is_some());
        assert!(forecasts.growth(60_000_000_000).is_none());
    }
}
