//! The allocator had to empty its cache and try again: it works at the edge, and each retry stalls the device.
//! Page: `docs/rules/allocator_retries.md`.

use serde_json::Value;
use stormlog_model::alloc_conf::setting;
use stormlog_model::{Finding, Severity};

use super::{Observed, Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

/// The retries counter of the framework, as it was first and last seen.
#[derive(Debug, Default, Clone, Copy)]
pub struct AllocatorRetries {
    first: Option<u64>,
    last: Option<(u64, u64)>,
}

impl Rule for AllocatorRetries {
    fn observe(&mut self, observed: &Observed<'_>) {
        let event = observed.event;
        let metadata = &event.metadata.map;
        let Some(count) = metadata.get("num_alloc_retries").and_then(Value::as_u64) else { return };
        // A counter that was reset starts again.
        if self.first.is_none_or(|first| count < first) {
            self.first = Some(count);
        }
        self.last = Some((count, event.timestamp_ns));
    }

    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        self.finding(context.stream).into_iter().collect()
    }
}

impl AllocatorRetries {
    /// The finding, if the counter rose or did not start at 0.
    fn finding(&self, stream: &Stream) -> Option<Finding> {
        let watch = self;
        let ((last, at_ns), first) = (watch.last?, watch.first?);
        let rose = last.saturating_sub(first);
        if last == 0 {
            return None;
        }
        let title = format!("the allocator freed its cache and tried again {last} times");
        let mut finding =
            about(stream, "allocator.retries", "allocator_retries", Severity::Warning, 0.9, title);
        finding
            .metrics
            .extend(metrics([("num_alloc_retries", last.into()), ("retries_while_recorded", rose.into())]));
        if let Some(pointer) = finding.evidence.first_mut() {
            pointer.end_ns = Some(at_ns);
        }
        finding.advice = advice([
            "Lower the peak a little: it just fits, and each retry synchronises the device.",
            &format!(
                "Try {}, which returns cached memory to the driver page by page.",
                setting("expandable_segments:True", None)
            ),
        ]);
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finding_of, finish, metadata, sample};

    #[test]
    fn retries_are_counted_and_zero_is_silent() {
        let of = |counts: &[u64]| {
            let event = |(at, count): (usize, &u64)| {
                metadata(sample(at as u64, 10), &[("num_alloc_retries", (*count).into())])
            };
            let recording = finish(counts.iter().enumerate().map(event));
            finding_of(&recording, "allocator_retries")
        };
        assert_eq!(of(&[0, 0, 0]), None);
        let found = of(&[1, 1, 4]).unwrap();
        assert_eq!(found.metrics["retries_while_recorded"], 3);
        assert_eq!(found.severity, Severity::Warning);
    }
}
