//! A directory of many runs: each command that lists them holds rows, not the files they came from.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SESSION: &str = "5dc6adfa-ed00-4c67-a796-2b88fc8176de";

/// A run with a session and, as a program started by a cluster's launcher has it, a large environment.
fn make_run(root: &Path, number: usize, environment: &str) {
    let run = root.join(format!("2026-11-15T10-22-31Z-true-{number:04}"));
    let process = run.join("rank0-pid7");
    fs::create_dir_all(&process).unwrap();
    fs::write(
        run.join("run.json"),
        format!(
            r#"{{"format": "stormlog.run", "schema_version": 1, "status": "completed", "command": ["true"],
                "started_at_ns": {number}, "ended_at_ns": {number}, "environment": {{"LARGE": "{environment}"}}}}"#
        ),
    )
    .unwrap();
    let session = format!("{number:08}{}", &SESSION[8..]);
    let event = include_str!("../../../tests/golden/peer-0.4.3/v3.jsonl").lines().next().unwrap();
    let mut event: serde_json::Value = serde_json::from_str(event).unwrap();
    event["session_id"] = session.into();
    fs::write(process.join("events.jsonl"), format!("{event}\n")).unwrap();
}

/// The command with at most `megabytes` of private memory.
fn limited(megabytes: usize, arguments: &[&str], root: &Path) -> Output {
    let script = format!("ulimit -d {} && exec \"$@\"", megabytes * 1024);
    let stormlog = env!("CARGO_BIN_EXE_stormlog");
    Command::new("sh").args(["-c", &script, "sh", stormlog]).args(arguments).arg(root).output().unwrap()
}

#[test]
fn listing_runs_does_not_hold_their_environments() {
    const RUNS: usize = 150;
    let root = tempfile::tempdir().unwrap();
    let environment = "x".repeat(1 << 20);
    (0..RUNS).for_each(|number| make_run(root.path(), number, &environment));
    for arguments in
        [&["sessions", "--json"][..], &["query", "sessions", "--json"], &["query", "runs", "--json"]]
    {
        let output = limited(96, arguments, root.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(rows.len(), RUNS, "{arguments:?}");
    }
}

#[test]
fn a_session_belongs_to_the_run_that_lists_it_or_holds_it() {
    let root = tempfile::tempdir().unwrap();
    (0..3).for_each(|number| make_run(root.path(), number, ""));
    // Written by hand, as 0.4.3 describes a run: it lists a session that is stored elsewhere.
    let envelope = root.path().join("0-envelope");
    fs::create_dir(&envelope).unwrap();
    let listed = format!("{:08}{}", 1, &SESSION[8..]);
    let text = format!(
        r#"{{"schema_version": 1, "format": "stormlog.run_envelope", "run_id": "nightly", "metadata": {{}},
            "sessions": [{{"session_id": "{listed}", "metadata": {{}}}}]}}"#
    );
    fs::write(envelope.join("stormlog_run.json"), text).unwrap();
    let output = limited(96, &["query", "runs", "--json"], root.path());
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let sessions_of = |run: &str| {
        let row = rows.iter().find(|row| row["run_id"] == run).unwrap();
        row["sessions"].as_array().unwrap().clone()
    };
    let first = format!("{:08}{}", 0, &SESSION[8..]);
    assert_eq!(sessions_of("2026-11-15T10-22-31Z-true-0000"), [first]);
    let owners: Vec<usize> =
        ["nightly", "2026-11-15T10-22-31Z-true-0001"].map(|run| sessions_of(run).len()).to_vec();
    assert_eq!(owners.iter().sum::<usize>(), 1, "one owner: {rows:#?}");
}
