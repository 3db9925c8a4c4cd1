//! The sink's rules, on real directories: sessions, flushing, rollover, retention, re-opening, hostile manifests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_store::sink::{Sink, SinkConfig, SinkError, SinkManifest, read_manifest, segment_paths};

fn config(root: &Path) -> SinkConfig {
    SinkConfig { write_rollups: false, flush_every_events: 1, ..SinkConfig::new(root) }
}

fn open(config: SinkConfig) -> Sink {
    Sink::open(config, "host").unwrap()
}

fn manifest(root: &Path) -> SinkManifest {
    read_manifest(root).unwrap()
}

fn session(id: &str) -> SessionSummary {
    SessionSummary {
        session_id: id.into(),
        status: SessionStatus::Completed,
        started_at_ns: 5,
        ended_at_ns: Some(6),
        host: "h".into(),
        pid: 1,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "test".into(),
    }
}

#[test]
fn a_session_from_start_to_end() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(config(root.path()));
    let started = sink.start_session(Some(session("s"))).unwrap();
    assert_eq!((started.status, started.ended_at_ns), (SessionStatus::Running, None));
    // A second start gives the session that is open.
    assert_eq!(sink.start_session(Some(session("other"))).unwrap(), started);
    assert_eq!(sink.current_session(), Some(started));
    sink.append(r#"{"a": 1}"#, Some("s")).unwrap();
    sink.append(r#"{"a": 2}"#, None).unwrap();
    assert_eq!(manifest(root.path()).sessions[0].status, SessionStatus::Running);
    sink.close(SessionStatus::Incomplete).unwrap();
    assert_eq!(sink.current_session(), None);

    let manifest = manifest(root.path());
    assert_eq!(manifest.sessions[0].status, SessionStatus::Incomplete);
    assert!(manifest.sessions[0].ended_at_ns.is_some());
    let [segment] = manifest.segments.as_slice() else { panic!("{manifest:?}") };
    assert_eq!((segment.filename.as_str(), segment.event_count), ("segment-000001.jsonl", 2));
    assert_eq!((segment.size_bytes, segment.closed, segment.session_id.as_deref()), (18, true, Some("s")));
    let text = fs::read_to_string(root.path().join(&segment.filename)).unwrap();
    assert_eq!(text, "{\"a\": 1}\n{\"a\": 2}\n");
    assert!(!root.path().join("manifest.tmp").exists());
}

#[test]
fn a_record_of_another_session_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(config(root.path()));
    sink.append("{}", Some("one")).unwrap();
    let error = sink.append("{}", Some("two")).unwrap_err();
    assert_eq!(error.to_string(), "telemetry sink record session_id does not match the active session");
    assert!(matches!(error, SinkError::OtherSession { given, active } if given == "two" && active == "one"));
    assert!(matches!(sink.append("{\n}", None), Err(SinkError::LineBreak { at: 1 })));
    sink.close(SessionStatus::Completed).unwrap();
    sink.append("{}", Some("two")).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    // A segment belongs to one session.
    let of: Vec<_> = manifest(root.path()).segments.into_iter().map(|s| s.session_id.unwrap()).collect();
    assert_eq!(of, ["one", "two"]);
}

#[test]
fn flushes_by_count_by_time_and_on_demand() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(SinkConfig { flush_every_events: 3, flush_every_seconds: 1.0, ..config(root.path()) });
    let size = || fs::metadata(root.path().join("segment-000001.jsonl")).map_or(0, |meta| meta.len());
    sink.append("{}", None).unwrap();
    sink.flush(false).unwrap();
    assert_eq!((size(), sink.failure_diagnostics().buffered_records), (0, 1));
    sink.flush(true).unwrap();
    assert_eq!(size(), 3);
    for _ in 0..3 {
        sink.append("{}", None).unwrap();
    }
    assert_eq!(size(), 12);
    sink.append("{}", None).unwrap();
    for _ in 0..3000 {
        if size() == 15 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(size(), 15, "the thread flushes in time");
    assert!(has_flush_thread());
    sink.close(SessionStatus::Completed).unwrap();
    // And again after closing.
    sink.append("{}", None).unwrap();
    drop(sink);
    let last = fs::read_to_string(root.path().join("segment-000002.jsonl")).unwrap();
    assert_eq!(last, "{}\n", "a sink that is dropped keeps its records");
}

fn has_flush_thread() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim() == "stormlog-flush")
}

#[test]
fn rolls_over_and_forgets_the_oldest() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(SinkConfig { rollover_max_events: 2, retention_max_files: 3, ..config(root.path()) });
    for _ in 0..9 {
        sink.append("{}", None).unwrap();
    }
    sink.close(SessionStatus::Completed).unwrap();
    let names: Vec<_> = manifest(root.path()).segments.into_iter().map(|s| s.filename).collect();
    assert_eq!(names, ["segment-000003.jsonl", "segment-000004.jsonl", "segment-000005.jsonl"]);
    assert_eq!(segment_paths(root.path()).len(), 3);
    let seen = sink.diagnostics();
    assert_eq!((seen.rollover_count, seen.pruned_segment_count, seen.pruned_bytes), (4, 2, 12));
    assert_eq!((seen.final_retained_files, seen.final_retained_bytes), (3, 15));
}

