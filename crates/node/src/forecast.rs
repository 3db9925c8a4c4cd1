//! When a limit is reached: the predictor of alerts, fed with the samples that were recorded. Unknown room makes no forecast.

use stormlog_alert::predict::{Forecast, PredictConfig, Predictor, Reading};

/// How sure a forecast must be to be a series: an alert that waits for ten minutes needs no more.
const BELIEVED: f64 = 0.5;

/// One memory that grows towards a limit.
#[derive(Debug)]
pub(crate) struct Growth {
    predictor: Predictor,
}

impl Growth {
    /// For samples taken every `interval_ms`.
    pub(crate) fn every(interval_ms: u64) -> Self {
        let config = PredictConfig::for_interval(interval_ms.saturating_mul(1_000_000));
        Growth { predictor: Predictor::new(config) }
    }

    /// Adds a sample: `held` bytes in use, `left` bytes until the limit.
    pub(crate) fn observe(&mut self, at_ns: u64, held: u64, left: Option<u64>) {
        let limit = left.map(|left| held.saturating_add(left));
        // The alerts of this predictor were raised by the supervisor already.
        let _ = self.predictor.observe(&Reading {
            timestamp_ns: at_ns,
            used_bytes: Some(held),
            limit_bytes: limit,
            ..Reading::default()
        });
    }

    /// The forecast that can be believed.
    pub(crate) fn forecast(&self) -> Option<Forecast> {
        self.predictor.forecast().filter(|found| {
            found.confidence >= BELIEVED && found.bytes_per_second > 0.0 && found.seconds_left.is_finite()
        })
    }

    /// Growth of the floor in bytes a second; `None` where too little was seen.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.predictor.floor_growth()
    }
}
