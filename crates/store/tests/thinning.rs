//! Logs of long runs thin with age, and stay bounded.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;
use std::sync::Arc;

use stormlog_model::{Counter, Counters, Event, Head, Metadata, Record};
use stormlog_ring::LogConfig;
use stormlog_store::recording::{EventLog, RecordedEvents};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn event(at_ns: u64, event_type: &str, bytes: u64) -> Event {
    let head = Head {
        session_id: "s".into(),
        event_type: event_type.into(),
        collector: "stormlog.process_tracker".into(),
        sampling_interval_ms: 1000,
        pid: 7,
        host: "h".into(),
        identity: Default::default(),
        device_id: -1,
    };
    let mut counters = Counters::UNKNOWN;
    counters.set(Counter::Used, Some(bytes));
    let metadata = Metadata { map: Record::new(), capabilities: Default::default(), inferred: true };
    Event { timestamp_ns: at_ns, counters, context: None, head: Arc::new(head), metadata: Arc::new(metadata) }
}

fn size(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// Three days of a sample in ten seconds, of which every hundredth is a peak.
const SAMPLES: u64 = 3 * 24 * 360;
const EVERY: u64 = 10 * SECOND;

fn write(directory: &Path) {
    let config =
        LogConfig { segment_bytes: 64 << 10, first_segment_bytes: Some(8 << 10), ..LogConfig::default() };
    let mut log = EventLog::create(directory, config).unwrap().thinning();
    assert!(log.append(&event(START, "start", 1)));
    for number in 1..=SAMPLES {
        let bytes = if number % 100 == 50 { 5000 + number } else { 1000 };
        assert!(log.append(&event(START + number * EVERY, "sample", bytes)), "{number}");
    }
}

#[test]
fn the_last_hour_is_whole_and_older_spans_keep_their_extremes() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("log");
    write(&directory);
    let mut events = RecordedEvents::log(&directory).unwrap();
    let read: Vec<Event> = events.by_ref().map(Result::unwrap).collect();
    assert!(stormlog_store::Events::notes(&events).is_empty(), "nothing is missing");
    assert_eq!(read[0].head.event_type, "start");
    assert!(read.is_sorted_by_key(|event| event.timestamp_ns));
    let end = START + SAMPLES * EVERY;
    let young = read.iter().filter(|event| event.timestamp_ns + 3600 * SECOND > end).count();
    assert_eq!(young, 360, "every sample");
    let old: Vec<&Event> =
        read.iter().filter(|event| event.timestamp_ns < START + 24 * 3600 * SECOND).collect();
    assert!(old.len() < 2 * 24 * 6 + 10, "two for ten minutes: {}", old.len());
    for peak in [5050, 5150, 13_550] {
        let found = old.iter().find(|event| event.counter(Counter::Used) == Some(peak)).unwrap();
        assert_eq!(found.timestamp_ns, START + (peak - 5000) * EVERY, "at its own time");
    }
    let number = |event: &Event, key: &str| event.metadata.map.get(key)?.as_u64();
    let samples = read.iter().filter(|event| event.head.event_type == "sample");
    let counted: u64 = samples.map(|event| number(event, "thinned_samples").unwrap_or(1)).sum();
    assert_eq!(counted, SAMPLES, "every sample counts once");
    let mean = number(old[old.len() / 2], "thinned_mean_bytes")
        .or(number(old[old.len() / 2 + 1], "thinned_mean_bytes"));
    assert!(mean.is_some_and(|mean| (1000..2000).contains(&mean)), "{mean:?}");
    assert!(size(&directory) < 256 << 10, "{}", size(&directory));
}
