//! The recorder itself was not well: some counters were missing for a while, so silence proves less.
//! Page: `docs/rules/collector_degraded.md`.

use serde_json::Value;
use stormlog_model::{Finding, Severity};

use super::{Observed, Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

/// The health the collector reported.
#[derive(Debug, Default, Clone)]
pub struct CollectorDegraded {
    degradations: u64,
    recoveries: u64,
    unwell_samples: u64,
    samples: u64,
    is_unhealthy: bool,
    since_ns: Option<u64>,
    last_error: Option<String>,
}

impl Rule for CollectorDegraded {
    fn observe(&mut self, observed: &Observed<'_>) {
        let event = observed.event;
        match event.head.event_type.as_str() {
            "collector_degraded" => self.degradations += 1,
            "collector_recovered" => self.recoveries += 1,
            _ => {}
        }
        self.samples += 1;
        let metadata = &event.metadata.map;
        let status = metadata.get("collector_health_status").and_then(Value::as_str);
        if !matches!(status, Some("degraded" | "unhealthy")) {
            return;
        }
        self.unwell_samples += 1;
        self.is_unhealthy |= status == Some("unhealthy");
        self.since_ns.get_or_insert(event.timestamp_ns);
        if let Some(error) = metadata.get("collector_last_error").and_then(Value::as_str)
            && self.last_error.as_deref() != Some(error)
        {
            self.last_error = Some(error.to_owned());
        }
    }
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        self.finding(context.stream).into_iter().collect()
    }
}

impl CollectorDegraded {
    /// The finding, if anything was reported.
    fn finding(&self, stream: &Stream) -> Option<Finding> {
        let watch = self;
        if watch.degradations == 0 && watch.unwell_samples == 0 {
            return None;
        }
        let has_recovered = watch.recoveries >= watch.degradations.max(1);
        let severity = if has_recovered && !watch.is_unhealthy { Severity::Info } else { Severity::Warning };
        let what = if watch.is_unhealthy { "failed" } else { "was degraded" };
        let title = format!("the collector {what} {} times", watch.degradations.max(1));
        let mut finding = about(stream, "collector.degraded", "collector_degraded", severity, 1.0, title);
        finding.message = watch.last_error.clone();
        finding.metrics.extend(metrics([
            ("degradations", watch.degradations.into()),
            ("recoveries", watch.recoveries.into()),
            ("events_while_unwell", watch.unwell_samples.into()),
            ("events", watch.samples.into()),
        ]));
        if let Some(pointer) = finding.evidence.first_mut() {
            pointer.start_ns = watch.since_ns;
        }
        finding.advice = advice([
            "Read the collector's last error; what it could not read is null in the events, not 0.",
            "During that time memory may have changed without being recorded.",
        ]);
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finding_of, finish, metadata, sample, with};

    #[test]
    fn a_recovered_collector_is_worth_a_word_an_unhealthy_one_a_warning() {
        let unwell = |at, status: &str| {
            let pairs = [("collector_health_status", status.into()), ("collector_last_error", "gone".into())];
            metadata(sample(at, 10), &pairs)
        };
        let of = |events: Vec<stormlog_model::Event>| finding_of(&finish(events), "collector_degraded");
        let degraded = with(unwell(1, "degraded"), "collector_degraded", "x");
        let recovered = with(sample(9, 10), "collector_recovered", "x");
        assert_eq!(of(vec![degraded.clone(), recovered]).unwrap().severity, Severity::Info);
        let found = of(vec![degraded, unwell(2, "unhealthy")]).unwrap();
        assert_eq!((found.severity, found.message.as_deref()), (Severity::Warning, Some("gone")));
        assert_eq!(of(vec![sample(0, 10)]), None);
    }
}
