//! Numbers as sentences say them. Must never be parsed back.

use stormlog_event::format_bytes;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const MIB: f64 = 1_048_576.0;

/// Bytes as 0.4.3's `format_bytes` writes them: `1.50 GB` for 1.5 · 2^30, `0 B`, sign kept.
pub fn python_bytes(bytes: i128) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    if bytes == 0 {
        return "0 B".to_owned();
    }
    let mut value = bytes.unsigned_abs() as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{value:.2} {}", UNITS[unit])
}

/// `41 min 12 s`, `2 h 05 min`, `3.2 s`, `9 days`.
pub fn duration(seconds: f64) -> String {
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
    } else if whole < 72.0 * HOUR {
        format!("{:.0} h {:02.0} min", (whole / HOUR).floor(), ((whole % HOUR) / MINUTE).floor())
    } else {
        format!("{:.0} days", whole / (24.0 * HOUR))
    }
}

/// `37.00 MiB/min`, in the unit of time that leaves a number people can picture.
pub fn rate(bytes_per_second: f64) -> String {
    let (per, unit) = if bytes_per_second >= 16.0 * MIB {
        (1.0, "s")
    } else if bytes_per_second * MINUTE >= MIB {
        (MINUTE, "min")
    } else {
        (HOUR, "h")
    };
    format!("{}/{unit}", format_bytes((bytes_per_second.max(0.0) * per) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_older_release() {
        assert_eq!(python_bytes(0), "0 B");
        assert_eq!(python_bytes(1023), "1023.00 B");
        assert_eq!(python_bytes(3 << 29), "1.50 GB");
        assert_eq!(python_bytes(-1024), "-1.00 KB");
    }

    #[test]
    fn times_and_rates_read_well() {
        assert_eq!(duration(3.21), "3.2 s");
        assert_eq!(duration(59.97), "1 min 00 s");
        assert_eq!(duration(7500.0), "2 h 05 min");
        assert_eq!(duration(9.0 * 86_400.0), "9 days");
        assert_eq!(duration(f64::NAN), "an unknown time");
        assert_eq!(rate(37.0 * MIB / 60.0), "37.00 MiB/min");
        assert_eq!(rate(1024.0), "3.52 MiB/h");
    }
}
