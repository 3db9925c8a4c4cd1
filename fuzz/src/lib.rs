//! What the targets share: files with the fuzzer's bytes in them, and reading to the end whatever comes.

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_model::{Event, Record, Schema, to_record};
use stormlog_store::{Format, Output, ReadOptions, Source};

/// A directory of this process alone: `fuzz/smoke` runs several.
pub fn directory() -> PathBuf {
    let path = std::env::temp_dir().join(format!("stormlog-fuzz-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a place for scratch files");
    path
}

/// A file with these bytes.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory().join(name);
    fs::write(&path, bytes).expect("room for scratch files");
    path
}

/// Reads a source both ways, to the end and past its errors; the events that were accepted.
pub fn read(source: &Source) -> Vec<Event> {
    let strict = ReadOptions { strict: true, session_id: Some("s".to_owned()), ..ReadOptions::default() };
    let strict_events = read_with(source, &strict);
    let lenient = ReadOptions { strict: false, ..strict };
    let events = read_with(source, &lenient);
    // Records are only judged more harshly, never understood differently.
    assert!(strict_events.len() <= events.len(), "strict reading accepts more than the other");
    events
}

fn read_with(source: &Source, options: &ReadOptions) -> Vec<Event> {
    let Ok(mut events) = source.events(options) else { return Vec::new() };
    let accepted = events.by_ref().filter_map(Result::ok).collect();
    let _ = events.notes();
    accepted
}

/// What was accepted must be written and read back with nothing changed.
pub fn assert_round_trip(events: &[Event], format: Format) {
    if events.is_empty() {
        return;
    }
    let path = directory().join("round-trip");
    let mut output = Output::create(&path, format, Schema::V4).expect("an output");
    for event in events {
        output.write(event).expect("room").expect("schema 4 can express every event");
    }
    output.finish().expect("a file");
    let source = match format {
        Format::Json => Source::Json(path),
        // By its extension: a first line that is a whole record could also be a lone one.
        Format::Jsonl => Source::Json(renamed(&path, "round-trip.jsonl")),
        Format::Csv => Source::Csv(path),
        Format::Parquet => Source::Parquet(path),
    };
    let again = read(&source);
    assert_eq!(records(events), records(&again), "{format:?} changed the events");
}

fn renamed(path: &Path, name: &str) -> PathBuf {
    let to = path.with_file_name(name);
    fs::rename(path, &to).expect("a rename");
    to
}

/// Events as the records they stand for: whether capabilities were stated or inferred is not part of them.
fn records(events: &[Event]) -> Vec<Record> {
    let record = |event| to_record(event, Schema::V4).expect("schema 4 can express every event");
    events.iter().map(record).collect()
}