#[test]
fn retention_counts_bytes_and_spares_the_open_segment() {
    let root = tempfile::tempdir().unwrap();
    let bounds = SinkConfig { rollover_max_bytes: 6, retention_max_total_bytes: 7, ..config(root.path()) };
    let sink = open(bounds);
    for _ in 0..5 {
        sink.append("{}", None).unwrap();
    }
    let left = manifest(root.path()).segments;
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].filename.as_str(), left[0].closed), ("segment-000003.jsonl", false));
}

#[test]
fn running_session_of_a_dead_writer_is_interrupted() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(config(root.path()));
    sink.append("{}", Some("dead")).unwrap();
    drop(sink); // as a crash leaves it: the session runs, its segment is open
    assert_eq!(manifest(root.path()).sessions[0].status, SessionStatus::Running);
    let path = root.path().join("segment-000001.jsonl");
    fs::write(&path, "{}\n{\"torn").unwrap();

    let sink = open(config(root.path()));
    let found = manifest(root.path());
    assert_eq!(found.sessions[0].status, SessionStatus::Interrupted);
    assert!(found.sessions[0].ended_at_ns.is_some() && found.segments[0].closed);
    sink.append("{}", Some("next")).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(manifest(root.path()).segments[1].filename, "segment-000002.jsonl");
    assert_eq!(fs::read_to_string(path).unwrap(), "{}\n{\"torn", "closed segments are left as they are");
}

#[test]
fn an_open_segment_is_taken_up_after_its_torn_line_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let text = r#"{"schema_version": 2, "sessions": [], "segments": [
        {"filename": "segment-000004.jsonl", "event_count": 99, "size_bytes": 99, "closed": false, "session_id": "s"}]}"#;
    fs::write(root.path().join("manifest.json"), text).unwrap();
    fs::write(root.path().join("segment-000004.jsonl"), "{}\n{}\n{\"to").unwrap();
    let sink = open(config(root.path()));
    sink.append("{}", Some("s")).unwrap();
    let left = manifest(root.path()).segments;
    assert_eq!((left.len(), left[0].event_count, left[0].size_bytes), (1, 3, 9));
    assert_eq!(fs::read_to_string(root.path().join("segment-000004.jsonl")).unwrap(), "{}\n{}\n{}\n");
}

#[test]
fn unlisted_segment_is_adopted_as_closed() {
    for manifest_text in [None, Some("{ broken"), Some(r#"{"schema_version": 2}"#)] {
        let root = tempfile::tempdir().unwrap();
        if let Some(text) = manifest_text {
            fs::write(root.path().join("manifest.json"), text).unwrap();
        }
        fs::write(root.path().join("segment-000007.jsonl"), "{}\n\n{}\n{").unwrap();
        let sink = open(config(root.path()));
        sink.append("{}", None).unwrap();
        let [adopted, new] = manifest(root.path()).segments.try_into().unwrap();
        assert_eq!((adopted.event_count, adopted.size_bytes, adopted.closed), (3, 8, true));
        assert_eq!((adopted.session_id, new.filename.as_str()), (None, "segment-000008.jsonl"));
    }
}

#[test]
fn a_hostile_manifest_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim.jsonl");
    fs::write(&victim, "{}\nprecious").unwrap();
    let root = outside.path().join("sink");
    fs::create_dir(&root).unwrap();
    let entry = |name: &str, closed: bool| {
        format!(r#"{{"filename": {name:?}, "closed": {closed}, "session_id": "s", "size_bytes": 99999}}"#)
    };
    let names = ["../victim.jsonl", victim.to_str().unwrap(), "..", ".", "", "a/../../victim.jsonl"];
    let entries: Vec<String> =
        names.iter().flat_map(|name| [entry(name, true), entry(name, false)]).collect();
    let text = format!(r#"{{"schema_version": 2, "segments": [{}]}}"#, entries.join(","));
    fs::write(root.join("manifest.json"), text).unwrap();
    std::os::unix::fs::symlink(&victim, root.join("segment-000001.jsonl")).unwrap();
    assert_eq!(read_manifest(&root).unwrap().segments, []);
    let small = SinkConfig { rollover_max_bytes: 1, retention_max_total_bytes: 1, ..config(&root) };
    let sink = open(SinkConfig { retention_max_files: 1, ..small });
    for _ in 0..3 {
        sink.append("{}", Some("s")).unwrap();
    }
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "{}\nprecious");
}

#[test]
fn special_files_do_not_hang_it() {
    let root = tempfile::tempdir().unwrap();
    let fifo = |name: &str| {
        let path = root.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
    };
    fifo("segment-000001.jsonl");
    fifo("manifest.json");
    assert_eq!(read_manifest(root.path()), None);
    assert!(segment_paths(root.path()).is_empty());
    let sink = open(config(root.path()));
    sink.append("{}", None).unwrap();
    // The name was taken by the FIFO: the next free one is used.
    assert_eq!(segment_paths(root.path()), [root.path().join("segment-000002.jsonl")]);
}

#[test]
fn many_threads_share_one() {
    let root = tempfile::tempdir().unwrap();
    let sink = open(SinkConfig { flush_every_events: 7, rollover_max_events: 50, ..config(root.path()) });
    sink.start_session(None).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| assert!(!sink.append("{}", None).unwrap())));
        }
    });
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(manifest(root.path()).segments.iter().map(|s| s.event_count).sum::<u64>(), 400);
}
