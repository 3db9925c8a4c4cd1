//! The join of a run directory that no supervisor wrote: numbers that are used again, parts without a session, and many of them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;

use serde_json::json;
use stormlog_catalog::run::layout::{RUN_FILE, SESSION_FILE, SNAPSHOT_FILE, Viewpoint};
use stormlog_catalog::run::{EndFacts, ProcessEnd, Run, RunDirectory, find_runs, processes, runs};
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_store::recording::session_text;

fn session(run: &Path, name: &str, id: &str, pid: i64, started_at_ns: i64, status: SessionStatus) {
    let directory = run.join(name);
    fs::create_dir_all(&directory).unwrap();
    let summary = SessionSummary {
        session_id: id.to_owned(),
        status,
        started_at_ns,
        ended_at_ns: Some(started_at_ns + 10),
        host: "h".to_owned(),
        pid,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "test".to_owned(),
    };
    fs::write(directory.join(SESSION_FILE), session_text(&summary)).unwrap();
}

fn write_run(run: &Path, more: serde_json::Value) {
    fs::create_dir_all(run).unwrap();
    let mut record =
        json!({"format": "stormlog.run", "schema_version": 1, "status": "interrupted", "pid": 7});
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fs::write(run.join(RUN_FILE), record.to_string()).unwrap();
}

fn load(run: &Path) -> Run {
    Run::load(&RunDirectory::open(run).unwrap()).unwrap().unwrap()
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("2026-11-15T10-22-31Z-train-4f2a");
    let rows = json!([
        {"pid": 7, "session_id": "a", "peak_rss_bytes": 1, "cause": null, "verdict": null},
        {"pid": 7, "session_id": "b", "peak_rss_bytes": 2, "heap_peak_bytes": 3, "cause": "sigkill", "verdict": "x was killed."},
    ]);
    write_run(&run, json!({"processes": rows, "command": ["python3", "train.py"], "exit_code": 0}));
    session(&run, "rank0-pid7", "a", 7, 100, SessionStatus::Completed);
    session(&run, "rank0-pid7.555", "b", 7, 200, SessionStatus::Interrupted);
    session(&run, "rank0-pid7-host", "early", 7, 105, SessionStatus::Completed);
    session(&run, "rank0-pid7-cuda1", "late", 7, 205, SessionStatus::Interrupted);
    let bundle = run.join("rank0-pid7-cuda1/oom_dump_20261115T040037Z_7_cuda_1");
    fs::create_dir(&bundle).unwrap();
    fs::write(bundle.join(SNAPSHOT_FILE), "").unwrap();
    let found = load(&run);
    let [first, second] = found.processes.as_slice() else { panic!("{:?}", found.processes) };
    let ids = |process: &stormlog_catalog::run::Process| -> Vec<String> {
        process.sessions.iter().map(|session| session.summary.clone().unwrap().session_id).collect()
    };
    assert_eq!(
        (ids(first), ids(second)),
        (vec!["a".into(), "early".into()], vec!["b".into(), "late".into()])
    );
    assert_eq!((first.start_ticks, second.start_ticks), (None, Some(555)));
    assert_eq!((first.peak_rss_bytes, second.peak_rss_bytes), (Some(1), Some(2)));
    assert_eq!(second.heap_peak_bytes, Some(3));
    assert_eq!(second.sessions[1].viewpoint, Some(Viewpoint::Cuda(1)));
    assert_eq!((second.bundles.as_slice(), second.snapshots.len()), ([bundle].as_slice(), 1));
    assert_eq!(first.end, ProcessEnd::Completed);
    let ProcessEnd::Failed(EndFacts { verdict, .. }) = &second.end else { panic!("{:?}", second.end) };
    assert_eq!(verdict.as_deref(), Some("x was killed."));
    assert_eq!(found.process_of_session("late").map(|process| process.start_ticks), Some(Some(555)));
}

