//! Rollups of real sinks: the same whatever the order of events, ignored once stale, never without bounds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "the names are those of the file's keys"
)]

use std::fs;
use std::path::Path;

use stormlog_model::SessionStatus;
use stormlog_store::sink::{
    RollupFile, Sink, SinkConfig, SinkError, read_rollups, rollup_sink, write_rollups,
};

const SECOND: u64 = 1_000_000_000;

/// A record of schema 4 with what the test is about.
fn record(at: u64, event_type: &str, rank: u64, used: u64, metadata: &str) -> String {
    format!(
        r#"{{"schema_version": 3, "session_id": "s", "timestamp_ns": {at}, "event_type": "{event_type}",
        "collector": "stormlog.cuda_tracker", "sampling_interval_ms": 100, "pid": 7, "host": "h", "device_id": 0,
        "allocator_allocated_bytes": 10, "allocator_reserved_bytes": 20, "allocator_active_bytes": null,
        "allocator_inactive_bytes": null, "allocator_change_bytes": 0, "device_used_bytes": {used},
        "device_free_bytes": null, "device_total_bytes": null, "context": null, "job_id": null, "rank": {rank},
        "local_rank": {rank}, "world_size": 4, "metadata": {{{metadata}}}}}"#
    )
    .replace('\n', " ")
}

