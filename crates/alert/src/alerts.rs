//! Alerts with a beginning and an end: usage, large allocations, fragmentation.
//!
//! The thresholds and texts are 0.4.3's; but one long breach is one alert, ended by an event of its own, so that a full
//! device does not push its own history out of the ring. A state machine over samples: it must never read a clock, and
//! an unknown counter must never start or end anything.

use serde_json::Value;
use stormlog_model::{Record, format_bytes};

use crate::latch::{Latch, Level, Step};
use crate::seconds_between;
use stormlog_model::format_duration as duration;

/// 0.4.3's megabyte.
const MIB: f64 = 1_048_576.0;

/// The type of the event that ends an alert. Readers of 0.4.3 count only `warning`, `critical` and `error` as alerts.
pub const RECOVERED: &str = "recovered";

/// When to warn, and when to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Usage in percent from which on it is a warning.
    pub memory_warning_percent: f64,
    /// Usage in percent from which on it is critical.
    pub memory_critical_percent: f64,
    /// Bytes gained in one interval beyond which it is a large allocation (0.4.3's `memory_leak_threshold`).
    pub memory_leak_threshold: f64,
    /// Share of the reserved bytes in inactive blocks beyond which it is fragmentation.
    pub fragmentation_threshold: f64,
    /// Bytes of usage beyond which it is a warning whatever the size of the device; infinite where there is no such limit.
    pub memory_threshold_bytes: f64,
    /// Percentage points below the threshold before usage counts as recovered.
    pub usage_margin_percent: f64,
    /// How far below its threshold fragmentation counts as recovered.
    pub fragmentation_margin: f64,
    /// Calm samples in a row that end an alert.
    pub quiet_samples: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            memory_warning_percent: 80.0,
            memory_critical_percent: 95.0,
            memory_leak_threshold: 104_857_600.0,
            fragmentation_threshold: 0.3,
            memory_threshold_bytes: f64::INFINITY,
            usage_margin_percent: 2.0,
            fragmentation_margin: 0.03,
            quiet_samples: 3,
        }
    }
}

/// Why a threshold was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// There is none of that name.
    #[error("Unknown threshold: {0}")]
    Unknown(String),
    /// The value cannot be compared with.
    #[error("{name} must be a finite number >= 0, not {value}")]
    NotANumber {
        /// The threshold.
        name: String,
        /// What was given.
        value: f64,
    },
}

impl Thresholds {
    /// Only usage beyond this many bytes is an alert.
    #[must_use]
    pub fn only_above(bytes: f64) -> Self {
        Thresholds {
            memory_warning_percent: f64::INFINITY,
            memory_critical_percent: f64::INFINITY,
            memory_leak_threshold: f64::INFINITY,
            fragmentation_threshold: f64::INFINITY,
            memory_threshold_bytes: bytes,
            ..Thresholds::default()
        }
    }

    /// Sets the threshold of that name, as `set_threshold` does.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ThresholdError> {
        let field = match name {
            "memory_warning_percent" => &mut self.memory_warning_percent,
            "memory_critical_percent" => &mut self.memory_critical_percent,
            "memory_leak_threshold" => &mut self.memory_leak_threshold,
            "fragmentation_threshold" => &mut self.fragmentation_threshold,
            "memory_threshold_bytes" => &mut self.memory_threshold_bytes,
            "usage_margin_percent" => &mut self.usage_margin_percent,
            "fragmentation_margin" => &mut self.fragmentation_margin,
            _ => return Err(ThresholdError::Unknown(name.to_owned())),
        };
        if !value.is_finite() || value < 0.0 {
            return Err(ThresholdError::NotANumber { name: name.to_owned(), value });
        }
        *field = value;
        Ok(())
    }
}