#[test]
fn parts_without_a_session_are_processes_and_links_are_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("run");
    write_run(&run, json!({}));
    let elsewhere = root.path().join("elsewhere");
    session(&elsewhere, "rank0-pid3", "c", 3, 1, SessionStatus::Completed);
    std::os::unix::fs::symlink(elsewhere.join("rank0-pid3"), run.join("rank0-pid3")).unwrap();
    fs::create_dir_all(run.join("heap")).unwrap();
    fs::write(run.join("heap/12.bin"), "not a capture").unwrap();
    fs::create_dir_all(run.join("exceptions")).unwrap();
    fs::write(run.join("exceptions/13-1.json"), "{}").unwrap();
    fs::create_dir_all(run.join("rank0-pid14")).unwrap();
    let found = load(&run);
    let mut pids: Vec<_> = found.processes.iter().map(|process| process.pid.unwrap()).collect();
    pids.sort_unstable();
    assert_eq!(pids, [12, 13, 14]);
    assert!(found.processes.iter().all(|process| matches!(process.end, ProcessEnd::Unknown(_))));
}

#[test]
fn a_file_of_another_program_is_not_a_run() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(RUN_FILE), r#"{"id": "of another tool"}"#).unwrap();
    assert_eq!(runs(root.path()).unwrap().runs.len(), 0);
    fs::write(root.path().join(RUN_FILE), r#"{"format": "stormlog.run", "schema_version": 2}"#).unwrap();
    assert_eq!(runs(root.path()).unwrap().skipped.len(), 1);
}

#[test]
fn a_run_is_found_from_a_path_inside_it() {
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("runs/a");
    write_run(&run, json!({}));
    session(&run, "rank0-pid7", "a", 7, 1, SessionStatus::Completed);
    for path in
        [&run, &run.join("rank0-pid7"), &run.join("rank0-pid7").join(SESSION_FILE), &root.path().into()]
    {
        let found = find_runs(path).unwrap();
        assert_eq!(found.directories.len(), 1, "{}", path.display());
    }
}

#[test]
fn ten_thousand_sessions_are_joined_once_each() {
    const SESSIONS: usize = 10_000;
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("run");
    write_run(&run, json!({"pid": 1}));
    for pid in 1..=SESSIONS {
        session(
            &run,
            &format!("rank0-pid{pid}"),
            &format!("s{pid}"),
            pid as i64,
            pid as i64,
            SessionStatus::Completed,
        );
    }
    let found = processes(&run, &|| true).unwrap();
    assert_eq!(found.processes.len(), SESSIONS);
    assert!(found.processes[0].is_root && found.processes.iter().all(|process| process.sessions.len() == 1));
}

#[test]
fn run_that_is_deeper_than_is_searched_makes_the_search_incomplete() {
    let place = tempfile::tempdir().unwrap();
    write_run(&place.path().join("a/b/run"), json!({}));
    fs::create_dir_all(place.path().join("other/b/c/d/e/f")).unwrap();
    let found = find_runs(place.path()).unwrap();
    assert!(found.directories.len() == 1 && !found.is_incomplete, "what has no runs is not missed");
    for deep in ["x/b/c/run", "x/b/c/d/e/run"] {
        let place = tempfile::tempdir().unwrap();
        write_run(&place.path().join("a/b/run"), json!({}));
        write_run(&place.path().join(deep), json!({}));
        let found = find_runs(place.path()).unwrap();
        assert!(found.directories.len() == 1 && found.is_incomplete, "{deep}");
        assert!(runs(place.path()).unwrap().is_incomplete);
    }
}

#[test]
fn run_has_the_name_of_the_directory_it_was_recorded_in_wherever_a_copy_is() {
    let place = tempfile::tempdir().unwrap();
    let command = ["train.py".into()];
    let run = RunDirectory::create(place.path(), &command, 1_794_000_000_000_000_000, false).unwrap();
    let record = json!({"format": "stormlog.run", "schema_version": 1, "status": "completed"});
    run.write(record.as_object().unwrap()).unwrap();
    let name = run.path().file_name().unwrap().to_str().unwrap().to_owned();
    let copy = place.path().join(format!("{name}-node7"));
    fs::rename(run.path(), &copy).unwrap();
    let copy = RunDirectory::open(&copy).unwrap();
    let load = |copy: &RunDirectory| Run::load(copy).unwrap().unwrap();
    assert_eq!((load(&copy).recorded_name(), load(&copy).id), (name.as_str(), format!("{name}-node7")));
    // What is written later keeps it.
    copy.write(&copy.read()).unwrap();
    assert_eq!(load(&copy).recorded_name(), name);
    // Runs of older versions have only their directory's.
    fs::write(copy.path().join(RUN_FILE), record.to_string()).unwrap();
    assert_eq!(load(&copy).recorded_name(), format!("{name}-node7"));
}
