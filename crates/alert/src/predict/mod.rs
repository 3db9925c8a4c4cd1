//! How long until the limit: from the slope of the floor, the limit that holds, and the kernel's pressure.
//!
//! Working set alone does not foretell an OOM kill, nor does any one number: the forecast says how far to believe it, and
//! does not look further ahead than it has looked back. Pure: times and readings are handed in. Must never allocate per
//! reading, and must never take an unknown reading for 0.

mod floors;
mod trend;

use serde_json::Value;
use stormlog_model::{Record, format_bytes};

use crate::alerts::{AlertEvent, AlertKind, RECOVERED, ended};
use crate::latch::{Latch, Level, Step};
use crate::seconds_between;
use floors::{Floors, Scale, WINDOWS};
use stormlog_model::{format_duration as duration, format_rate as rate};
use trend::trend;

/// Windows before a scale is asked.
const MIN_WINDOWS: usize = 6;
/// Differences below this are the allocator's own breathing.
const NOISE_BYTES: f64 = 65_536.0;

/// A floor that rises at least so consistently grows.
const STEADY: f64 = 0.5;

/// When a forecast becomes a warning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictConfig {
    /// Width of the narrowest windows.
    pub base_window_ns: u64,
    /// Seconds left at which it is a warning.
    pub warning_seconds: f64,
    /// Seconds left at which it is critical.
    pub critical_seconds: f64,
    /// The least confidence that warns.
    pub min_confidence: f64,
    /// Calm looks in a row that end a warning.
    pub quiet_looks: u32,
}

impl PredictConfig {
    /// Windows that hold several samples of that interval: the least of one sample is not a floor.
    pub fn for_interval(interval_ns: u64) -> Self {
        PredictConfig {
            base_window_ns: interval_ns.saturating_mul(8).max(250_000_000),
            warning_seconds: 600.0,
            critical_seconds: 60.0,
            min_confidence: 0.6,
            quiet_looks: 3,
        }
    }
}

impl Default for PredictConfig {
    fn default() -> Self {
        PredictConfig::for_interval(100_000_000)
    }
}

/// What is known at one moment. `None` is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// When, by a clock that does not go back.
    pub timestamp_ns: u64,
    /// Bytes used against the limit.
    pub used_bytes: Option<u64>,
    /// The limit: of the cgroup, the device or the machine.
    pub limit_bytes: Option<u64>,
    /// Bytes of it the kernel can take back at once (page cache).
    pub reclaimable_bytes: Option<u64>,
    /// PSI `some avg10`, percent.
    pub psi_some_avg10: Option<f64>,
    /// PSI `full avg10`, percent.
    pub psi_full_avg10: Option<f64>,
}

/// When the limit will be met if it continues like this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Seconds until then.
    pub seconds_left: f64,
    /// Growth of the floor.
    pub bytes_per_second: f64,
    /// What is left for the floor to grow; the amplitude above it is subtracted already.
    pub headroom_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
    /// 0 to 1.
    pub confidence: f64,
    /// How long it has been looked at.
    pub span_seconds: f64,
    /// Since when it grows like this.
    pub since_ns: u64,
}

/// Watches one limit.
#[derive(Debug, Clone)]
pub struct Predictor {
    config: PredictConfig,
    floors: Floors,
    last_ns: Option<u64>,
    forecast: Option<Forecast>,
    warning: Latch,
    critical: Latch,
}

impl Predictor {
    /// Nothing seen yet. All memory it will ever use is allocated here.
    pub fn new(config: PredictConfig) -> Self {
        Predictor {
            config,
            floors: Floors::new(config.base_window_ns),
            last_ns: None,
            forecast: None,
            warning: Latch::default(),
            critical: Latch::default(),
        }
    }

    /// The latest forecast; `None` when nothing grows, or the limit is unknown.
    pub fn forecast(&self) -> Option<Forecast> {
        self.forecast
    }