/// What one sample says. `None` is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlertSample {
    /// When.
    pub timestamp_ns: u64,
    /// Allocated bytes, or used ones where there is no allocator.
    pub usage_bytes: Option<u64>,
    /// Size of the device, or the limit that holds.
    pub total_bytes: Option<u64>,
    /// Change since the last sample.
    pub change_bytes: Option<i64>,
    /// Bytes in inactive blocks.
    pub inactive_bytes: Option<u64>,
    /// Bytes the allocator holds.
    pub reserved_bytes: Option<u64>,
}

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AlertKind {
    /// Usage is critical.
    UsageCritical,
    /// Usage is high.
    UsageWarning,
    /// Usage is beyond a number of bytes.
    UsageThreshold,
    /// Much was allocated between two samples.
    LargeAllocation,
    /// Much of what is reserved is in inactive blocks.
    Fragmentation,
    /// The limit is minutes away (see [`crate::predict`]).
    ForecastWarning,
    /// The limit is seconds away.
    ForecastCritical,
}

impl AlertKind {
    /// The word under `alert` in the metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            AlertKind::UsageCritical => "usage_critical",
            AlertKind::UsageWarning => "usage_warning",
            AlertKind::UsageThreshold => "usage_threshold",
            AlertKind::LargeAllocation => "large_allocation",
            AlertKind::Fragmentation => "fragmentation",
            AlertKind::ForecastWarning => "forecast_warning",
            AlertKind::ForecastCritical => "forecast_critical",
        }
    }
}

/// The beginning or the end of an alert, ready to become an event.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertEvent {
    /// What it is about.
    pub kind: AlertKind,
    /// When.
    pub timestamp_ns: u64,
    /// `warning`, `critical` or [`RECOVERED`].
    pub event_type: &'static str,
    /// The sentence.
    pub context: String,
    /// The keys for the event's metadata.
    pub metadata: Record,
}

impl AlertEvent {
    /// Whether this begins an alert.
    pub fn is_start(&self) -> bool {
        self.event_type != RECOVERED
    }
}

/// One alert: whether it holds, and the worst of it.
#[derive(Debug, Clone, Default)]
struct Alert {
    latch: Latch,
    worst: f64,
    sum: f64,
}

impl Alert {
    fn observe(&mut self, at_ns: u64, value: f64, level: Level, quiet: u32) -> Step {
        let was_open = self.latch.started_at_ns();
        let step = self.latch.observe(at_ns, level, quiet);
        match (step, was_open) {
            (Step::Started, _) => (self.worst, self.sum) = (value, value),
            (Step::Same, Some(_)) => {
                self.worst = self.worst.max(value);
                self.sum += value.max(0.0);
            }
            _ => {}
        }
        step
    }
}

/// The alerts of one device.
#[derive(Debug, Clone, Default)]
pub struct Alerts {
    /// The thresholds; they may be changed between samples.
    pub thresholds: Thresholds,
    critical: Alert,
    warning: Alert,
    threshold: Alert,
    large: Alert,
    fragmentation: Alert,
}

impl Alerts {
    /// Nothing open.
    pub fn new(thresholds: Thresholds) -> Self {
        Alerts { thresholds, ..Alerts::default() }
    }

