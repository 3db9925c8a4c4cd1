//! The views of a heap capture as commands: the answer, `--json`, files, and each way they can be used wrongly.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = "
held = []
def keep(count):
    held.append([bytearray(1000) for _ in range(count)])
keep(500)
big = bytearray(3_000_000)
import time; time.sleep(0.3)
del big
";

fn stormlog(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stormlog")).args(arguments).output().unwrap()
}

fn answer(arguments: &[&str]) -> String {
    let output = stormlog(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&answer(arguments)).unwrap()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// A run of the program, its own directory in `folder`.
fn record(folder: &Path, program: &str) -> PathBuf {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(found.stdout).unwrap();
    let script = folder.join("program.py");
    std::fs::write(&script, program).unwrap();
    let runs = folder.join("runs");
    let output = Command::new(env!("CARGO_BIN_EXE_stormlog"))
        .args(["run", "--quiet", "--heap", "--", python.trim(), "-I", "-S"])
        .arg(&script)
        .env("STORMLOG_DIR", &runs)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
}

#[test]
fn every_view_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), PROGRAM);
    let run = run.to_str().unwrap();
    let stats: Value = serde_json::from_str(&answer(&["stats", run, "--json"])).unwrap();
    let peak = number(&stats, "peak_bytes");
    for view in [
        &["tree", run, "--json"][..],
        &["table", run, "--json"],
        &["summary", run, "--json"],
        &["table", run, "--json", "--by", "stack"],
    ] {
        let list = rows(view);
        assert_eq!(list.iter().map(|row| number(row, "own_bytes")).sum::<u64>(), peak, "{view:?}");
        let row = list.iter().find(|row| !row["stack"].as_array().unwrap().is_empty()).unwrap();
        for key in ["function", "file", "line"] {
            assert!(!row["stack"][0][key].is_null(), "{row}");
        }
        assert!(number(row, "total_bytes") >= number(row, "own_bytes"));
        assert!(number(row, "count") > 0);
    }
    let leaks = rows(&["leaks", run, "--json"]);
    assert!(
        leaks.iter().any(|row| row["pattern"] == "once" && number(row, "own_bytes") > 400_000),
        "{leaks:?}"
    );
    assert!(rows(&["diff", run, run, "--json"]).is_empty());
    assert!(answer(&["diff", run, run]).contains("No difference."));
    for text in [answer(&["tree", run]), answer(&["table", run]), answer(&["leaks", run])] {
        assert!(text.starts_with("program.py: "), "{text}");
        assert!(text.contains("program.py:4") || text.contains("program.py:6"), "{text}");
        assert!(text.contains("resident then"), "what the heap does not explain is said: {text}");
        assert!(!text.contains('\x1b'), "no colours in a pipe: {text}");
    }
    let lines = answer(&["parse", run]);
    let mallocs = lines.lines().filter(|line| line.starts_with("MALLOC ")).count();
    assert!(mallocs > 500, "{mallocs}");
}

#[test]
fn files_lie_beside_the_capture_and_are_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), PROGRAM);
    let run = run.to_str().unwrap();
    for format in ["html", "svg", "speedscope", "collapsed", "pprof", "firefox", "json"] {
        let path = answer(&["flamegraph", run, "--format", format]);
        let bytes = std::fs::read(path.trim()).unwrap();
        assert!(bytes.len() > 500, "{format}: {} bytes", bytes.len());
        let again = stormlog(&["flamegraph", run, "--format", format]);
        assert_eq!(again.status.code(), Some(2), "{format}");
        assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
        answer(&["flamegraph", run, "--format", format, "--force"]);
    }
    for format in ["gprof2dot", "csv", "parquet", "speedscope"] {
        let path = folder.path().join(format);
        answer(&["transform", format, run, "-o", path.to_str().unwrap()]);
        assert!(std::fs::metadata(&path).unwrap().len() > 500, "{format}");
    }
    let folded = answer(&["flamegraph", run, "--format", "collapsed", "-o", "-"]);
    let whole: u64 =
        folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    let stats: Value = serde_json::from_str(&answer(&["stats", run, "--json"])).unwrap();
    assert_eq!(whole, number(&stats, "peak_bytes"));
}

#[test]
fn wrong_use_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let damaged = folder.path().join("damaged.bin");
    std::fs::write(&damaged, [7; 5000]).unwrap();
    let damaged = damaged.to_str().unwrap();
    for command in ["flamegraph", "tree", "table", "leaks", "parse"] {
        for (input, says) in
            [(path, "stormlog run --heap"), ("/nowhere", "is not there"), (damaged, "damaged.bin")]
        {
            let output = stormlog(&[command, input]);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(5), "{command} {input}: {text}");
            assert!(text.contains(says), "{command} {input}: {text}");
        }
    }
    for arguments in [
        &["flamegraph", path, "--leaks", "--peak"][..],
        &["flamegraph", path, "--at", "tomorrow"],
        &["table", path, "--html", "--json"],
        &["leaks", path, "--from", "9", "--to", "3"],
        &["tree", path, "--span", "9..3"],
    ] {
        assert_eq!(stormlog(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
