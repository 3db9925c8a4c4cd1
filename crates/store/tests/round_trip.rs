//! What is written reads back as it was, in every format we write.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{read_all, records, varied_events};
use proptest::prelude::*;
use stormlog_model::{Event, Schema};
use stormlog_store::recording::{EventLog, EventRing};
use stormlog_store::{Format, Output};

fn written(events: &[Event], name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    let mut output = Output::create(&path, Format::of_path(&path).unwrap(), Schema::V4).unwrap();
    for event in events {
        output.write(event).unwrap().unwrap();
    }
    output.finish().unwrap();
    (directory, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn files_lose_nothing(seed: u64, count in 0usize..80) {
        let events = varied_events(seed, count);
        for name in ["events.json", "events.csv", "events.jsonl"] {
            let (_directory, path) = written(&events, name);
            let back = if count == 0 && name == "events.jsonl" { Vec::new() } else { read_all(&path) };
            if name.ends_with("jsonl") {
                // Sink lines have sorted keys: the objects are equal, their order is not kept.
                prop_assert_eq!(serde_json::json!(records(&back)), serde_json::json!(records(&events)));
            } else {
                prop_assert_eq!(records(&back), records(&events));
            }
        }
    }

    #[test]
    fn crash_safe_files_lose_nothing(seed: u64, count in 1usize..80) {
        let events = varied_events(seed, count);
        let directory = tempfile::tempdir().unwrap();
        let ring_path = directory.path().join("x.ring");
        let log_path = directory.path().join("log");
        let mut ring = EventRing::create(&ring_path, Default::default()).unwrap();
        let mut log = EventLog::create(&log_path, Default::default()).unwrap();
        for event in &events {
            prop_assert!(ring.append(event) && log.append(event));
        }
        for path in [&ring_path, &log_path] {
            prop_assert_eq!(&read_all(path), &events, "read while it is still open");
        }
        drop((ring, log));
        for path in [&ring_path, &log_path] {
            prop_assert_eq!(&read_all(path), &events);
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_loses_nothing() {
    for count in [0, 1, 33_000] {
        let events = varied_events(count as u64, count);
        let (_directory, path) = written(&events, "events.parquet");
        assert_eq!(records(&read_all(&path)), records(&events));
    }
}

#[test]
fn older_schemas_refuse_unknown_counters_instead_of_writing_zero() {
    let event = common::cuda_event("allocator_allocated_bytes", serde_json::Value::Null);
    let directory = tempfile::tempdir().unwrap();
    let mut output = Output::create(&directory.path().join("x.json"), Format::Json, Schema::V3).unwrap();
    let problem = output.write(&event).unwrap().unwrap_err();
    assert!(problem.message.contains("allocator_allocated_bytes is unknown"), "{problem}");
}

#[test]
fn an_unfinished_output_leaves_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.json");
    std::fs::write(&path, "before").unwrap();
    let mut output = Output::create(&path, Format::Json, Schema::V4).unwrap();
    output.write(&common::cuda_event("pid", 1.into())).unwrap().unwrap();
    drop(output);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
}

/// Files the fuzzer found: they made the library panic, kept it busy for minutes, took a gigabyte.
#[cfg(feature = "parquet")]
#[test]
fn damaged_parquet_is_an_error() {
    for name in ["parquet-panic", "parquet-hang", "parquet-outsized-page"] {
        let seed =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/parquet").join(name);
        let source = stormlog_store::Source::find(&seed).unwrap();
        let events: Vec<_> = match source[0].events(&stormlog_store::ReadOptions::default()) {
            Ok(events) => events.collect(),
            Err(error) => vec![Err(error)],
        };
        assert!(events.iter().any(Result::is_err), "{name}");
    }
}

#[test]
fn a_csv_file_is_known_by_its_header_whatever_its_name() {
    let events = varied_events(7, 20);
    let (directory, path) = written(&events, "events.csv");
    let renamed = directory.path().join("events.json");
    std::fs::rename(path, &renamed).unwrap();
    assert_eq!(records(&read_all(&renamed)), records(&events));
}
