//! What a sink lost and what failed: counted, kept small, and said once a streak.

use std::time::Instant;

use super::{SinkConfig, SinkError};

/// Warnings kept until the caller takes them; more in a row add nothing.
const MAX_WARNINGS: usize = 16;

/// A sink's buffer and losses at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureDiagnostics {
    /// Records waiting for a flush.
    pub buffered_records: u64,
    /// Bytes waiting for a flush.
    pub buffered_bytes: u64,
    /// Records dropped because they did not fit or could not be written.
    pub dropped_records: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Failed writes of segments, manifests and removals.
    pub flush_failures: u64,
    /// Those since the last success.
    pub consecutive_flush_failures: u64,
    /// The last failure, as Python would print it.
    pub last_flush_error: Option<String>,
}

/// The counters behind [`FailureDiagnostics`], and when the disk may be tried again.
#[derive(Debug, Default)]
pub(super) struct Failures {
    pub(super) dropped_records: u64,
    pub(super) dropped_bytes: u64,
    pub(super) total: u64,
    pub(super) consecutive: u64,
    pub(super) last: Option<String>,
    retry_at: Option<Instant>,
    warnings: Vec<String>,
}

impl Failures {
    /// Counts a failure and puts the next attempt off.
    pub(super) fn record(&mut self, error: &SinkError, config: &SinkConfig) {
        self.total += 1;
        self.consecutive += 1;
        let text = error.with_python_class();
        if self.consecutive == 1 {
            self.warn(format!("telemetry sink flush failed: {text}"));
        }
        self.last = Some(text);
        self.retry_at = Instant::now().checked_add(config.backoff(self.consecutive));
    }

    /// Counts records that are lost.
    pub(super) fn dropped(&mut self, records: u64, bytes: u64) {
        self.dropped_records += records;
        self.dropped_bytes += bytes;
    }

    /// Whether the disk may be tried again.
    pub(super) fn may_retry(&self) -> bool {
        self.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Keeps a warning for the caller to print: a sink prints nothing itself.
    pub(super) fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text);
        }
    }

    /// Whether warnings wait.
    pub(super) fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    /// The warnings since the last time.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
