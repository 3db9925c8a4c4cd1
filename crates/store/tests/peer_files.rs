//! Files that stormlog 0.4.3 really wrote, read and compared with blessed events.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;

use common::{check_golden, golden, read_all, records};
use stormlog_model::Counter;
use stormlog_store::json::write::dumps;
use stormlog_store::{LoadOptions, load_sessions};

fn check(input: &str, expected: &str) {
    let path = golden().join("peer-0.4.3").join(input);
    let mut text = String::new();
    for record in records(&read_all(&path)) {
        text.push_str(&dumps(&record));
        text.push('\n');
    }
    // Synthetic ids come from the absolute path, which is another on every machine.
    let text = synthetic_ids_removed(&text);
    check_golden(expected, &text);
}

fn synthetic_ids_removed(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"legacy-") {
        let end = at + 1 + "legacy-".len() + 36;
        out.push_str(&rest[..at]);
        out.push_str("\"legacy-ID");
        rest = &rest[end..];
    }
    out + rest
}

#[test]
fn tracker_export_as_json() {
    check("cpu_tracker.json", "cpu_tracker.jsonl");
    check("cuda_tracker.json", "cuda_tracker.jsonl");
}

#[test]
fn tracker_export_as_csv_has_the_same_events() {
    check("cpu_tracker.csv", "cpu_tracker.jsonl");
    check("cuda_tracker_pandas.csv", "cuda_tracker.jsonl");
}

#[test]
fn tracker_run_with_a_session_summary() {
    check("tracker_run.json", "cuda_tracker.jsonl");
    let path = golden().join("peer-0.4.3/tracker_run.json");
    let sessions = load_sessions(&path, &LoadOptions::default()).unwrap();
    assert_eq!(sessions[0].summary.source, "stormlog.tracker");
}

#[test]
fn older_schemas() {
    check("v2.json", "v2.jsonl");
    check("v3.jsonl", "v3.jsonl");
}

#[test]
fn sink_segments() {
    check("sink", "sink.jsonl");
    check("sink/manifest.json", "sink.jsonl");
}

#[test]
fn an_oom_bundle_reloads_with_everything_it_held() {
    check("oom", "oom.jsonl");
    let events = read_all(&golden().join("peer-0.4.3/oom"));
    let last = events.last().unwrap();
    assert_eq!(last.counter(Counter::Used), Some(700), "0.4.3 itself reads 100 here");
    assert_eq!(last.counter(Counter::Active), Some(90));
    assert_eq!(events[0].counter(Counter::Allocated), None, "the start event knows nothing yet");
}

#[test]
fn a_diagnose_bundle() {
    check("diagnose", "diagnose.jsonl");
}

#[test]
fn a_directory_of_all_of_it() {
    let directory: &Path = &golden().join("peer-0.4.3");
    let sessions = load_sessions(directory, &LoadOptions::default()).unwrap();
    let with_events = sessions.iter().filter(|session| !session.events.is_empty()).count();
    assert!(with_events >= 4, "{with_events}");
}
