//! A rule of another crate is one type and one line: the recipe of CONTRIBUTING.md, followed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use stormlog_analyze::rules::{Observed, Rule, RuleContext, Rules, about};
use stormlog_analyze::{AnalysisOptions, Recording, analyze};
use stormlog_model::{Counter, Counters, Event, Finding, Head, Identity, Metadata, Record, Severity};

/// Speaks when memory was ever exactly a power of two.
#[derive(Debug, Default)]
struct PowersOfTwo {
    seen: u64,
}

impl Rule for PowersOfTwo {
    fn observe(&mut self, observed: &Observed<'_>) {
        self.seen += u64::from(observed.event.counter(Counter::Used).is_some_and(u64::is_power_of_two));
    }

    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        let title = format!("{} powers of two", self.seen);
        let finding = about(context.stream, "test.powers", "powers", Severity::Info, 1.0, title);
        (self.seen > 0).then_some(finding).into_iter().collect()
    }
}

fn sample(at_ns: u64, used: u64, pid: i64) -> Event {
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Used, Some(used));
    let collector = "stormlog.test_tracker";
    Event {
        timestamp_ns: at_ns,
        counters,
        context: None,
        head: Arc::new(Head {
            session_id: "s".into(),
            event_type: "sample".into(),
            collector: collector.into(),
            sampling_interval_ms: 100,
            pid,
            host: "h".into(),
            identity: Identity::default(),
            device_id: -1,
        }),
        metadata: Arc::new(Metadata::read(Record::new(), collector, &counters).unwrap()),
    }
}

fn titles(mut recording: Recording) -> Vec<String> {
    for (at, used) in [3, 4, 5, 8, 16].into_iter().enumerate() {
        recording.observe(&sample(at as u64, used, 1));
    }
    recording.observe(&sample(0, 7, 2));
    let analysis = analyze(recording, Vec::new(), &AnalysisOptions::default());
    analysis.findings.into_iter().map(|finding| finding.title).collect()
}

#[test]
fn an_added_rule_sees_every_event_of_each_stream_and_its_findings_are_reported() {
    let rules = Rules::default().with(|| Box::new(PowersOfTwo::default()));
    assert_eq!(titles(Recording::judged_by(rules)), ["3 powers of two (host, pid 1)"]);
    assert!(titles(Recording::default()).is_empty());
}
