//! Raises alerts: thresholds with hysteresis, and forecasts of when a limit is reached.
//!
//! Pure: clocks and readings are handed in, so that the same readings always give the same alerts. This crate must never do I/O, print, start a
//! thread, or turn an unknown number into 0.
#![forbid(unsafe_code)]

pub mod alerts;
mod latch;
pub mod predict;

/// Nanoseconds between two instants, in seconds; a clock set back gives 0.
pub(crate) fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}
