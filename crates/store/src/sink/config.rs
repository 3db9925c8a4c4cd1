//! The policy of a sink: when it flushes, rolls over, forgets and gives up.

use std::path::PathBuf;
use std::time::Duration;

use super::SinkError;

/// No wait is longer: far beyond any use, and small enough to add to a clock without overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// No wait is shorter: a background thread must not spin.
const SHORTEST: Duration = Duration::from_millis(1);

/// The policy of a sink; the defaults are those of 0.4.3.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkConfig {
    /// The directory, made when it is not there.
    pub root_dir: PathBuf,
    /// Flush when this many records wait.
    pub flush_every_events: u64,
    /// Flush when the last flush is this long ago.
    pub flush_every_seconds: f64,
    /// Begin a new segment once one has this size.
    pub rollover_max_bytes: u64,
    /// Begin a new segment once one has this many records.
    pub rollover_max_events: u64,
    /// Keep at most this many segments.
    pub retention_max_files: u64,
    /// Keep at most this much in segments.
    pub retention_max_total_bytes: u64,
    /// Write `rollups.json` on closing.
    pub write_rollups: bool,
    /// The length of a rollup window.
    pub rollup_window_seconds: u64,
    /// Bounded mode when given: at most this much waits in memory. What does not fit is dropped and counted, and a
    /// failed flush is counted and tried again later instead of raised.
    pub max_buffer_bytes: Option<u64>,
    /// Bounded mode: how long to leave the disk alone after the first failure. Doubles with each further one.
    pub failure_backoff_seconds: f64,
    /// Bounded mode: the longest it is left alone.
    pub failure_backoff_max_seconds: f64,
}

impl SinkConfig {
    /// The default policy for a directory.
    pub fn new(root_dir: impl Into<PathBuf>) -> Self {
        SinkConfig {
            root_dir: root_dir.into(),
            flush_every_events: 50,
            flush_every_seconds: 2.0,
            rollover_max_bytes: 64 << 20,
            rollover_max_events: 10_000,
            retention_max_files: 8,
            retention_max_total_bytes: 512 << 20,
            write_rollups: true,
            rollup_window_seconds: 60,
            max_buffer_bytes: None,
            failure_backoff_seconds: 1.0,
            failure_backoff_max_seconds: 60.0,
        }
    }

    /// Checks every rule, in the order 0.4.3 does.
    pub fn check(&self) -> Result<(), SinkError> {
        let count = |value: u64, rule| refuse(value == 0, rule, value as f64);
        count(self.flush_every_events, "flush_every_events must be >= 1")?;
        let seconds = self.flush_every_seconds;
        refuse(seconds <= 0.0, "flush_every_seconds must be > 0", seconds)?;
        count(self.rollover_max_bytes, "rollover_max_bytes must be >= 1")?;
        count(self.rollover_max_events, "rollover_max_events must be >= 1")?;
        count(self.retention_max_files, "retention_max_files must be >= 1")?;
        let total = self.retention_max_total_bytes;
        count(total, "retention_max_total_bytes must be >= 1")?;
        let rule = "retention_max_total_bytes must be >= rollover_max_bytes";
        refuse(total < self.rollover_max_bytes, rule, total as f64)?;
        count(self.rollup_window_seconds, "rollup_window_seconds must be >= 1")?;
        count(self.max_buffer_bytes.unwrap_or(1), "max_buffer_bytes must be >= 1")?;
        let backoff = self.failure_backoff_seconds;
        refuse(backoff <= 0.0, "failure_backoff_seconds must be > 0", backoff)?;
        let longest = self.failure_backoff_max_seconds;
        let rule = "failure_backoff_max_seconds must be >= failure_backoff_seconds";
        refuse(longest < backoff, rule, longest)
    }

    /// Whether failures are counted rather than raised.
    pub fn is_bounded(&self) -> bool {
        self.max_buffer_bytes.is_some()
    }

    /// The length of a rollup window.
    pub fn rollup_window_ns(&self) -> u64 {
        self.rollup_window_seconds.saturating_mul(1_000_000_000)
    }

    /// How often the background thread looks.
    pub(super) fn flush_interval(&self) -> Duration {
        wait(self.flush_every_seconds)
    }

    /// How long the disk is left alone after this many failures in a row.
    pub(super) fn backoff(&self, failures: u64) -> Duration {
        let doublings = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let delay = self.failure_backoff_seconds * 2f64.powi(doublings);
        wait(delay.min(self.failure_backoff_max_seconds))
    }
}

/// A number of seconds as a wait; what is not a number waits longest.
fn wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST)
}

fn refuse(broken: bool, rule: &'static str, given: f64) -> Result<(), SinkError> {
    if broken { Err(SinkError::Config { rule, given }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_its_setting() {
        let broken = |change: fn(&mut SinkConfig)| {
            let mut config = SinkConfig::new("x");
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(SinkConfig::new("x").check().is_ok());
        assert_eq!(broken(|c| c.flush_every_events = 0), "flush_every_events must be >= 1");
        assert_eq!(broken(|c| c.flush_every_seconds = -1.0), "flush_every_seconds must be > 0");
        assert_eq!(broken(|c| c.rollover_max_bytes = 0), "rollover_max_bytes must be >= 1");
        assert_eq!(broken(|c| c.rollover_max_events = 0), "rollover_max_events must be >= 1");
        assert_eq!(broken(|c| c.retention_max_files = 0), "retention_max_files must be >= 1");
        assert_eq!(broken(|c| c.retention_max_total_bytes = 0), "retention_max_total_bytes must be >= 1");
        assert_eq!(
            broken(|c| c.retention_max_total_bytes = 5),
            "retention_max_total_bytes must be >= rollover_max_bytes"
        );
        assert_eq!(broken(|c| c.rollup_window_seconds = 0), "rollup_window_seconds must be >= 1");
        assert_eq!(broken(|c| c.max_buffer_bytes = Some(0)), "max_buffer_bytes must be >= 1");
        assert_eq!(broken(|c| c.failure_backoff_seconds = 0.0), "failure_backoff_seconds must be > 0");
        assert_eq!(
            broken(|c| c.failure_backoff_max_seconds = 0.5),
            "failure_backoff_max_seconds must be >= failure_backoff_seconds"
        );
    }

    #[test]
    fn waits_are_sane_whatever_is_asked() {
        let mut config = SinkConfig::new("x");
        for seconds in [f64::NAN, f64::INFINITY, 1e300] {
            config.flush_every_seconds = seconds;
            assert_eq!(config.flush_interval(), LONGEST);
        }
        config.flush_every_seconds = 1e-12;
        assert_eq!(config.flush_interval(), SHORTEST);
        let delays: Vec<u64> = [1, 2, 3, 7, u64::MAX].iter().map(|n| config.backoff(*n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 60, 60]);
    }
}
