//! Leaks are found and healthy programs are left alone: on labelled traces, those the rule was tuned on and others.
#![allow(clippy::print_stdout, reason = "the scores are shown with --nocapture")]

mod traces;

use stormlog_analyze::series::{Envelope, growth};
use traces::Trace;

/// What `analyze` calls a leak at warning or above.
fn is_called_a_leak(trace: &Trace) -> bool {
    let mut envelope = Envelope::default();
    for (at, value) in &trace.samples {
        envelope.observe(*at, *value);
    }
    growth(&envelope).is_some_and(|found| found.shape.is_ongoing() && found.confidence >= 0.5)
}

struct Score {
    precision: f64,
    recall: f64,
    wrong: Vec<String>,
}

fn score(traces: &[Trace]) -> Score {
    let (mut found, mut missed, mut false_alarms) = (0.0, 0.0, 0.0);
    let mut wrong = Vec::new();
    for trace in traces {
        match (trace.leaks, is_called_a_leak(trace)) {
            (true, true) => found += 1.0,
            (true, false) => {
                missed += 1.0;
                wrong.push(format!("missed {}", trace.name));
            }
            (false, true) => {
                false_alarms += 1.0;
                wrong.push(format!("false alarm {}", trace.name));
            }
            (false, false) => {}
        }
    }
    Score { precision: found / (found + false_alarms), recall: found / (found + missed), wrong }
}

fn assert_good(name: &str, traces: &[Trace]) {
    let Score { precision, recall, wrong } = score(traces);
    println!("{name}: {} traces, precision {precision:.3}, recall {recall:.3}", traces.len());
    assert!(traces.len() >= 40);
    assert!(precision >= 0.95 && recall >= 0.95, "{precision:.3} {recall:.3}: {wrong:#?}");
}

#[test]
fn the_traces_the_rule_was_tuned_on() {
    let traces: Vec<Trace> = (1..=40).flat_map(|seed| traces::all(seed, traces::LONG)).collect();
    assert_good("tuned on", &traces);
}

#[test]
fn traces_of_seeds_never_looked_at() {
    let traces: Vec<Trace> = (5001..=5040).flat_map(|seed| traces::all(seed, traces::LONG)).collect();
    assert_good("held out", &traces);
}

#[test]
fn labelled_short_traces_get_their_verdict() {
    let traces: Vec<Trace> = (7001..=7020).flat_map(|seed| traces::all(seed, traces::SHORT)).collect();
    assert_good("short", &traces);
}

#[test]
fn recorded_programs() {
    let traces = traces::recorded();
    let Score { precision, recall, wrong } = score(&traces);
    println!("recorded: {} traces, precision {precision:.3}, recall {recall:.3} {wrong:?}", traces.len());
    assert!(traces.len() >= 10);
    assert!(precision >= 0.95 && recall >= 0.95, "{precision:.3} {recall:.3}: {wrong:#?}");
}
