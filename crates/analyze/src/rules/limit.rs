//! Memory came close to its limit: the next allocation may fail. Page: `docs/rules/near_limit.md`.

use stormlog_model::{Counter, Event, Finding, Severity, format_bytes};

use super::{Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

/// The one id of this rule.
pub const ID: &str = "limit.near";
/// A share of the limit that leaves no room for an accident.
const NEAR: f64 = 0.95;
/// A share worth knowing; 0.4.3's diagnose calls it high.
const HIGH: f64 = 0.85;

/// The highest share of the limit that was in use.
#[derive(Debug, Default, Clone, Copy)]
pub struct LimitShare {
    most: Option<Highest>,
    least_total: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Highest {
    share: f64,
    used: u64,
    total: u64,
    at_ns: u64,
}

impl LimitShare {
    /// The limit, where it is known: the least that was recorded. A sample with more resident than its limit, which does not count all shared pages, has
    /// that amount as its total.
    pub(crate) fn total(&self) -> Option<u64> {
        self.least_total
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        let Some(total) = event.counter(Counter::Total).filter(|total| *total > 0) else { return };
        // A caching allocator may reserve all of a device and be well: on a device what counts is what is handed out.
        let on_device = event.head.device_id >= 0;
        let handed_out = event.counter(Counter::Allocated).filter(|_| on_device);
        let Some(used) = handed_out.or(event.counter(Counter::Used)) else { return };
        let share = used as f64 / total as f64;
        self.least_total = Some(self.least_total.map_or(total, |least| least.min(total)));
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

/// Whether a device is seen from outside only by this stream, and from inside by another one of its process: then the pool that an allocator holds,
/// which may be nearly all of the device by design, is not judged.
pub(crate) fn is_judged_inside(stream: &Stream, streams: &[&Stream]) -> bool {
    let counts = |stream: &Stream| stream.reserved.peak().is_some_and(|bytes| bytes > 0);
    !stream.is_host()
        && !counts(stream)
        && streams.iter().any(|other| counts(other) && other.is_same_memory(stream))
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
    let mut finding = about(stream, ID, "near_limit", severity, 0.9, title);
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
        "If this is intended (a pool sized to the device), set a budget: `stormlog check --max-peak`.",
    ]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, gpu};

    #[test]
    fn a_pool_that_is_counted_from_inside_is_not_judged_from_outside() {
        let seen = |inside: bool| {
            let mut recording = crate::recording::Recording::default();
            for (id, allocated, reserved) in [("outside", None, None), ("inside", Some(10), Some(97))] {
                if id == "inside" && !inside {
                    continue;
                }
                recording.next_source();
                let mut event = gpu(1, 0, 0, 97, 100);
                let head = stormlog_model::Head { session_id: id.into(), ..(*event.head).clone() };
                event.head = std::sync::Arc::new(head);
                event.counters.set(Counter::Allocated, allocated);
                event.counters.set(Counter::Reserved, reserved);
                recording.observe(&event);
            }
            recording.join(["outside", "inside"].into_iter());
            let found = crate::analyze(recording, Vec::new(), &crate::AnalysisOptions::default()).findings;
            found.iter().filter(|finding| finding.id == ID).count()
        };
        assert_eq!((seen(false), seen(true)), (1, 0));
    }

    #[test]
    fn limit_counts_allocated_and_not_cached_memory() {
        let of = |allocated: u64, reserved: u64| {
            let recording = finish([gpu(1, allocated, reserved, reserved, 100)]);
            finding(&recording.sessions[0].ranks[0].streams[0]).map(|found| found.severity)
        };
        assert_eq!(of(50, 99), None);
        assert_eq!(of(90, 99), Some(Severity::Info));
        assert_eq!(of(96, 99), Some(Severity::Warning));
    }
}
