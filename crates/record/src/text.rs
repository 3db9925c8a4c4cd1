//! Times and rates as sentences say them.
//!
//! Must never be parsed back; `event::format_bytes` is for sizes.

pub(crate) use stormlog_event::{format_duration as duration, format_rate as rate};

/// Nanoseconds between two instants, in seconds; a clock set back gives 0.
pub(crate) fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}