    /// The alerts that hold now, and since when.
    pub fn open(&self) -> impl Iterator<Item = (AlertKind, u64)> + '_ {
        let all = [
            (AlertKind::UsageCritical, &self.critical),
            (AlertKind::UsageWarning, &self.warning),
            (AlertKind::UsageThreshold, &self.threshold),
            (AlertKind::LargeAllocation, &self.large),
            (AlertKind::Fragmentation, &self.fragmentation),
        ];
        all.into_iter().filter_map(|(kind, alert)| Some((kind, alert.latch.started_at_ns()?)))
    }

    /// What begins and ends with this sample. Most often nothing, which allocates nothing.
    pub fn observe(&mut self, sample: &AlertSample) -> Vec<AlertEvent> {
        let mut events = Vec::new();
        if let (Some(usage), Some(total @ 1..)) = (sample.usage_bytes, sample.total_bytes) {
            self.usage(sample.timestamp_ns, usage as f64 / total as f64 * 100.0, &mut events);
        }
        if let Some(usage) = sample.usage_bytes {
            self.above(sample.timestamp_ns, usage as f64, &mut events);
        }
        if let Some(change) = sample.change_bytes {
            self.large(sample.timestamp_ns, change as f64, &mut events);
        }
        if let (Some(inactive), Some(reserved @ 1..)) = (sample.inactive_bytes, sample.reserved_bytes) {
            self.fragmented(sample.timestamp_ns, inactive as f64 / reserved as f64, &mut events);
        }
        events
    }

    /// Ends whatever holds, because the session does.
    pub fn finish(&mut self, timestamp_ns: u64) -> Vec<AlertEvent> {
        let mut events = Vec::new();
        for (kind, alert) in [
            (AlertKind::UsageCritical, &mut self.critical),
            (AlertKind::UsageWarning, &mut self.warning),
            (AlertKind::UsageThreshold, &mut self.threshold),
            (AlertKind::LargeAllocation, &mut self.large),
            (AlertKind::Fragmentation, &mut self.fragmentation),
        ] {
            let Some(since) = alert.latch.started_at_ns() else { continue };
            alert.latch.reset();
            let mut metadata = ended(kind, since, timestamp_ns, "session_end");
            metadata.insert("peak".into(), alert.worst.into());
            let context = format!("ENDED WITH THE SESSION: {}", kind.as_str());
            events.push(AlertEvent { kind, timestamp_ns, event_type: RECOVERED, context, metadata });
        }
        events
    }

    fn usage(&mut self, at: u64, percent: f64, events: &mut Vec<AlertEvent>) {
        let rules = self.thresholds;
        for kind in [AlertKind::UsageCritical, AlertKind::UsageWarning] {
            let (threshold, event_type, word) = match kind {
                AlertKind::UsageCritical => (rules.memory_critical_percent, "critical", "CRITICAL"),
                _ => (rules.memory_warning_percent, "warning", "WARNING"),
            };
            let mut level = Level::of(percent, threshold, rules.usage_margin_percent);
            // What is critical is not announced as a warning too; the warning follows if it only falls back to that.
            let is_covered = kind == AlertKind::UsageWarning && self.critical.latch.started_at_ns().is_some();
            if is_covered && self.warning.latch.started_at_ns().is_none() && level == Level::Breach {
                level = Level::Near;
            }
            let alert = if kind == AlertKind::UsageCritical { &mut self.critical } else { &mut self.warning };
            let since = alert.latch.started_at_ns();
            let step = alert.observe(at, percent, level, rules.quiet_samples);
            let worst = alert.worst;
            match (step, since) {
                (Step::Started, _) => {
                    let context = format!("{word}: Memory usage at {percent:.1}%");
                    let metadata = started(kind, "usage_percent", percent.into());
                    events.push(AlertEvent { kind, timestamp_ns: at, event_type, context, metadata });
                }
                (Step::Ended, Some(since)) => {
                    let lasted = duration(seconds_between(since, at));
                    let context = format!(
                        "RECOVERED: Memory usage at {percent:.1}% \
                         (at {threshold}% or more for {lasted}, highest {worst:.1}%)"
                    );
                    let mut metadata = ended(kind, since, at, "recovered");
                    metadata.insert("usage_percent".into(), percent.into());
                    metadata.insert("peak".into(), worst.into());
                    let event_type = RECOVERED;
                    events.push(AlertEvent { kind, timestamp_ns: at, event_type, context, metadata });
                }
                _ => {}
            }
        }
    }

    fn above(&mut self, at: u64, bytes: f64, events: &mut Vec<AlertEvent>) {
        let (kind, rules) = (AlertKind::UsageThreshold, self.thresholds);
        let threshold = rules.memory_threshold_bytes;
        let level = match Level::of(bytes, threshold, threshold * (rules.usage_margin_percent / 100.0)) {
            // "Exceeds", as 0.4.3 has it.
            Level::Breach if bytes <= threshold => Level::Near,
            level => level,
        };
        let since = self.threshold.latch.started_at_ns();
        let (now, limit) = (bytes / MIB, threshold / MIB);
        match (self.threshold.observe(at, bytes, level, rules.quiet_samples), since) {
            (Step::Started, _) => {
                let context = format!("Memory usage {now:.1} MB exceeds threshold {limit:.1} MB");
                let mut metadata = started(kind, "memory_mb", now.into());
                metadata.insert("threshold_mb".into(), limit.into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: "warning", context, metadata });
            }
            (Step::Ended, Some(since)) => {
                let lasted = duration(seconds_between(since, at));
                let worst = self.threshold.worst / MIB;
                let context = format!(
                    "RECOVERED: Memory usage {now:.1} MB (above {limit:.1} MB for {lasted}, highest {worst:.1} MB)"
                );
                let mut metadata = ended(kind, since, at, "recovered");
                metadata.insert("memory_mb".into(), now.into());
                metadata.insert("peak".into(), worst.into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: RECOVERED, context, metadata });
            }
            _ => {}
        }
    }

    fn large(&mut self, at: u64, change: f64, events: &mut Vec<AlertEvent>) {
        let (kind, rules) = (AlertKind::LargeAllocation, self.thresholds);
        // "More than" the threshold, as 0.4.3 says; an interval with less is calm.
        let level = if change > rules.memory_leak_threshold { Level::Breach } else { Level::Calm };
        let since = self.large.latch.started_at_ns();
        match (self.large.observe(at, change, level, rules.quiet_samples), since) {
            (Step::Started, _) => {
                let context = format!("Large allocation detected: {}", format_bytes(change as u64));
                let mut metadata = started(kind, "large_allocation", true.into());
                metadata.insert("change_bytes".into(), (change as u64).into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: "warning", context, metadata });
            }
            (Step::Ended, Some(since)) => {
                let total = self.large.sum as u64;
                let lasted = duration(seconds_between(since, at));
                let context =
                    format!("RECOVERED: no further large allocation ({} in {lasted})", format_bytes(total));
                let mut metadata = ended(kind, since, at, "recovered");
                metadata.insert("peak".into(), (self.large.worst as u64).into());
                metadata.insert("total_bytes".into(), total.into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: RECOVERED, context, metadata });
            }
            _ => {}
        }
    }

    fn fragmented(&mut self, at: u64, ratio: f64, events: &mut Vec<AlertEvent>) {
        let (kind, rules) = (AlertKind::Fragmentation, self.thresholds);
        let threshold = rules.fragmentation_threshold;
        let level = match Level::of(ratio, threshold, rules.fragmentation_margin) {
            // "More than", as 0.4.3 says.
            Level::Breach if ratio <= threshold => Level::Near,
            level => level,
        };
        let since = self.fragmentation.latch.started_at_ns();
        match (self.fragmentation.observe(at, ratio, level, rules.quiet_samples), since) {
            (Step::Started, _) => {
                let context = format!("High fragmentation: {:.1}%", ratio * 100.0);
                let metadata = started(kind, "fragmentation", ratio.into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: "warning", context, metadata });
            }
            (Step::Ended, Some(since)) => {
                let lasted = duration(seconds_between(since, at));
                let (now, worst) = (ratio * 100.0, self.fragmentation.worst * 100.0);
                let context = format!("RECOVERED: fragmentation {now:.1}% (highest {worst:.1}%, {lasted})");
                let mut metadata = ended(kind, since, at, "recovered");
                metadata.insert("fragmentation".into(), ratio.into());
                metadata.insert("peak".into(), self.fragmentation.worst.into());
                events.push(AlertEvent { kind, timestamp_ns: at, event_type: RECOVERED, context, metadata });
            }
            _ => {}
        }
    }
}

/// 0.4.3's key first: its readers look for it.
fn started(kind: AlertKind, key: &str, value: Value) -> Record {
    Record::from_iter([(key.to_owned(), value), ("alert".to_owned(), kind.as_str().into())])
}

pub(crate) fn ended(kind: AlertKind, since: u64, at: u64, ended_by: &str) -> Record {
    Record::from_iter([
        ("alert".to_owned(), Value::from(kind.as_str())),
        ("started_at_ns".to_owned(), since.into()),
        ("duration_ns".to_owned(), at.saturating_sub(since).into()),
        ("ended_by".to_owned(), ended_by.into()),
    ])
}
