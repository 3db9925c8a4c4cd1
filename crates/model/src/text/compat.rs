//! Sizes as Stormlog 0.4.3 writes them into events and reports: scripts match these texts, so they are spelt as it spells them.

/// Where 0.4.3 prints a size: its two formatters differ at zero and beyond terabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formatter {
    /// `gpumemprof.utils.format_bytes`: `0 B`, up to petabytes.
    Device,
    /// `CPUMemoryTracker`: `0.00 B`, up to terabytes.
    Host,
}

/// `1.50 GB` for 1.5 · 2^30: powers of 1024 under the decimal names, sign kept.
#[must_use]
pub fn format_bytes(bytes: i128, formatter: Formatter) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let last = match formatter {
        Formatter::Device if bytes == 0 => return "0 B".to_owned(),
        Formatter::Device => 5,
        Formatter::Host => 4,
    };
    let mut value = bytes.unsigned_abs() as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < last {
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
    fn sizes_are_those_of_0_4_3() {
        assert_eq!(format_bytes(0, Formatter::Device), "0 B");
        assert_eq!(format_bytes(0, Formatter::Host), "0.00 B");
        assert_eq!(format_bytes(1023, Formatter::Device), "1023.00 B");
        assert_eq!(format_bytes(1536, Formatter::Host), "1.50 KB");
        assert_eq!(format_bytes(3 << 29, Formatter::Device), "1.50 GB");
        assert_eq!(format_bytes(3 << 50, Formatter::Device), "3.00 PB");
        assert_eq!(format_bytes(3 << 50, Formatter::Host), "3072.00 TB");
        assert_eq!(format_bytes(-1024, Formatter::Device), "-1.00 KB");
    }
}
