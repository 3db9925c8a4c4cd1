//! Numbers as sentences say them: durations, rates, percentages.
//!
//! Must never be parsed back; `event::format_bytes` is for sizes.

use stormlog_event::format_bytes;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;

/// `41 min 12 s`, `2 h 05 min`, `3.2 s`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".to_owned();
    }
    // Rounded before it is split, so that 59.97 s is not "0 min 60 s".
    let whole = seconds.round();
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if whole < MINUTE {
        format!("{whole:.0} s")
    } else if whole < HOUR {
        format!("{:.0} min {:02.0} s", (whole / MINUTE).floor(), whole % MINUTE)
    } else {
        format!("{:.0} h {:02.0} min", (whole / HOUR).floor(), ((whole % HOUR) / MINUTE).floor())
    }
}

/// Nanoseconds between two instants, in seconds; a clock set back gives 0.
pub(crate) fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// `37.00 MiB/min`, in the unit of time that leaves a number people can picture.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    let (per, unit) = if bytes_per_second >= 16.0 * 1024.0 * 1024.0 {
        (1.0, "s")
    } else if bytes_per_second * MINUTE >= 1024.0 * 1024.0 {
        (MINUTE, "min")
    } else {
        (HOUR, "h")
    };
    // A rate beyond what a counter can hold saturates; it is a sentence, not a measurement.
    format!("{}/{unit}", format_bytes((bytes_per_second.max(0.0) * per) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (0.0, "0.0 s"),
            (3.21, "3.2 s"),
            (59.4, "59 s"),
            (59.97, "1 min 00 s"),
            (2472.0, "41 min 12 s"),
            (3599.9, "1 h 00 min"),
            (7500.0, "2 h 05 min"),
            (f64::NAN, "an unknown time"),
            (-1.0, "an unknown time"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate(64.0 * 1024.0 * 1024.0), "64.00 MiB/s");
        assert_eq!(rate(37.0 * 1024.0 * 1024.0 / 60.0), "37.00 MiB/min");
        assert_eq!(rate(1024.0), "3.52 MiB/h");
        assert_eq!(rate(-1.0), "0 B/h");
        assert!(rate(f64::INFINITY).ends_with("/s"));
    }
}
