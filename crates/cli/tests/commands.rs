//! The three commands on real files, as a user or a script runs them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

fn peer_files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/peer-0.4.3").canonicalize().unwrap()
}

fn stormlog(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("stormlog").unwrap().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_without_a_command() {
    let (code, _, help) = stormlog(&[]);
    assert_eq!(code, 0);
    assert!(help.contains("convert") && help.contains("sessions"), "{help}");
    assert_eq!(stormlog(&["--version"]).1.trim(), concat!("stormlog ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn sessions_of_everything_0_4_3_left() {
    let (code, out, err) = stormlog(&["sessions", peer_files().to_str().unwrap(), "--json"]);
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
    for row in &rows {
        for key in [
            "session_id",
            "status",
            "rank",
            "world_size",
            "event_count",
            "started_at_ns",
            "ended_at_ns",
            "path",
        ] {
            assert!(row.get(key).is_some(), "{key} is missing in {row}");
        }
    }
    let cuda = rows.iter().find(|row| row["session_id"] == "cuda-session").unwrap();
    assert_eq!((&cuda["status"], &cuda["event_count"]), (&"completed".into(), &4.into()));
    assert_eq!(cuda["peak_device_used_bytes"], 900);
    let (code, table, _) = stormlog(&["sessions", peer_files().to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(table.starts_with("SESSION") && table.contains("cuda-session"), "{table}");
}

#[test]
fn convert_writes_every_format_and_schema() {
    let directory = tempfile::tempdir().unwrap();
    let input = peer_files().join("v3.jsonl");
    for format in ["json", "jsonl", "csv", "parquet"] {
        for schema in ["2", "3", "4"] {
            let output = directory.path().join(format!("v{schema}.{format}"));
            let arguments =
                ["convert", input.to_str().unwrap(), output.to_str().unwrap(), "--schema", schema];
            let (code, _, err) = stormlog(&arguments);
            assert_eq!(code, 0, "{err}");
            let (code, out, _) = stormlog(&["validate", output.to_str().unwrap(), "--json"]);
            assert_eq!(code, 0, "{out}");
            assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["valid"], 3);
        }
    }
    // Schema 3 in, schema 3 out: nothing added, nothing lost, the same bytes.
    let back = fs::read_to_string(directory.path().join("v3.jsonl")).unwrap();
    assert_eq!(back, fs::read_to_string(input).unwrap());
}

#[test]
fn convert_to_standard_output() {
    let input = peer_files().join("cuda_tracker.json");
    let (code, out, _) = stormlog(&["convert", input.to_str().unwrap(), "-", "--to", "json"]);
    assert_eq!(code, 0);
    assert_eq!(out, fs::read_to_string(input).unwrap(), "an export of 0.4.3 comes back byte by byte");
}

#[test]
fn convert_one_session() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("one.json");
    let (input, output) = (peer_files(), output.to_str().unwrap());
    let (code, _, err) =
        stormlog(&["convert", input.to_str().unwrap(), output, "--session-id", "oom-session"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("3 events written"), "{err}");
    let (code, _, err) = stormlog(&["convert", input.to_str().unwrap(), output, "--session-id", "no-such"]);
    assert_eq!((code, err.trim()), (5, "Error: Requested session_id not found: no-such"));
}

#[test]
fn closed_pipe_does_not_crash() {
    let input = peer_files().join("cpu_tracker.json");
    let binary = assert_cmd::cargo::cargo_bin("stormlog");
    let script = format!(
        "for i in 1 2 3; do {0} convert {1} - --to json; done | head -c 10; echo ${{PIPESTATUS[0]}}",
        binary.display(),
        input.display()
    );
    let output = std::process::Command::new("bash").arg("-c").arg(script).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("panicked"), "{error}");
}

#[test]
fn attach_without_heap_keeps_every_flag_or_refuses_it() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let (code, out, err) = stormlog(&["attach", &pid, "--duration", "0.3", "--json"]);
    assert_eq!(code, 0, "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["process"]["pid"], child.id());
    let (code, out, err) = stormlog(&["attach", &pid, "--duration", "0.3", "--quiet"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let (code, _, err) = stormlog(&["attach", &pid, "--method", "gdb"]);
    assert!(code == 2 && err.contains("--method needs --heap"), "{code} {err}");
    child.kill().unwrap();
    child.wait().unwrap();
}
