//! Memory came close to its limit: the next allocation may fail. Page: `docs/rules/near_limit.md`.

use stormlog_model::{Counter, Event, Finding, Severity, format_bytes};

use super::{Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

/// A share of the limit that leaves no room for an accident.
const NEAR: f64 = 0.95;
/// A share worth knowing; 0.4.3's diagnose calls it high.
const HIGH: f64 = 0.85;

/// The highest share of the limit that was in use.
#[derive(Debug, Default, Clone, Copy)]
pub struct LimitShare {
    most: Option<Highest>,
}

#[derive(Debug, Clone, Copy)]
struct Highest {
    share: f64,
    used: u64,
    total: u64,
    at_ns: u64,
}

impl LimitShare {
    /// The limit, where it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.most.map(|most| most.total)
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        let Some(total) = event.counter(Counter::Total).filter(|total| *total > 0) else { return };
        // A caching allocator may reserve all of a device and be well: on a device what counts is what is handed out.
        let on_device = event.head.device_id >= 0;
        let handed_out = event.counter(Counter::Allocated).filter(|_| on_device);
        let Some(used) = handed_out.or(event.counter(Counter::Used)) else { return };
        let share = used as f64 / total as f64;
        if self.most.is_none_or(|most| share > most.share) {
            self.most = Some(Highest { share, used, total, at_ns: event.timestamp_ns });
        }
    }
}

/// The rule: the highest share is close to the limit.
#[derive(Debug, Default)]
pub struct NearLimit;

impl Rule for NearLimit {
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        finding(context.stream).into_iter().collect()
    }
}

/// The finding, if it came close.
fn finding(stream: &Stream) -> Option<Finding> {
    let most = stream.facts.limit.most.filter(|most| most.share >= HIGH)?;
    let severity = if most.share >= NEAR { Severity::Warning } else { Severity::Info };
    let title = format!(
        "{:.0} % of the limit in use: {} of {}",
        most.share * 100.0,
        format_bytes(most.used),
        format_bytes(most.total)
    );
    let mut finding = about(stream, "limit.near", "near_limit", severity, 0.9, title);
    finding.metrics.extend(metrics([
        ("utilization_ratio", most.share.into()),
        ("used_bytes", most.used.into()),
        ("limit_bytes", most.total.into()),
    ]));
    if let Some(pointer) = finding.evidence.first_mut() {
        (pointer.start_ns, pointer.end_ns) = (Some(most.at_ns), Some(most.at_ns));
    }
    finding.advice = advice([
        "Leave room: a longer sequence or one more worker will not fit.",
        "If this is meant (a pool sized to the device), say so with a budget: `stormlog check --max-peak`.",
    ]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, gpu};

    #[test]
    fn what_is_handed_out_counts_not_what_is_cached() {
        let of = |allocated: u64, reserved: u64| {
            let recording = finish([gpu(1, allocated, reserved, reserved, 100)]);
            finding(&recording.sessions[0].ranks[0].streams[0]).map(|found| found.severity)
        };
        assert_eq!(of(50, 99), None);
        assert_eq!(of(90, 99), Some(Severity::Info));
        assert_eq!(of(96, 99), Some(Severity::Warning));
    }
}
