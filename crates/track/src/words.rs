//! The sentences of 0.4.3's events: scripts match them, so they are spelt as it spells them.

use std::sync::Arc;

use crate::Wording;

/// `1.50 MB`: powers of 1024 under the decimal names, as 0.4.3 has them; 0 is `0 B` on a device and `0.00 B` on the host.
pub(crate) fn size(bytes: u64, wording: Wording) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let last = if wording == Wording::Cpu { 4 } else { 5 };
    if bytes == 0 && wording == Wording::Device {
        return "0 B".to_owned();
    }
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit < last {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

pub(crate) fn peak(bytes: u64, wording: Wording) -> Arc<str> {
    let size = size(bytes, wording);
    match wording {
        Wording::Cpu => format!("New CPU peak RSS: {size}").into(),
        Wording::Device => format!("New peak memory: {size}").into(),
    }
}

pub(crate) fn change(change: i64, wording: Wording) -> Arc<str> {
    let size = size(change.unsigned_abs(), wording);
    match (wording, change > 0) {
        (Wording::Cpu, true) => format!("RSS increased by {size}").into(),
        (Wording::Cpu, false) => format!("RSS decreased by {size}").into(),
        (Wording::Device, true) => format!("Memory allocated: {size}").into(),
        (Wording::Device, false) => format!("Memory freed: {size}").into(),
    }
}

pub(crate) fn sample(wording: Wording, partial: &[String]) -> Arc<str> {
    match (wording, partial) {
        (Wording::Cpu, _) => "Collected CPU telemetry sample.".into(),
        (Wording::Device, []) => "Collected telemetry sample.".into(),
        (Wording::Device, partial) => {
            format!("Collected partial telemetry sample ({}).", partial.join(", ")).into()
        }
    }
}

pub(crate) fn started(wording: Wording) -> &'static str {
    if wording == Wording::Cpu { "CPU memory tracking started" } else { "Memory tracking started" }
}

pub(crate) fn stopped(wording: Wording) -> &'static str {
    if wording == Wording::Cpu { "CPU memory tracking stopped" } else { "Memory tracking stopped" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_0_4_3() {
        assert_eq!(size(0, Wording::Device), "0 B");
        assert_eq!(size(0, Wording::Cpu), "0.00 B");
        assert_eq!(size(1536, Wording::Cpu), "1.50 KB");
        assert_eq!(size(3 << 50, Wording::Device), "3.00 PB");
        assert_eq!(size(3 << 50, Wording::Cpu), "3072.00 TB");
    }
}
