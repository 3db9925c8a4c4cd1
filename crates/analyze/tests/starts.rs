//! Programs that only start are neither leaks nor undecided, and early leaks are, by how long they were seen: on recordings of real ones (`traces/starts.py`).
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use stormlog_analyze::{AnalysisOptions, Recording, analyze};
use stormlog_model::{Counter, Counters, Event, Head, Identity, Metadata, Record};

/// A sample as `stormlog run` records it.
fn event(program: &str, at_ns: u64, rss: u64, file_backed: Option<u64>) -> Event {
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Used, Some(rss));
    let expected = file_backed.map(|bytes| ("file_backed_bytes".to_owned(), bytes.into()));
    Event {
        timestamp_ns: at_ns,
        counters,
        context: None,
        head: Arc::new(Head {
            session_id: program.to_owned(),
            event_type: "sample".to_owned(),
            collector: "stormlog.process_tracker".to_owned(),
            sampling_interval_ms: 100,
            pid: 7,
            host: "h".to_owned(),
            identity: Identity::default(),
            device_id: -1,
        }),
        metadata: Arc::new(
            Metadata::read(Record::from_iter(expected), "stormlog.process_tracker", &counters).unwrap(),
        ),
    }
}

/// Programs, whether they leak, and whether they are suspected, with or without what is recorded of files.
fn judged(with_file_backed: bool) -> Vec<(&'static str, bool, bool)> {
    let lines = include_str!("traces/starts.csv").lines().skip(1);
    let rows: Vec<[&str; 5]> =
        lines.map(|line| line.split(',').collect::<Vec<_>>().try_into().unwrap()).collect();
    let programs = rows.chunk_by(|a, b| a[0] == b[0]);
    programs
        .map(|rows| {
            let mut recording = Recording::default();
            for [name, _, at, rss, file] in rows {
                let file = file.parse().ok().filter(|_| with_file_backed);
                recording.observe(&event(name, at.parse().unwrap(), rss.parse().unwrap(), file));
            }
            let found = analyze(recording, Vec::new(), &AnalysisOptions::default()).findings;
            (
                rows[0][0],
                rows[0][1] == "1",
                found.iter().any(|finding| finding.kind == "leak" || finding.undecided),
            )
        })
        .collect()
}

#[test]
fn start_is_not_suspected_and_an_early_leak_is() {
    let expected = judged(true);
    assert_eq!(expected.len(), 8);
    for (program, leaks, is_suspected) in expected {
        assert_eq!(leaks, is_suspected, "{program}");
    }
    let without_file_backed = judged(false);
    assert!(
        without_file_backed.iter().any(|(_, leaks, is_suspected)| !leaks && *is_suspected),
        "what is known of files decides"
    );
}
