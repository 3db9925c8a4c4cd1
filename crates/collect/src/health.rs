//! A collector that fails degrades, is asked again with growing pauses, and recovers; all of it visible.
//!
//! Pure: the time is handed in (nanoseconds of any clock that does not jump back), nothing sleeps. A failing
//! collector must never fail the tracker, and must never be asked more often than the back-off allows.

use serde::Serialize;

use crate::{CollectError, Collector, DeviceSample};

const SECOND_NS: u64 = 1_000_000_000;
const LONGEST_PAUSE_NS: u64 = 30 * SECOND_NS;

/// From this many failures in a row a collector counts as unhealthy, not just degraded.
const UNHEALTHY_AFTER: u32 = 3;

/// The pause after the n-th failure in a row: 1 s doubled each time, at most 30 s.
pub fn retry_delay_ns(failures: u32) -> u64 {
    match failures {
        0 => 0,
        1..=5 => SECOND_NS << (failures - 1),
        _ => LONGEST_PAUSE_NS,
    }
}

/// How a collector is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// The last reading was whole.
    #[default]
    Healthy,
    /// The last reading was partial, or failed once or twice.
    Degraded,
    /// It failed three times or more in a row.
    Unhealthy,
}

impl HealthState {
    /// The word in `collector_health_status`.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthState::Healthy => "healthy",
            HealthState::Degraded => "degraded",
            HealthState::Unhealthy => "unhealthy",
        }
    }
}

/// A change of state worth an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// It left healthy: `collector_degraded`.
    Degraded,
    /// It is healthy again: `collector_recovered`.
    Recovered,
}

/// The state of one collector over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// How it is doing.
    pub state: HealthState,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// Failures since the start.
    pub total_failures: u64,
    /// When it may be asked again; `None` when at any time.
    pub next_retry_ns: Option<u64>,
    /// What went wrong last; kept after recovery.
    pub last_error: Option<String>,
    /// Fields the last reading lacked although the collector can know them.
    pub partial_fields: Vec<&'static str>,
}

impl Health {
    /// Whether the collector may be asked now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.next_retry_ns.is_none_or(|retry| now_ns >= retry)
    }

    /// Nanoseconds until it may be asked again.
    pub fn retry_in_ns(&self, now_ns: u64) -> Option<u64> {
        self.next_retry_ns.map(|retry| retry.saturating_sub(now_ns))
    }

    /// Takes in a reading that succeeded, with the fields it lacks and why.
    pub fn succeeded(
        &mut self,
        partial: Vec<&'static str>,
        reason: Option<impl FnOnce() -> String>,
    ) -> Option<Transition> {
        self.consecutive_failures = 0;
        self.next_retry_ns = None;
        // The text is made once per change, not once per sample of a source that stays partial.
        if self.partial_fields != partial
            && let Some(reason) = reason
        {
            self.last_error = Some(reason());
        }
        let state = if partial.is_empty() { HealthState::Healthy } else { HealthState::Degraded };
        self.partial_fields = partial;
        self.become_state(state)
    }

    /// Takes in a reading that failed altogether.
    pub fn failed(&mut self, now_ns: u64, error: &CollectError) -> Option<Transition> {
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        self.total_failures = self.total_failures.saturating_add(1);
        self.next_retry_ns = Some(now_ns.saturating_add(retry_delay_ns(self.consecutive_failures)));
        self.last_error = Some(error.to_string());
        self.become_state(if self.consecutive_failures >= UNHEALTHY_AFTER {
            HealthState::Unhealthy
        } else {
            HealthState::Degraded
        })
    }

    fn become_state(&mut self, state: HealthState) -> Option<Transition> {
        let before = std::mem::replace(&mut self.state, state);
        match (before == HealthState::Healthy, state == HealthState::Healthy) {
            (true, false) => Some(Transition::Degraded),
            (false, true) => Some(Transition::Recovered),
            _ => None,
        }
    }
}

/// What came of asking a watched collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// The sample; `None` when it failed or it is too early to ask again.
    pub sample: Option<DeviceSample>,
    /// A change of state, once.
    pub transition: Option<Transition>,
}

/// A collector with its health.
#[derive(Debug)]
pub struct MonitoredCollector<C> {
    collector: C,
    health: Health,
}

impl<C: Collector> MonitoredCollector<C> {
    /// Wraps a collector that is believed healthy.
    pub fn new(collector: C) -> Self {
        MonitoredCollector { collector, health: Health::default() }
    }