    /// How fast the floor rises, in bytes a second, at the widest scale that was seen for long enough, whatever the limit; 0 where it does not
    /// rise steadily, `None` where too little was seen.
    pub fn floor_growth(&self) -> Option<f64> {
        let scale = self.floors.scales.iter().rev().find(|scale| scale.closed.len() >= MIN_WINDOWS)?;
        let (first, last) = (scale.closed.front()?, scale.closed.back()?);
        let mut points = [(0.0, 0.0); WINDOWS];
        for (point, window) in points.iter_mut().zip(&scale.closed) {
            *point = (seconds_between(first.floor_at_ns, window.floor_at_ns), window.floor as f64);
        }
        let trend = trend(&points[..scale.closed.len()], tolerance(last.floor))?;
        // Growth that has ended is none.
        let slope = trend.slope.min(trend.late_slope);
        Some(if trend.steadiness >= STEADY && slope.is_finite() { slope.max(0.0) } else { 0.0 })
    }

    /// One reading, and the warnings that begin or end with it.
    pub fn observe(&mut self, reading: &Reading) -> Vec<AlertEvent> {
        let now = reading.timestamp_ns;
        let Some(used) = reading.used_bytes else { return Vec::new() };
        if self.last_ns.is_some_and(|last| now < last) {
            return Vec::new();
        }
        self.last_ns = Some(now);
        let used = used.saturating_sub(reading.reclaimable_bytes.unwrap_or(0));
        if !self.floors.observe(now, used) {
            return Vec::new();
        }
        self.forecast =
            reading.limit_bytes.filter(|limit| *limit > 0).and_then(|limit| self.look(reading, used, limit));
        self.warn(now)
    }

    /// The soonest of the forecasts that can be believed, else the most believable.
    fn look(&self, reading: &Reading, used: u64, limit: u64) -> Option<Forecast> {
        let mut best: Option<Forecast> = None;
        for scale in &self.floors.scales {
            let Some(found) = self.of_scale(scale, reading, used, limit) else { continue };
            let believed = |forecast: &Forecast| forecast.confidence >= self.config.min_confidence;
            let is_better = best.is_none_or(|best| match (believed(&found), believed(&best)) {
                (true, true) => found.seconds_left < best.seconds_left,
                (new, old) if new != old => new,
                _ => found.confidence > best.confidence,
            });
            if is_better {
                best = Some(found);
            }
        }
        best
    }

    fn of_scale(&self, scale: &Scale, reading: &Reading, used: u64, limit: u64) -> Option<Forecast> {
        let windows = &scale.closed;
        if windows.len() < MIN_WINDOWS {
            return None;
        }
        let (first, last) = (windows.front()?, windows.back()?);
        let mut points = [(0.0, 0.0); WINDOWS];
        let mut swings = [0.0; WINDOWS];
        for (index, window) in windows.iter().enumerate().take(WINDOWS) {
            points[index] = (seconds_between(first.floor_at_ns, window.floor_at_ns), window.floor as f64);
            swings[index] = (window.ceiling - window.floor) as f64;
        }
        let swings = &mut swings[..windows.len()];
        let swing = *swings.select_nth_unstable_by(windows.len() / 2, f64::total_cmp).1;
        let trend = trend(&points[..windows.len()], tolerance(last.floor))?;
        let slope = match trend.momentum {
            Some(momentum) if momentum > 1.25 => trend.late_slope.max(trend.slope),
            Some(momentum) if momentum < 0.8 => trend.late_slope.min(trend.slope),
            _ => trend.slope,
        };
        if slope <= 0.0 || !slope.is_finite() {
            return None;
        }
        // A window's own growth is not a swing; what remains of it is the height of the teeth above the floor.
        let teeth = (swing - slope * scale.width_ns as f64 / 1e9).max(0.0);
        let floor_now = last.floor as f64 + slope * seconds_between(last.floor_at_ns, reading.timestamp_ns);
        let headroom = (limit as f64 - floor_now - teeth).max(0.0);
        // Growth that halves and halves again adds up to a bound: what it will still gain must reach the limit.
        if let Some(momentum) = trend.momentum.filter(|momentum| *momentum < 0.8) {
            let still_to_come = trend.late_growth.max(0.0) * momentum.max(0.0) / (1.0 - momentum);
            if still_to_come < headroom {
                return None;
            }
        }
        let span_ns = reading.timestamp_ns.saturating_sub(first.floor_at_ns);
        let (span, seconds_left) = (span_ns as f64 / 1e9, headroom / slope);
        // No further ahead than twice as far as it looked back.
        let reach = if seconds_left > 0.0 { (2.0 * span / seconds_left).min(1.0) } else { 1.0 };
        let share = used as f64 / limit as f64;
        let early = if share < 0.5 { 0.55 } else { 1.0 };
        let tooth =
            if self.floors.releases.explains(reading.timestamp_ns, used, span_ns) { 0.25 } else { 1.0 };
        let confidence = trend.steadiness * reach * early * tooth;
        Some(Forecast {
            seconds_left,
            bytes_per_second: slope,
            headroom_bytes: headroom as u64,
            limit_bytes: limit,
            confidence: under_pressure(confidence, share, reading),
            span_seconds: span,
            since_ns: first.floor_at_ns,
        })
    }

