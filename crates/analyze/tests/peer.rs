//! The same recordings through 0.4.3 and through ours: the same gaps, intervals and suspects, number by number.
//!
//! `tests/golden/analysis/cases.json` was written by 0.4.3 itself (`make.py` beside it). Floats are compared to the last digit
//! that 0.4.3 rounds to.
#![allow(clippy::unwrap_used, reason = "a test stops at what cannot be")]

use std::fs;

use serde_json::{Map, Value};
use stormlog_analyze::rules::collective::CollectiveConfig;
use stormlog_analyze::rules::gap::{FragmentationSeen, GapThresholds, hidden_gaps};
use stormlog_analyze::{AnalysisOptions, Recording, Sample, analyze};
use stormlog_model::{Counter, Defaults, Event, Interner, event_from_record};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/analysis/cases.json");

fn cases() -> Vec<(String, Vec<Event>, Value)> {
    let all: Value = serde_json::from_str(&fs::read_to_string(CASES).unwrap()).unwrap();
    let base = all["base"].as_object().unwrap();
    let mut interner = Interner::default();
    let mut event = |row: &Value| {
        let mut record: Map<String, Value> = base.clone();
        record.extend(row.as_object().unwrap().clone());
        event_from_record(&record, &Defaults::default(), &mut interner).unwrap()
    };
    let case = |(name, case): (&String, &Value)| {
        let events = case["rows"].as_array().unwrap().iter().map(&mut event).collect();
        (name.clone(), events, case.clone())
    };
    all["cases"].as_object().unwrap().iter().map(case).collect()
}

fn recorded(events: &[Event]) -> Recording {
    let mut recording = Recording::default();
    events.iter().for_each(|event| recording.observe(event));
    recording
}

/// Equal, numbers by value: 0.4.3 writes whole floats as `5.0`.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        _ => ours == theirs,
    }
}

fn assert_same(name: &str, ours: &Value, theirs: &Value) {
    assert!(same(ours, theirs), "{name}:\nours   {ours}\ntheirs {theirs}");
}

#[test]
fn hidden_gaps_equal_those_of_0_4_3() {
    let mut compared = 0;
    for (name, events, expected) in cases() {
        let samples: Vec<Sample> = events.iter().filter_map(Sample::of).collect();
        let mut fragmentation = FragmentationSeen::default();
        for event in &events {
            let counters = event.counter(Counter::Inactive).zip(event.counter(Counter::Reserved));
            if let Some((inactive, reserved)) = counters {
                fragmentation.observe(event.timestamp_ns, inactive as f64 / reserved as f64);
            }
        }
        let found = hidden_gaps(&samples, &fragmentation, &GapThresholds::default());
        let theirs = expected["gap_analysis"].as_array().unwrap();
        assert_eq!(found.len(), theirs.len(), "{name}");
        for (ours, theirs) in found.iter().zip(theirs) {
            assert_eq!(ours.class.as_str(), theirs["classification"], "{name}");
            assert_eq!(ours.severity.as_str(), theirs["severity"], "{name}");
            assert_same(&name, &ours.confidence.into(), &theirs["confidence"]);
            assert_same(&name, &Value::Object(ours.evidence.clone()), &theirs["evidence"]);
            assert_eq!(ours.description, theirs["description"], "{name}");
            assert_eq!(theirs["evidence_timestamp_ns"], ours.at_ns, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared} gaps compared");
}

#[test]
fn phases_of_gaps_equal_those_of_0_4_3() {
    let (_, events, expected) = cases().into_iter().find(|(name, ..)| name == "phases").unwrap();
    let found = analyze(recorded(&events), Vec::new(), &AnalysisOptions::default());
    let phase = found.gaps[0].phase.as_ref().unwrap().to_record();
    assert_same("phases", &phase.into(), &expected["gap_analysis"][0]["phase_attribution"]);
}

#[test]
fn collective_intervals_equal_those_of_0_4_3() {
    let mut compared = 0;
    for (name, events, expected) in cases() {
        for preset in ["low", "medium", "high"] {
            let collective = CollectiveConfig::preset(preset).unwrap();
            let options = AnalysisOptions { collective, ..AnalysisOptions::default() };
            let found = analyze(recorded(&events), Vec::new(), &options).collective;
            let ours: Value = found.iter().map(|interval| Value::Object(interval.to_record())).collect();
            assert_same(&format!("{name} {preset}"), &ours, &expected["collective"][preset]);
            compared += found.len();
        }
    }
    assert!(compared >= 20, "{compared} intervals compared");
}

#[test]
fn suspects_equal_those_of_0_4_3() {
    let mut compared = 0;
    for (name, events, expected) in cases() {
        let found = analyze(recorded(&events), Vec::new(), &AnalysisOptions::default());
        let Some(job) = found.jobs.first() else { continue };
        let mut ours = job.to_record();
        // What 0.4.3 does not have.
        ours.shift_remove("alignment");
        assert_same(&name, &ours.into(), &expected["cross_rank"]);
        compared += 1;
    }
    assert!(compared >= 3, "{compared} jobs compared");
}

/// With STORMLOG_PEER_PYTHON (an interpreter that has stormlog 0.4.3) the file itself is held against the real package.
#[test]
fn expected_file_equals_the_output_of_0_4_3() {
    let Some(python) = std::env::var_os("STORMLOG_PEER_PYTHON") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/analysis/make.py");
    let output = std::process::Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fresh: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept: Value = serde_json::from_str(&fs::read_to_string(CASES).unwrap()).unwrap();
    assert_eq!(fresh, kept);
}