fn records() -> Vec<String> {
    vec![
        record(100 * SECOND, "start", 0, 30, ""),
        record(101 * SECOND, "sample", 0, 40, r#""severity": "Level 3""#),
        record(102 * SECOND, "sample", 1, 90, r#""collector_health_status": " Unhealthy ""#),
        record(110 * SECOND, "collector_degraded", 0, 40, ""),
        record(115 * SECOND, "collector_degraded", 0, 40, ""),
        record(120 * SECOND, "collector_recovered", 0, 40, ""),
        record(170 * SECOND, "sample", 0, 90, r#""severity": "critical""#),
        record(171 * SECOND, "error", 0, 50, r#""oom_reason": "x", "oom_dump_path": "/b/1""#),
        record(172 * SECOND, "error", 0, 50, r#""oom_dump_path": "/b/1", "severity": "Level 9""#),
        record(240 * SECOND, "stop", 0, 50, ""),
    ]
}

/// The rollup of records in segments of three, without a manifest.
fn rolled(root: &Path, records: &[String]) -> RollupFile {
    for (index, lines) in records.chunks(3).enumerate() {
        fs::write(root.join(format!("segment-{:06}.jsonl", index + 1)), lines.join("\n") + "\n").unwrap();
    }
    rollup_sink(root, 60 * SECOND, None).unwrap()
}

#[test]
fn rollups_count_events_and_samples() {
    let root = tempfile::tempdir().unwrap();
    let rollups = rolled(root.path(), &records());
    let [session] = rollups.sessions.as_slice() else { panic!("{rollups:?}") };
    assert_eq!((session.event_count, session.sample_count, session.source_count), (10, 3, 4));
    assert_eq!(session.session.status, SessionStatus::Completed);
    assert_eq!(session.session.ended_at_ns, Some(240 * SECOND as i64));
    let peak = &session.counters.device_used_bytes;
    assert_eq!((peak.value, peak.timestamp_ns, peak.rank), (Some(90), Some(102 * SECOND), Some(1)));
    assert_eq!(session.alerts.total_count, 3);
    let severities: Vec<_> = session.alerts.severity_counts.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(severities, [("critical", 2), ("level <num>", 1)]);
    let health = &session.collector_health;
    assert_eq!((health.transition_count, health.degraded_time_ns), (3, 5 * SECOND));
    assert_eq!(health.last_status.as_deref(), Some("healthy"));
    assert_eq!((session.oom.marker_count, session.oom.bundle_path_count), (2, 1));
    let rank = &session.ranks[0];
    assert_eq!((rank.hidden_gap_first_bytes, rank.hidden_gap_latest_bytes), (Some(20), Some(70)));
    assert_eq!(rank.hidden_gap_drift_bytes_per_second, Some(0.724638));
    let windows: Vec<_> = session.windows.iter().map(|w| (w.index, w.event_count, w.rank_count)).collect();
    assert_eq!(windows, [(0, 6, 2), (1, 3, 1), (2, 1, 1)]);
    assert_eq!(session.windows[1].start_ns, 160 * i128::from(SECOND));
}

#[test]
fn the_order_of_events_does_not_matter() {
    let sorted_root = tempfile::tempdir().unwrap();
    let mut expected = rolled(sorted_root.path(), &records());
    for shift in 1..records().len() {
        let root = tempfile::tempdir().unwrap();
        let mut shuffled = records();
        shuffled.rotate_left(shift);
        shuffled.swap(0, 5);
        let mut rollups = rolled(root.path(), &shuffled);
        // Paths and the time of making differ of course.
        for file in [&mut rollups, &mut expected] {
            file.generated_at_ns = 0;
            file.sessions[0].sources_loaded.clear();
            file.sessions[0].session.source.clear();
        }
        assert_eq!(rollups, expected, "rotated by {shift}");
    }
}

#[test]
fn closing_writes_them_and_new_records_make_them_stale() {
    let root = tempfile::tempdir().unwrap();
    let sink = Sink::open(SinkConfig::new(root.path()), "h").unwrap();
    for line in records() {
        sink.append(&line, Some("s")).unwrap();
    }
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(sink.take_warnings(), [] as [String; 0]);
    let first = read_rollups(root.path()).unwrap();
    assert_eq!(first.coverage.retained_event_count, 10);
    assert_eq!((first.coverage.pruned_segment_count, first.coverage.pruned_bytes), (Some(0), Some(0)));
    for from in ["manifest.json", "rollups.json", "segment-000001.jsonl"] {
        assert_eq!(read_rollups(&root.path().join(from)).as_ref(), Some(&first), "{from}");
    }
    sink.append(&records()[1], Some("s")).unwrap();
    sink.flush(true).unwrap();
    assert_eq!(read_rollups(root.path()), None, "stale");
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(read_rollups(root.path()).unwrap().sessions[0].event_count, 11);
    let left: Vec<_> = fs::read_dir(root.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

#[test]
fn an_unreadable_segment_costs_the_rollups_only() {
    let root = tempfile::tempdir().unwrap();
    let sink = Sink::open(SinkConfig::new(root.path()), "h").unwrap();
    sink.append(r#"{"schema_version": 9}"#, None).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    let warnings = sink.take_warnings();
    assert!(warnings[0].starts_with("telemetry rollup write failed: "), "{warnings:?}");
    assert_eq!(read_rollups(root.path()), None);
}

#[test]
fn a_sink_without_segments_has_none() {
    let root = tempfile::tempdir().unwrap();
    let sink = Sink::open(SinkConfig::new(root.path()), "h").unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    let expected = format!("Telemetry sink {} retained no segments", root.path().display());
    assert_eq!(sink.take_warnings(), [format!("telemetry rollup write failed: {expected}")]);
    assert!(!root.path().join("rollups.json").exists());
}

#[test]
fn round_trips_and_refuses_what_does_not_fit() {
    let root = tempfile::tempdir().unwrap();
    let rollups = rolled(root.path(), &records());
    write_rollups(root.path(), &rollups).unwrap();
    assert_eq!(read_rollups(root.path()), Some(rollups.clone()));
    let value: serde_json::Value = serde_json::from_slice(&rollups.to_text()).unwrap();
    let refused = |change: fn(&mut serde_json::Value)| {
        let mut broken = value.clone();
        change(&mut broken);
        RollupFile::from_record(broken.as_object().unwrap()).unwrap_err().to_string()
    };
    assert_eq!(refused(|v| v["schema_version"] = 2.into()), "unsupported telemetry rollup schema_version");
    assert_eq!(refused(|v| v["format"] = 2.into()), "unsupported telemetry rollup format");
    assert_eq!(refused(|v| v["sessions"] = 2.into()), "sessions must be a list");
    assert_eq!(refused(|v| v["sessions"][0] = 2.into()), "sessions item must be an object");
    assert_eq!(refused(|v| v["coverage"]["retained_bytes"] = (-1).into()), "retained_bytes must be >= 0");
    assert_eq!(refused(|v| v["generated_at_ns"] = true.into()), "generated_at_ns must be an integer");
    assert_eq!(
        refused(|v| v["sessions"][0]["alerts"]["severity_counts"]["x"] = 1.5.into()),
        "severity_counts values must be non-negative integers"
    );
    assert_eq!(
        refused(|v| drop(v["sessions"][0]["oom"].as_object_mut().unwrap().remove("marker_count"))),
        "missing required marker_count"
    );
}

#[test]
fn more_windows_than_a_summary_has_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..4u64).map(|at| record(at * SECOND, "sample", 0, 1, "")).collect();
    fs::write(root.path().join("segment-000001.jsonl"), lines.join("\n") + "\n").unwrap();
    let mut budget = 5;
    let mut builder = stormlog_store::sink::RollupBuilder::new(0, SECOND);
    let events = stormlog_store::json::EventReader::open(
        &root.path().join("segment-000001.jsonl"),
        &stormlog_store::ReadOptions::default(),
    );
    let outcomes: Vec<bool> = events
        .unwrap()
        .map(|event| builder.observe(&(&event.unwrap()).into(), &mut budget).is_ok())
        .collect();
    assert_eq!((outcomes, budget), (vec![true; 4], 0), "one rank and four windows");
    let event = stormlog_store::sink::Observation {
        timestamp_ns: 9 * SECOND,
        event_type: "sample",
        rank: 0,
        local_rank: 0,
        world_size: 1,
        device_id: 0,
        allocated: None,
        reserved: None,
        used: None,
        severity: None,
        health_status: None,
        has_oom_mark: false,
        oom_dump_path: None,
    };
    assert!(matches!(builder.observe(&event, &mut budget), Err(SinkError::TooManyGroups { .. })));
}