    fn warn(&mut self, at: u64) -> Vec<AlertEvent> {
        let (forecast, config) = (self.forecast, self.config);
        let level = |horizon: f64| match forecast {
            None => Level::Calm,
            Some(found) if found.confidence < config.min_confidence / 2.0 => Level::Calm,
            Some(found) if found.seconds_left > 2.0 * horizon => Level::Calm,
            Some(found) if found.confidence >= config.min_confidence && found.seconds_left <= horizon => {
                Level::Breach
            }
            Some(_) => Level::Near,
        };
        let mut events = Vec::new();
        for (kind, horizon, event_type) in [
            (AlertKind::ForecastWarning, config.warning_seconds, "warning"),
            (AlertKind::ForecastCritical, config.critical_seconds, "critical"),
        ] {
            let latch =
                if kind == AlertKind::ForecastWarning { &mut self.warning } else { &mut self.critical };
            let since = latch.started_at_ns();
            match (latch.observe(at, level(horizon), config.quiet_looks), since, forecast) {
                (Step::Started, _, Some(found)) => events.push(announced(kind, at, event_type, &found)),
                (Step::Ended, Some(since), _) => {
                    let metadata = ended(kind, since, at, "recovered");
                    let context = "RECOVERED: memory is no longer growing toward the limit".to_owned();
                    events.push(AlertEvent {
                        kind,
                        timestamp_ns: at,
                        event_type: RECOVERED,
                        context,
                        metadata,
                    });
                }
                _ => {}
            }
        }
        events
    }
}

/// Half a per mille of a large process is breathing as well.
fn tolerance(floor: u64) -> f64 {
    NOISE_BYTES.max(floor as f64 * 0.0005)
}

/// Stalls on memory confirm a trend; alone, or far from the limit, another program causes them.
fn under_pressure(confidence: f64, share: f64, reading: &Reading) -> f64 {
    let clean = |value: Option<f64>| value.filter(|value| value.is_finite()).unwrap_or(0.0).clamp(0.0, 100.0);
    let stalled = clean(reading.psi_full_avg10) / 100.0 + clean(reading.psi_some_avg10) / 200.0;
    if share < 0.7 || confidence < 0.2 {
        return confidence;
    }
    confidence + (1.0 - confidence) * stalled.min(0.5)
}

fn announced(kind: AlertKind, at: u64, event_type: &'static str, found: &Forecast) -> AlertEvent {
    // "About 0 ms" is the precision of a measurement, which a forecast does not have.
    let left = match found.seconds_left {
        less if less < 1.0 => "less than 1 s".to_owned(),
        seconds => format!("about {}", duration(seconds)),
    };
    let context = format!(
        "{}: Memory limit of {} will be reached in {left} at {} (confidence {:.2})",
        event_type.to_uppercase(),
        format_bytes(found.limit_bytes),
        rate(found.bytes_per_second),
        found.confidence,
    );
    let metadata = Record::from_iter([
        ("seconds_to_limit".to_owned(), Value::from(found.seconds_left)),
        ("confidence".to_owned(), found.confidence.into()),
        ("bytes_per_second".to_owned(), found.bytes_per_second.into()),
        ("headroom_bytes".to_owned(), found.headroom_bytes.into()),
        ("limit_bytes".to_owned(), found.limit_bytes.into()),
        ("growing_since_ns".to_owned(), found.since_ns.into()),
        ("alert".to_owned(), kind.as_str().into()),
    ]);
    AlertEvent { kind, timestamp_ns: at, event_type, context, metadata }
}
