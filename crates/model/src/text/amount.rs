//! Byte sizes as people read and write them: one place, so that what is printed can be typed back. And times and rates in
//! sentences, which must never be parsed back.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A count of things: `1 234 567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `3.83 GiB`, `256.0 MiB`, `512 B`: at most four significant digits. The pages have the same rule (`say.js` of the render crate).
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 1;
    // Limits are those after rounding: what would be printed as 1024 is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = match value {
        value if value < 99.995 => 2,
        value if value < 999.95 => 1,
        _ => 0,
    };
    format!("{value:.places$} {}", UNITS[unit])
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const MIB: f64 = 1_048_576.0;

/// Seconds as `11 ms`, `3.2 s`, `41 min 12 s`, `2 h 5 min`, `9 days`.
pub fn format_duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".to_owned();
    }
    // Limits are those after rounding, so that 59.97 s is neither "60.0 s" nor "0 min 60 s".
    if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 59.95 {
        format!("{seconds:.1} s")
    } else {
        format_whole_seconds(seconds.round())
    }
}

/// The same without a fraction, for what is printed again each second: `0 s`, `12 s`, `1 min 0 s`.
pub fn format_whole_seconds(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".to_owned();
    }
    let whole = seconds.floor();
    if whole < MINUTE {
        format!("{whole:.0} s")
    } else if whole < HOUR {
        format!("{:.0} min {:.0} s", (whole / MINUTE).floor(), whole % MINUTE)
    } else if whole < 72.0 * HOUR {
        format!("{:.0} h {:.0} min", (whole / HOUR).floor(), ((whole % HOUR) / MINUTE).floor())
    } else {
        format!("{:.0} days", whole / (24.0 * HOUR))
    }
}

/// A span of a clock that counts nanoseconds, in the words of [`format_duration`].
pub fn nanoseconds_in_words(ns: u64) -> String {
    format_duration(ns as f64 / 1e9)
}

/// Bytes per second as `37.00 MiB/min`, in the unit of time that leaves a number people can picture.
pub fn format_rate(bytes_per_second: f64) -> String {
    let (per, unit) = if bytes_per_second >= 16.0 * MIB {
        (1.0, "s")
    } else if bytes_per_second * MINUTE >= MIB {
        (MINUTE, "min")
    } else {
        (HOUR, "h")
    };
    // A rate beyond what a counter can hold saturates; it is a sentence, not a measurement.
    format!("{}/{unit}", format_bytes((bytes_per_second.max(0.0) * per) as u64))
}

/// Reads `64MiB`, `1.5 GiB`, `512`, `10g`; decimal prefixes (`MB`) are taken as binary, which is what users mean.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        "e" | "eb" | "eib" => 6,
        _ => return None,
    };
    let bytes = number * 1024f64.powi(power);
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_people_read() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(4_112_377_610), "3.83 GiB");
        assert_eq!(format_bytes(5 << 50), "5.00 PiB");
        assert_eq!(format_bytes(u64::MAX), "16.00 EiB");
        assert_eq!(format_bytes(256 << 20), "256.0 MiB");
        assert_eq!(format_bytes(1000 << 20), "1000 MiB");
        assert_eq!(format_bytes((99 << 20) + 1_048_000), "100.0 MiB");
        assert_eq!(format_bytes((1023 << 20) + 600_000), "1.00 GiB");
    }

    #[test]
    fn times_and_rates_are_printed_with_units() {
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.0114, "11 ms"),
            (0.95, "950 ms"),
            (0.9996, "1.0 s"),
            (3.21, "3.2 s"),
            (59.4, "59.4 s"),
            (59.97, "1 min 0 s"),
            (2472.0, "41 min 12 s"),
            (3599.9, "1 h 0 min"),
            (7500.0, "2 h 5 min"),
            (9.0 * 86_400.0, "9 days"),
            (f64::NAN, "an unknown time"),
            (-1.0, "an unknown time"),
        ] {
            assert_eq!(format_duration(seconds), text);
        }
        assert_eq!(format_whole_seconds(12.9), "12 s");
        assert_eq!(format_whole_seconds(60.0), "1 min 0 s");
        assert_eq!(nanoseconds_in_words(7_260_000_000_000), "2 h 1 min");
        assert_eq!(format_rate(64.0 * MIB), "64.00 MiB/s");
        assert_eq!(format_rate(37.0 * MIB / 60.0), "37.00 MiB/min");
        assert_eq!(format_rate(1024.0), "3.52 MiB/h");
        assert_eq!(format_rate(-1.0), "0 B/h");
        assert!(format_rate(f64::INFINITY).ends_with("/s"));
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1204, 1_234_567].map(grouped), ["0", "999", "1 204", "1 234 567"]);
    }

    #[test]
    fn reads_what_people_type() {
        assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
        assert_eq!(parse_bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse_bytes("10g"), Some(10 << 30));
        assert_eq!(parse_bytes("512"), Some(512));
        assert_eq!(parse_bytes("2.00 EiB"), Some(2 << 60));
        for wrong in ["", "MiB", "1.2.3", "5 apples", "1e400"] {
            assert_eq!(parse_bytes(wrong), None, "{wrong}");
        }
    }
}
