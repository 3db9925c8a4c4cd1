//! How the source of samples is: healthy, degraded (a part is missing) or unhealthy (nothing came, asked again later).
//!
//! The states, the pauses (1 s doubling to 30 s) and the keys are 0.4.3's. Times are wall-clock nanoseconds handed in.

use serde_json::Value;
use stormlog_collect::retry_delay_ns;
use stormlog_model::Record;

/// The word for how it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthStatus {
    /// Everything it can tell came.
    #[default]
    Healthy,
    /// A part did not.
    Degraded,
    /// Nothing did.
    Unhealthy,
}

impl HealthStatus {
    /// The word in metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthStatus::Healthy => "healthy",
            HealthStatus::Degraded => "degraded",
            HealthStatus::Unhealthy => "unhealthy",
        }
    }
}

/// How the source is, and since when it is asked again.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// The word.
    pub status: HealthStatus,
    /// Fields that did not come.
    pub partial_fields: Vec<String>,
    /// What was said last.
    pub last_error: Option<String>,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// When it is asked again.
    pub next_retry_ns: Option<u64>,
}

impl Health {
    /// Whether it may be asked now. A clock that was set back must not silence it for longer than one pause.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let pause = retry_delay_ns(self.consecutive_failures);
        self.next_retry_ns.is_none_or(|at| now_ns >= at || at - now_ns > pause)
    }

    /// After nothing came.
    pub fn failed(&self, error: String, now_ns: u64) -> Self {
        let consecutive_failures = self.consecutive_failures.saturating_add(1);
        Health {
            status: HealthStatus::Unhealthy,
            partial_fields: Vec::new(),
            last_error: Some(error),
            consecutive_failures,
            next_retry_ns: Some(now_ns.saturating_add(retry_delay_ns(consecutive_failures))),
        }
    }

    /// After a sample that lacks these fields, or none.
    pub fn sampled(partial_fields: Vec<String>, error: Option<String>) -> Self {
        let status = if partial_fields.is_empty() { HealthStatus::Healthy } else { HealthStatus::Degraded };
        let last_error = error.filter(|_| status == HealthStatus::Degraded);
        Health { status, partial_fields, last_error, ..Health::default() }
    }

    /// The six keys, as 0.4.3 has them in events and statistics.
    pub fn write(&self, record: &mut Record) {
        let retry = self.next_retry_ns.map(|at| at as f64 / 1e9);
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("collector_health_status", self.status.as_str().into());
        put("telemetry_partial", (self.status != HealthStatus::Healthy).into());
        put("collector_partial_fields", self.partial_fields.clone().into());
        put("collector_last_error", self.last_error.as_deref().into());
        put("collector_consecutive_failures", self.consecutive_failures.into());
        put("collector_next_retry_epoch_s", retry.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_source_is_asked_again_with_growing_pauses() {
        const S: u64 = 1_000_000_000;
        let once = Health::default().failed("gone".into(), 10 * S);
        assert_eq!(once.next_retry_ns, Some(11 * S));
        assert!(!once.is_due(10 * S + 1) && once.is_due(11 * S));
        let twice = once.failed("gone".into(), 11 * S);
        assert_eq!((twice.next_retry_ns, twice.consecutive_failures), (Some(13 * S), 2));
        assert!(twice.is_due(S), "the clock was set back by more than the pause");
        assert_eq!(Health::sampled(Vec::new(), Some("old".into())), Health::default());
    }
}
