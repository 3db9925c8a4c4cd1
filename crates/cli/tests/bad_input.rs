//! Every way an input can be wrong: one clear sentence that names file and position, exit code 5, nothing half-written.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

const GOOD: &str = include_str!("../../../tests/golden/peer-0.4.3/v3.jsonl");

struct Workplace(tempfile::TempDir);

impl Workplace {
    fn new() -> Self {
        Workplace(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::cargo_bin("stormlog").unwrap().current_dir(self.0.path()).args(arguments).output().unwrap()
    }
}

fn lines() -> Vec<&'static str> {
    GOOD.lines().collect()
}

/// `convert` and `validate` both refuse the file with exit 5 and a sentence holding each of `words`.
fn refused(work: &Workplace, input: &Path, words: &[&str]) {
    let input = input.to_str().unwrap();
    let output = work.run(&["convert", input, "out.csv"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert_eq!(error.lines().count(), 1, "one sentence: {error}");
    assert!(error.starts_with("Error: "), "{error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is missing in: {error}");
    }
    assert!(!work.path("out.csv").exists(), "nothing may be left half-written");
    let output = work.run(&["validate", input]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[test]
fn a_file_that_is_not_there() {
    let work = Workplace::new();
    refused(&work, &work.path("nothing.json"), &["nothing.json: does not exist", "give a recording"]);
    let output = work.run(&["oom", "show", "nothing"]);
    let error = String::from_utf8(output.stderr).unwrap();
    let message =
        "Error: nothing: does not exist; give a recording, a run directory or a directory of them\n";
    assert_eq!(error, message);
    for words in [&["sessions", "nothing"][..], &["query", "runs", "nothing"]] {
        let output = work.run(words);
        assert_eq!(
            (output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()),
            (Some(5), message)
        );
    }
}

#[test]
fn truncated_json() {
    let work = Workplace::new();
    let array = format!("[\n{},\n{}\n]", lines()[0], lines()[1]);
    let path = work.file("cut.json", &array[..array.len() - 300]);
    refused(&work, &path, &["cut.json:3", "truncated"]);
}

#[test]
fn a_bad_line_in_the_middle_of_jsonl() {
    let work = Workplace::new();
    let path = work.file("bad.jsonl", format!("{}\n{{\"half\": \n{}\n", lines()[0], lines()[1]));
    refused(&work, &path, &["bad.jsonl:2", "not JSON"]);
}

#[test]
fn torn_last_line_is_accepted() {
    let work = Workplace::new();
    work.file("torn.jsonl", format!("{}\n{}", lines()[0], &lines()[1][..200]));
    let output = work.run(&["convert", "torn.jsonl", "out.json"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("1 events written") && error.contains("is truncated"), "{error}");
}

#[test]
fn binary_files() {
    let work = Workplace::new();
    let path = work.file("binary.json", [0u8, 159, 146, 150].repeat(1000));
    refused(&work, &path, &["binary.json:1", "must be a JSON object or array"]);
    let path = work.file("binary.csv", [0u8, 159, 146, 150].repeat(1000));
    refused(&work, &path, &["binary.csv"]);
    let path = work.file("fake.parquet", b"PAR1 but not really, PAR1");
    refused(&work, &path, &["fake.parquet", "not a Parquet file"]);
    let path = work.file("fake.ring", b"STORMRNG and then garbage".repeat(500));
    refused(&work, &path, &["fake.ring"]);
}

#[test]
fn an_empty_file() {
    let work = Workplace::new();
    let path = work.file("empty.json", "");
    refused(&work, &path, &["empty.json", "empty"]);
}

#[test]
fn one_line_of_ten_gigabytes() {
    let work = Workplace::new();
    for name in ["long.json", "long.jsonl", "long.csv"] {
        let mut file = fs::File::create(work.path(name)).unwrap();
        let start: &[u8] =
            if name.ends_with("csv") { b"timestamp_ns,event_type\n1,\"" } else { b"{\"a\": \"" };
        file.write_all(start).unwrap();
        // Sparse: the zeros take no disk, but have to be read like any others.
        file.seek(SeekFrom::Start(10 << 30)).unwrap();
        file.write_all(b"\"}").unwrap();
        let output = work.run(&["validate", name, "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(5), "{name}: {text}");
        assert!(text.contains("larger than"), "{name}: {text}");
    }
}

#[test]
fn records_that_break_a_rule() {
    let work = Workplace::new();
    let cases = [
        ("\"schema_version\": 3", "\"schema_version\": 9", "Unsupported schema_version: 9"),
        ("\"device_used_bytes\": ", "\"device_used_bytes\": -", "device_used_bytes must be >= 0"),
        ("\"pid\": ", "\"pid\": 1.5, \"x\": ", "Unknown telemetry fields: x"),
        ("\"context\": ", "\"context\": NaN, \"c\": ", "not JSON"),
        ("\"host\": \"node-1\"", "\"host\": \"a\", \"host\": \"b\"", "the key \"host\" is given twice"),
        ("\"metadata\": ", "\"metadata\": [[[[1]]]], \"m\": ", "metadata must be an object"),
    ];
    for (from, to, message) in cases {
        let line = lines()[1].replacen(from, to, 1);
        assert_ne!(line, lines()[1], "{from}");
        let path = work.file("wrong.json", format!("[{},\n{line}]", lines()[0]));
        refused(&work, &path, &["wrong.json:2", message]);
    }
}

#[test]
fn text_that_is_not_utf8_and_nesting_without_end() {
    let work = Workplace::new();
    let mut bytes = lines()[0].replacen("node-1", "no-de", 1).into_bytes();
    let at = bytes.windows(5).position(|window| window == b"no-de").unwrap();
    bytes[at] = 0xff;
    let path = work.file("latin.jsonl", [bytes.as_slice(), b"\n"].concat());
    refused(&work, &path, &["latin.jsonl:1", "not JSON"]);
    let deep = format!("[{{\"timestamp\": 1, \"metadata\": {}1{}}}]", "[".repeat(5000), "]".repeat(5000));
    let path = work.file("deep.json", deep);
    refused(&work, &path, &["deep.json:1", "recursion limit"]);
}

#[test]
fn directories_fifos_and_devices() {
    let work = Workplace::new();
    fs::create_dir(work.path("empty-dir")).unwrap();
    refused(&work, &work.path("empty-dir"), &["empty-dir", "no telemetry found"]);
    let fifo = work.path("pipe.json");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&work, &fifo, &["pipe.json", "this is a named pipe, not a regular file"]);
    refused(&work, Path::new("/dev/null"), &["/dev/null", "this is a device, not a regular file"]);
}

/// Commands that read a file: without the check each would wait for the pipe's other end.
const READERS: [&[&str]; 22] = [
    &["analyze", "?"],
    &["compare", "?", "?"],
    &["compare", "good.jsonl", "?"],
    &["check", "?", "--max-peak", "1GB"],
    &["convert", "?", "out.json"],
    &["validate", "?"],
    &["sessions", "?"],
    &["query", "runs", "?"],
    &["query", "events", "?"],
    &["query", "ooms", "?"],
    &["oom", "show", "?"],
    &["snapshot", "?"],
    &["replay", "?"],
    &["timeline", "?", "--output", "out.html"],
    &["stats", "?"],
    &["summary", "?"],
    &["flamegraph", "?", "-o", "out.html"],
    &["tree", "?"],
    &["table", "?", "-o", "out.html"],
    &["leaks", "?"],
    &["transform", "csv", "?", "-o", "out.csv"],
    &["parse", "?"],
];

#[test]
fn every_reader_refuses_pipes_sockets_and_devices() {
    let work = Workplace::new();
    work.file("good.jsonl", GOOD);
    let fifo = work.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let socket = work.path("socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [&fifo, &socket, Path::new("/dev/zero")] {
        for reader in READERS {
            let path = path.to_str().unwrap();
            let words: Vec<&str> = reader.iter().map(|word| if *word == "?" { path } else { word }).collect();
            let mut command = Command::cargo_bin("stormlog").unwrap();
            // The time limit only turns a wait without end into a failure.
            let output = command
                .current_dir(work.0.path())
                .args(&words)
                .timeout(std::time::Duration::from_secs(120))
                .output()
                .unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(5), "{words:?}: {error}");
            assert!(error.contains(path), "{words:?}: {error}");
        }
    }
}

#[test]
fn a_flood_of_json_is_refused_in_little_memory() {
    let work = Workplace::new();
    let flood = [b"{\"segments\": [".to_vec(), b"0,".repeat(30_000_000)].concat();
    let path = work.file("flood.json", flood);
    // Twice the address space that the refusal takes, and less than what 30 million values did.
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" snapshot \"$1\""])
        .arg(assert_cmd::cargo::cargo_bin("stormlog"))
        .arg(path)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains("values in one JSON container"), "{error}");
}

#[test]
fn lenient_keeps_the_good_and_counts_the_rest() {
    let work = Workplace::new();
    let bad = lines()[1].replacen("\"pid\": ", "\"pid\": -", 1);
    work.file("mixed.jsonl", format!("{}\n{bad}\nnot json\n{}\n", lines()[0], lines()[2]));
    let output = work.run(&["convert", "mixed.jsonl", "out.json", "--lenient"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("2 events written") && error.contains("2 damaged records dropped"), "{error}");
    assert!(error.contains("mixed.jsonl:2"), "{error}");
    let written: serde_json::Value =
        serde_json::from_slice(&fs::read(work.path("out.json")).unwrap()).unwrap();
    assert_eq!(written.as_array().unwrap().len(), 2);
}

#[test]
fn validate_lists_every_problem_with_file_line_and_field() {
    let work = Workplace::new();
    let bad = lines()[1].replacen("\"pid\": ", "\"pid\": -", 1).replacen("\"rank\": 1", "\"rank\": 7", 1);
    work.file("mixed.jsonl", format!("{}\n{bad}\n[1]\n", lines()[0]));
    let output = work.run(&["validate", "mixed.jsonl", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["valid"], &report["invalid"]), (&1.into(), &2.into()));
    let problems: Vec<(u64, Option<&str>, &str)> = report["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["line"].as_u64().unwrap(), p["field"].as_str(), p["message"].as_str().unwrap()))
        .collect();
    assert!(problems.contains(&(2, Some("pid"), "pid must be >= -1")), "{problems:?}");
    assert!(problems.contains(&(2, Some("rank"), "rank must be < world_size")), "{problems:?}");
    assert!(problems.iter().any(|(line, field, _)| *line == 3 && field.is_none()), "{problems:?}");
    assert!(report["problems"][0]["file"].as_str().unwrap().ends_with("mixed.jsonl"));
}

#[test]
fn wrong_command_lines_exit_2() {
    let work = Workplace::new();
    work.file("in.jsonl", GOOD);
    for arguments in [
        &["nonsense"][..],
        &["convert"],
        &["convert", "in.jsonl", "out.unknown"],
        &["convert", "in.jsonl", "-"],
        &["convert", "in.jsonl", "out.json", "--schema", "7"],
        &["convert", "in.jsonl", "out.json", "--to", "excel"],
    ] {
        let output = work.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    let output = work.run(&["convert", "in.jsonl", "missing-dir/out.json"]);
    assert_eq!(output.status.code(), Some(1), "an output that cannot be written is no bad input: {output:?}");
}
