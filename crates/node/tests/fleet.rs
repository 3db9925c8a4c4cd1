//! The reader of a fleet over directories that are written here as a supervisor and a tracker write them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stormlog_catalog::run::{RunDirectory, RunStart};
use stormlog_model::{
    Counter, Counters, Event, Head, Identity, Metadata, SessionStatus, SessionSummary, new_session_id,
};
use stormlog_node::{Fleet, Item, Overview};
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::wall_ns;

const BUDGET: Duration = Duration::from_secs(30);

/// A run that its supervisor ended.
fn ended_run(root: &Path, number: i64) {
    let command = ["train.py".into()];
    let started_at_ns = 1_700_000_000_000_000_000 + number * 1_000_000_000;
    let run = RunDirectory::create(root, &command, started_at_ns, false).unwrap();
    let start = RunStart {
        command: &command,
        host: "node",
        started_at_ns,
        interval_ms: 100,
        records_environment: false,
    };
    let mut record = start.to_record();
    record.insert("status".to_owned(), "completed".into());
    record.insert("ended_at_ns".to_owned(), (started_at_ns + 5).into());
    run.write(&record).unwrap();
}

/// A tracker's recording of this process, with samples that grow.
fn tracked(directory: &Path, samples: u64) -> Recorder {
    let pid = i64::from(std::process::id());
    let summary = SessionSummary {
        session_id: new_session_id(),
        status: SessionStatus::Running,
        started_at_ns: i64::try_from(wall_ns()).unwrap(),
        ended_at_ns: None,
        host: "node".to_owned(),
        pid,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "tracker".to_owned(),
    };
    let config = RecorderConfig { keep_log: true, ..RecorderConfig::default() };
    let mut recorder = Recorder::create(directory, summary, &config).unwrap();
    for number in 1..=samples {
        let mut counters = Counters::UNKNOWN;
        counters.set(Counter::Used, Some(number << 20));
        let head = Head {
            session_id: "s".to_owned(),
            event_type: "sample".to_owned(),
            collector: "stormlog.process_tracker".to_owned(),
            sampling_interval_ms: 100,
            pid,
            host: "node".to_owned(),
            identity: Identity::default(),
            device_id: -1,
        };
        let map = json!({"comm": "python3", "file_backed_bytes": number}).as_object().unwrap().clone();
        let metadata = Metadata::read(map, &head.collector, &counters).unwrap();
        assert!(recorder.append(&Event {
            timestamp_ns: wall_ns() + number * 100_000_000,
            counters,
            context: None,
            head: Arc::new(head),
            metadata: Arc::new(metadata),
        }));
    }
    recorder
}

fn whole(fleet: &mut Fleet) -> Overview {
    fleet.whole(BUDGET).0
}

#[test]
fn many_runs_are_listed_newest_first_and_short_looks_get_to_the_end() {
    let root = tempfile::tempdir().unwrap();
    (0..200).for_each(|number| ended_run(root.path(), number));
    let found = whole(&mut Fleet::new(vec![root.path().to_owned()]));
    assert_eq!((found.living.len(), found.ended.len(), found.unread), (0, 200, 0));
    let starts: Vec<Option<i64>> = found.ended.iter().map(Item::started_at_ns).collect();
    assert!(starts.is_sorted_by(|a, b| a >= b), "{starts:?}");
    assert!(found.ended.iter().all(|item| item.state() == "completed" && item.name() == "train.py"));

    let mut fleet = Fleet::new(vec![root.path().to_owned()]);
    let mut looks = 0;
    let found = loop {
        looks += 1;
        let (found, is_behind) = fleet.overview(Duration::from_millis(20));
        if !is_behind {
            break found;
        }
        assert!(looks < 2_000, "looks get to the end");
    };
    assert_eq!(found.ended.len(), 200);
}

#[test]
fn recording_without_a_run_is_listed_with_its_newest_sample_and_its_peak() {
    let root = tempfile::tempdir().unwrap();
    let recorder = tracked(&root.path().join("mine"), 25);
    let mut fleet = Fleet::new(vec![root.path().to_owned()]);
    let found = whole(&mut fleet);
    let only = found.living.first().unwrap();
    assert_eq!((only.name(), only.state(), only.pid()), ("python3", "running", Some(std::process::id())));
    assert_eq!((only.resident(), only.peak()), (Some(25 << 20), Some(25 << 20)));
    recorder.close(SessionStatus::Completed, i64::try_from(wall_ns()).unwrap()).unwrap();
    let found = whole(&mut fleet);
    assert!(found.living.is_empty());
    let only = found.ended.first().unwrap();
    assert_eq!((only.state(), only.resident(), only.peak()), ("completed", None, Some(25 << 20)));
}

#[test]
fn directory_that_is_not_there_is_a_problem_and_nothing_else() {
    let found = whole(&mut Fleet::new(vec![Path::new("/nonexistent").to_owned()]));
    assert_eq!(found.problems.len(), 1);
    assert!(found.living.is_empty() && found.ended.is_empty());
}
