//! Numbers as sentences say them. Must never be parsed back.

pub use stormlog_model::{format_duration as duration, format_rate as rate};

/// `1 event`, `3 events`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

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
}