    /// Asks for a sample if it is time to. Never fails: a failure shows in the health.
    pub fn poll(&mut self, now_ns: u64) -> Polled {
        if !self.health.is_due(now_ns) {
            return Polled { sample: None, transition: None };
        }
        match self.collector.sample() {
            Ok(reading) => {
                let partial = self.collector.capabilities().partial_fields(&reading);
                let reason = reading
                    .missing
                    .first()
                    .map(|missing| || format!("{}: {}", missing.field, missing.reason));
                let transition = self.health.succeeded(partial, reason);
                Polled { sample: Some(reading.sample), transition }
            }
            Err(error) => Polled { sample: None, transition: self.health.failed(now_ns, &error) },
        }
    }

    /// How the collector is doing.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The collector itself.
    pub fn collector(&self) -> &C {
        &self.collector
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceCapabilities, Missing, Reading};
    use stormlog_model::Counter;

    const S: u64 = SECOND_NS;

    /// A collector that answers from a script; says so.
    struct ScriptedStandIn(Vec<Result<Reading, CollectError>>, DeviceCapabilities);

    fn scripted(answers: Vec<Result<Reading, CollectError>>) -> ScriptedStandIn {
        let counters = [Counter::Used, Counter::Total];
        ScriptedStandIn(answers, DeviceCapabilities::new("cpu", "stand-in", "script", &counters))
    }

    impl Collector for ScriptedStandIn {
        fn name(&self) -> &str {
            "stand-in"
        }
        fn is_available(&self) -> bool {
            true
        }
        fn sample(&mut self) -> Result<Reading, CollectError> {
            self.0.remove(0)
        }
        fn capabilities(&self) -> &DeviceCapabilities {
            &self.1
        }
    }

    fn whole() -> Result<Reading, CollectError> {
        Ok(DeviceSample { used: Some(1), total: Some(2), ..DeviceSample::default() }.into())
    }

    fn partial() -> Result<Reading, CollectError> {
        let mut reading = Reading::from(DeviceSample { used: Some(1), ..DeviceSample::default() });
        reading.missing.push(Missing { field: "total", reason: "refused".into() });
        Ok(reading)
    }

    fn broken() -> Result<Reading, CollectError> {
        Err(CollectError::ProcessGone { pid: 7 })
    }

    #[test]
    fn pauses_double_up_to_thirty_seconds() {
        let pauses: Vec<u64> = (0..8).map(|n| retry_delay_ns(n) / S).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(retry_delay_ns(u32::MAX), 30 * S);
    }

    #[test]
    fn one_failure_is_one_event_and_is_not_asked_again_too_early() {
        let mut collector =
            MonitoredCollector::new(scripted(vec![whole(), broken(), broken(), broken(), whole(), whole()]));
        assert_eq!(collector.poll(0).transition, None);
        assert_eq!(collector.poll(10).transition, Some(Transition::Degraded));
        assert_eq!(collector.health().state, HealthState::Degraded);
        // Within the pause nothing is asked: the script would otherwise move on.
        assert_eq!(collector.poll(S).sample, None);
        assert_eq!(collector.collector().0.len(), 4);
        assert_eq!(collector.health().retry_in_ns(S), Some(10));
        assert_eq!(collector.poll(S + 10).transition, None);
        collector.poll(3 * S + 10);
        assert_eq!(collector.health().state, HealthState::Unhealthy);
        assert_eq!(collector.health().next_retry_ns, Some(7 * S + 10));
        let polled = collector.poll(7 * S + 10);
        assert_eq!((polled.sample.is_some(), polled.transition), (true, Some(Transition::Recovered)));
        assert_eq!(collector.health().consecutive_failures, 0);
        assert_eq!(collector.health().last_error.as_deref(), Some("process 7 has exited"));
        assert_eq!(collector.poll(7 * S + 11).transition, None);
    }

    #[test]
    fn a_partial_reading_is_kept_and_named() {
        let mut collector = MonitoredCollector::new(scripted(vec![partial(), partial(), whole()]));
        let polled = collector.poll(0);
        assert_eq!(polled.sample.unwrap().total, None);
        assert_eq!(polled.transition, Some(Transition::Degraded));
        assert_eq!(collector.health().partial_fields, ["device_total_bytes"]);
        assert_eq!(collector.health().last_error.as_deref(), Some("total: refused"));
        assert_eq!(collector.poll(1).transition, None);
        assert_eq!(collector.poll(2).transition, Some(Transition::Recovered));
        assert!(collector.health().partial_fields.is_empty());
    }
}
