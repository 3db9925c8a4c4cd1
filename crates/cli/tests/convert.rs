//! `convert` of our own recordings: what older schemas cannot say, and cells that a spreadsheet would run.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn stormlog(folder: &Path, arguments: &[&str]) -> Output {
    Command::cargo_bin("stormlog").unwrap().current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A real run in `folder`, whose samples know no allocator.
fn record_run(folder: &Path) -> PathBuf {
    let done = stormlog(folder, &["run", "--dir", "runs", "--", "sh", "-c", "sleep 0.4"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    fs::read_dir(folder.join("runs")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn unknown_counters_become_zero_only_on_request_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let run = record_run(folder.path());
    let run = run.to_str().unwrap();
    for schema in ["2", "3"] {
        let refused = stormlog(folder.path(), &["convert", run, "out.json", "--schema", schema]);
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(5), "{error}");
        assert!(error.contains("--unknown-as-zero") && error.contains("cannot express"), "{error}");
        assert!(!folder.path().join("out.json").exists());

        let asked = ["convert", run, "out.json", "--schema", schema, "--unknown-as-zero"];
        let done = stormlog(folder.path(), &asked);
        let note = text(&done.stderr);
        assert!(done.status.success(), "{note}");
        let events: Vec<Value> =
            serde_json::from_slice(&fs::read(folder.path().join("out.json")).unwrap()).unwrap();
        let zeros = events.iter().filter(|event| event["allocator_reserved_bytes"] == 0).count();
        assert!(zeros > 0 && note.contains("unknown, written as 0: "), "{note}");
        assert!(note.contains(&format!("allocator_reserved_bytes ({zeros} times)")), "{zeros}: {note}");
        let named = &events.iter().find(|event| event["allocator_reserved_bytes"] == 0).unwrap()["metadata"];
        assert!(named["unknown_as_zero"].as_array().unwrap().contains(&"allocator_reserved_bytes".into()));
        assert!(
            events.iter().any(|event| event["device_used_bytes"].as_u64() > Some(0)),
            "what is known stays"
        );
        let valid = stormlog(folder.path(), &["validate", "out.json"]);
        assert!(valid.status.success(), "{}", text(&valid.stdout));
        fs::remove_file(folder.path().join("out.json")).unwrap();
    }
    // Schema 4 can say that a counter is unknown, and does.
    let done = stormlog(folder.path(), &["convert", run, "out.json", "--unknown-as-zero"]);
    assert!(done.status.success() && !text(&done.stderr).contains("written as 0"));
    assert!(
        text(&fs::read(folder.path().join("out.json")).unwrap())
            .contains("\"allocator_reserved_bytes\": null")
    );
}

#[test]
fn cells_that_begin_a_formula_are_marked_on_request() {
    const GOOD: &str = include_str!("../../../tests/golden/peer-0.4.3/v3.jsonl");
    let folder = tempfile::tempdir().unwrap();
    let first = GOOD.lines().next().unwrap();
    let mut lines = String::new();
    let dangerous = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"];
    for context in dangerous.iter().chain(&["plain"]) {
        let mut event: Value = serde_json::from_str(first).unwrap();
        event["context"] = (*context).into();
        event["device_id"] = (-1).into();
        lines.push_str(&format!("{event}\n"));
    }
    fs::write(folder.path().join("in.jsonl"), lines).unwrap();
    let columns = |arguments: &[&str], wanted: &str| -> Vec<String> {
        let done = stormlog(folder.path(), arguments);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let mut reader = csv::Reader::from_path(folder.path().join("out.csv")).unwrap();
        let at = reader.headers().unwrap().iter().position(|name| name == wanted).unwrap();
        reader.records().map(|row| row.unwrap()[at].to_owned()).collect()
    };
    let marked = columns(&["convert", "in.jsonl", "out.csv", "--safe-csv"], "context");
    let expected: Vec<String> =
        dangerous.iter().map(|cell| format!("'{cell}")).chain(["plain".into()]).collect();
    assert_eq!(marked, expected);
    let numbers = columns(&["convert", "in.jsonl", "out.csv", "--safe-csv"], "device_id");
    assert!(numbers.iter().all(|cell| cell == "-1"), "numbers stay numbers: {numbers:?}");
    let plain = columns(&["convert", "in.jsonl", "out.csv"], "context");
    assert_eq!(plain[..6], dangerous, "without the option cells are as they were");

    let wrong = stormlog(folder.path(), &["convert", "in.jsonl", "out.json", "--safe-csv"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn runs_of_an_unknown_version_are_named_and_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let known = record_run(folder.path());
    let other = folder.path().join("runs/of-another-release");
    let copied = std::process::Command::new("cp").arg("-r").args([&known, &other]).status().unwrap();
    assert!(copied.success());
    let file = other.join("run.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    record["schema_version"] = 7.into();
    // A run that is not finished would be finished by a reader that knows its version.
    record["status"] = "running".into();
    record["supervisor"] = Value::Null;
    let before = record.to_string();
    fs::write(&file, &before).unwrap();

    let listings: [&[&str]; 4] =
        [&["sessions"], &["query", "runs"], &["query", "sessions"], &["oom", "list"]];
    let sentence = "run.json: schema_version is 7, this release reads 1";
    for listing in listings {
        let all = [listing, &["runs"]].concat();
        let done = stormlog(folder.path(), &all);
        let (shown, error) = (text(&done.stdout), text(&done.stderr));
        assert!(error.contains("of-another-release") && error.contains(sentence), "{all:?}: {error}");
        assert!(!shown.contains("of-another-release"), "{all:?}: {shown}");
        if listing[0] != "oom" {
            // The other one is listed; this is not a failure.
            assert_eq!(done.status.code(), Some(0), "{all:?}: {error}");
            assert!(shown.contains(known.file_name().unwrap().to_str().unwrap()), "{all:?}: {shown}");
        }
        let only = [listing, &["runs/of-another-release"]].concat();
        let done = stormlog(folder.path(), &only);
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(5), "{only:?}: {error}");
        assert!(error.contains(sentence), "{only:?}: {error}");
    }
    let analyzed = stormlog(folder.path(), &["analyze", "runs/of-another-release"]);
    assert_eq!(analyzed.status.code(), Some(5), "{}", text(&analyzed.stdout));
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "nothing was written into it");
}
