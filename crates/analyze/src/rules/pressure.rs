//! The machine was short of memory: swapping, or processes stalled on it. Page: `docs/rules/pressure.md`.

use serde_json::Value;
use stormlog_model::{Finding, Severity, format_bytes};

use super::{Observed, Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

/// A stall of this share of the last ten seconds is felt.
const SOME_AVG10: f64 = 20.0;
/// All tasks stalled this much is thrashing.
const FULL_AVG10: f64 = 10.0;
/// Less swap than this is housekeeping.
const LEAST_SWAP: u64 = 256 << 20;

/// The worst that was reported.
#[derive(Debug, Default, Clone, Copy)]
pub struct MemoryPressure {
    swap: Option<u64>,
    some: Option<f64>,
    full: Option<f64>,
    at_ns: u64,
}

impl Rule for MemoryPressure {
    fn observe(&mut self, observed: &Observed<'_>) {
        let event = observed.event;
        let metadata = &event.metadata.map;
        if metadata.len() < 2 {
            return;
        }
        let number =
            |keys: [&str; 2]| keys.into_iter().find_map(|key| metadata.get(key)).and_then(Value::as_f64);
        let swap = number(["process_swap_bytes", "swap_bytes"]).map(|bytes| bytes.max(0.0) as u64);
        let some = number(["psi_some_avg10", "memory_pressure_some_avg10"]);
        let full = number(["psi_full_avg10", "memory_pressure_full_avg10"]);
        let is_worse = swap > self.swap || some > self.some || full > self.full;
        if is_worse {
            self.swap = self.swap.max(swap);
            self.some = if some > self.some { some } else { self.some };
            self.full = if full > self.full { full } else { self.full };
            self.at_ns = event.timestamp_ns;
        }
    }
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        self.finding(context.stream).into_iter().collect()
    }
}

impl MemoryPressure {
    /// The finding, if it was felt.
    fn finding(&self, stream: &Stream) -> Option<Finding> {
        let watch = self;
        let is_swapping = watch.swap.is_some_and(|swap| swap >= LEAST_SWAP);
        let is_thrashing = watch.full.is_some_and(|full| full >= FULL_AVG10);
        let is_stalled = watch.some.is_some_and(|some| some >= SOME_AVG10);
        if !(is_swapping || is_thrashing || is_stalled) {
            return None;
        }
        let mut parts = Vec::new();
        if let Some(swap) = watch.swap.filter(|_| is_swapping) {
            parts.push(format!("{} swapped out", format_bytes(swap)));
        }
        if let Some(some) = watch.some.filter(|_| is_stalled) {
            parts.push(format!("tasks stalled on memory {some:.0} % of the time"));
        }
        if let Some(full) = watch.full.filter(|_| is_thrashing) {
            parts.push(format!("all tasks at once {full:.0} %"));
        }
        let severity = if is_thrashing { Severity::Critical } else { Severity::Warning };
        let title = format!("the machine was short of memory: {}", parts.join(", "));
        let mut finding = about(stream, "host.pressure", "memory_pressure", severity, 0.9, title);
        finding.metrics.extend(metrics([
            ("swap_bytes", watch.swap.into()),
            ("psi_some_avg10", watch.some.into()),
            ("psi_full_avg10", watch.full.into()),
        ]));
        if let Some(pointer) = finding.evidence.first_mut() {
            pointer.end_ns = Some(watch.at_ns);
        }
        finding.advice = advice([
            "Give the job more memory, or run fewer jobs on the machine: a process that swaps or stalls does no work.",
            "Lower the number of data-loader workers; each holds its own copy of what it touches.",
        ]);
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finding_of, finish, metadata, sample};

    #[test]
    fn pressure_rule_reports_swap_and_stalls_and_not_idle() {
        let of = |pairs: &[(&str, Value)]| {
            let recording = finish([metadata(sample(1, 10), pairs)]);
            finding_of(&recording, "memory_pressure")
        };
        assert_eq!(of(&[("psi_some_avg10", 1.5.into()), ("swap_bytes", 4096.into())]), None);
        assert_eq!(of(&[("process_swap_bytes", (1_u64 << 30).into())]).unwrap().severity, Severity::Warning);
        let thrashing = of(&[("psi_full_avg10", 40.0.into()), ("psi_some_avg10", 60.0.into())]).unwrap();
        assert_eq!(thrashing.severity, Severity::Critical);
        assert!(thrashing.title.contains("all tasks at once 40 %"));
    }
}
