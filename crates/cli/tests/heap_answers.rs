//! What the views of a heap capture answer about real programs: which capture, which moment, whose code.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

struct Recorded {
    folder: tempfile::TempDir,
    run: PathBuf,
    output: Output,
}

fn python() -> String {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

fn stormlog(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stormlog")).args(arguments).output().unwrap()
}

fn answer(arguments: &[&str]) -> String {
    let output = stormlog(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&answer(arguments)).unwrap()
}

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
}

/// Runs a command with its heap recorded.
fn record_command(folder: tempfile::TempDir, options: &[&str], command: &[&str]) -> Recorded {
    let runs = folder.path().join("runs");
    let output = Command::new(env!("CARGO_BIN_EXE_stormlog"))
        .args(["run", "--json", "--wait", "--heap", "--dir"])
        .arg(&runs)
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    let run = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    Recorded { run: run.unwrap(), folder, output }
}

/// Runs a program of Python with its heap recorded.
fn record(program: &str, options: &[&str]) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("program.py");
    std::fs::write(&script, program).unwrap();
    record_command(folder, options, &[&python(), "-I", "-S", script.to_str().unwrap()])
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const GROWS_AND_SHRINKS: &str = "
import time
held = [bytearray(1_000_000) for _ in range(40)]
time.sleep(0.2)
del held
time.sleep(0.2)
";

#[test]
fn folded_captures_refuse_moments_they_do_not_know() {
    for options in [&["--aggregate"][..], &["--max-size", "1"]] {
        let recorded = record(GROWS_AND_SHRINKS, options);
        let run = text(&recorded.run);
        for view in [
            &["tree", run, "--at", "0.1"][..],
            &["table", run, "--at", "0.1", "--json"],
            &["summary", run, "--span", "0..0.1"],
            &["flamegraph", run, "--at", "100ms", "-o", "-"],
            &["transform", "csv", run, "--span", "0.1..9", "-o", "-"],
        ] {
            let output = stormlog(view);
            let says = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(5), "{options:?} {view:?}: {says}");
            assert!(says.contains("individual records of the first"), "{view:?}: {says}");
            assert!(says.contains("--peak or --leaks"), "{view:?}: {says}");
        }
        // What is still known is answered: everything was folded until the end, and that is a moment.
        assert!(answer(&["tree", run, "--at", "1h"]).contains("after 1 h"));
        assert!(answer(&["tree", run, "--peak"]).contains("program.py:3"));
    }
}

const CHILD_IS_LARGER: &str = "
import os
held = [bytearray(1_000_000) for _ in range(5)]
if not os.fork():
    held += [bytearray(1_000_000) for _ in range(60)]
    os._exit(0)
os.wait()
";

#[test]
fn output_and_views_choose_the_main_process() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.bin");
    let recorded = record(CHILD_IS_LARGER, &["-o", text(&output)]);
    let run = text(&recorded.run);
    let about: Value =
        serde_json::from_slice(&std::fs::read(recorded.run.join("run.json")).unwrap()).unwrap();
    assert_eq!(json(&["stats", text(&output), "--json"])["pid"], about["pid"]);
    let viewed = stormlog(&["stats", run, "--json"]);
    let stats: Value = serde_json::from_slice(&viewed.stdout).unwrap();
    assert_eq!(stats["pid"], about["pid"]);
    let note = String::from_utf8_lossy(&viewed.stderr).into_owned();
    assert!(note.contains("holds 2 captures; this is the main process's"), "{note}");

    let list = json(&["captures", run, "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    for capture in list {
        let keys: Vec<&String> = capture.as_object().unwrap().keys().collect();
        let mut expected = ["path", "pid", "program", "peak_bytes", "bytes", "main"];
        let mut keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let path = capture["path"].as_str().unwrap();
        assert_eq!(capture["bytes"], std::fs::metadata(path).unwrap().len());
        assert_eq!(capture["peak_bytes"], json(&["stats", path, "--json"])["peak_bytes"]);
        assert_eq!(capture["program"], "program.py");
        assert_eq!(capture["main"], capture["pid"] == about["pid"]);
    }
    let table = answer(&["captures", run]);
    assert!(table.lines().nth(1).unwrap().contains("  main  "), "{table}");

    let all = folder.path().join("all");
    std::fs::create_dir(&all).unwrap();
    let recorded = record(CHILD_IS_LARGER, &["-o", text(&all)]);
    assert!(recorded.output.status.success());
    assert_eq!(json(&["captures", text(&all), "--json"]).as_array().unwrap().len(), 2);
    let run: Value = serde_json::from_slice(&std::fs::read(recorded.run.join("run.json")).unwrap()).unwrap();
    assert_eq!(json(&["stats", text(&all), "--json"])["pid"], run["pid"]);
}

#[test]
fn behind_a_shell_the_largest_program_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("program.py");
    std::fs::write(&script, "held = [bytearray(1_000_000) for _ in range(20)]\n").unwrap();
    let command = format!("true; {} -I -S {}; true", python(), text(&script));
    let recorded = record_command(folder, &[], &["bash", "-c", &command]);
    assert!(recorded.output.status.success());
    let list = json(&["captures", text(&recorded.run), "--json"]);
    assert_eq!(list[0]["program"], "program.py", "{list}");
    assert_eq!(list[0]["main"], true);
    assert!(json(&["stats", text(&recorded.run), "--json"])["peak_bytes"].as_u64().unwrap() >= 20_000_000);
}

const LEAVES_MEMORY: &str = "
import atexit, time
held = [bytearray(10_000) for _ in range(500)]
late = []
atexit.register(lambda: late.append(bytearray(3_000_000)))
gone = bytearray(9_000_000)
time.sleep(0.1)
del gone
time.sleep(0.1)
";

#[test]
fn leaks_are_what_the_programs_own_code_left_in_every_view() {
    for options in [&[][..], &["--aggregate"], &["--trace-python-allocators"]] {
        let recorded = record(LEAVES_MEMORY, options);
        let run = text(&recorded.run);
        let leaks = json(&["leaks", run, "--json"]);
        let bytes = sum(&leaks, "own_bytes");
        for view in [
            &["tree", run, "--leaks", "--json"][..],
            &["table", run, "--leaks", "--json"],
            &["summary", run, "--leaks", "--json"],
            &["flamegraph", run, "--leaks", "--json"],
        ] {
            assert_eq!(sum(&json(view), "own_bytes"), bytes, "{options:?} {view:?}");
        }
        let of_line = |line: u64| {
            let rows = leaks.as_array().unwrap().iter();
            rows.filter(|row| row["place"]["line"] == line)
                .map(|row| row["own_bytes"].as_u64().unwrap())
                .sum::<u64>()
        };
        assert!(of_line(3) >= 5_000_000, "{options:?}: globals live until teardown: {leaks}");
        assert!(of_line(5) >= 3_000_000, "{options:?}: exit handlers are the program's code: {leaks}");
        assert_eq!(of_line(6), 0, "{options:?}");
        let stats = json(&["stats", run, "--json"]);
        assert_eq!(stats["leaked_bytes"], bytes);
        assert!(
            stats["live_at_end_bytes"].as_u64().unwrap() < bytes - 7_000_000,
            "teardown frees it: {stats}"
        );
    }
}

#[test]
fn one_shot_work_is_not_growth() {
    let recorded = record(
        "import time\nbytearray(1000)\ntable = []\nfor row in range(3000):\n    table.append(bytearray(10_000))\n",
        &[],
    );
    let leaks = json(&["leaks", text(&recorded.run), "--json"]);
    let grown: Vec<&Value> =
        leaks.as_array().unwrap().iter().filter(|row| row["pattern"] == "steady").collect();
    assert!(grown.is_empty(), "{grown:?}");
}

/// `bin/tool` that only calls an installed package, which uses another one.
fn install(folder: &Path) -> (PathBuf, PathBuf) {
    let prefix = folder.join("env");
    let packages = prefix.join("lib/python3/site-packages");
    for directory in [prefix.join("bin"), packages.join("tool"), packages.join("helper")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let script = prefix.join("bin/tool");
    let stub = format!(
        "import sys\nsys.path.insert(0, {:?})\nfrom tool import main\nsys.exit(main())\n",
        text(&packages)
    );
    std::fs::write(&script, stub).unwrap();
    let body = "import helper\n\nheld = []\n\ndef parse(size):\n    held.append(helper.make(size))\n\n\
                def main():\n    for size in range(40):\n        parse(1_000_000 + size)\n";
    std::fs::write(packages.join("tool/__init__.py"), body).unwrap();
    std::fs::write(packages.join("tool/__main__.py"), "from tool import main\nmain()\n").unwrap();
    let helper = "words = [str(number) * 40 for number in range(2000)]\n\ndef make(size):\n    return bytearray(size)\n";
    std::fs::write(packages.join("helper/__init__.py"), helper).unwrap();
    (script, packages)
}

#[test]
fn memory_of_an_installed_program_is_held_by_its_package() {
    for is_module in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (script, packages) = install(folder.path());
        let python = python();
        let recorded = match is_module {
            false => record_command(folder, &[], &[&python, "-I", "-S", text(&script)]),
            true => {
                let variable = format!("PYTHONPATH={}", text(&packages));
                record_command(folder, &[], &["env", &variable, &python, "-S", "-m", "tool"])
            }
        };
        let outcome = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
        assert!(recorded.output.status.success(), "{outcome}");
        let line = format!("{}:6", packages.join("tool/__init__.py").display());
        let run = text(&recorded.run);
        let stats = json(&["stats", run, "--json"]);
        let top = &stats["top_by_size"][0];
        assert_eq!(format!("{}:{}", top["file"].as_str().unwrap(), top["line"]), line, "{is_module}");
        let leaks = json(&["leaks", run, "--json"]);
        let largest = leaks.as_array().unwrap().iter().max_by_key(|row| row["own_bytes"].as_u64()).unwrap();
        let place = &largest["place"];
        assert_eq!(format!("{}:{}", place["file"].as_str().unwrap(), place["line"]), line, "{is_module}");
        let outcome: Value = serde_json::from_str(&outcome).unwrap();
        let held = outcome["processes"][0]["heap"]["held_by"][0]["place"].as_str().unwrap();
        assert!(held.starts_with(&line), "{is_module}: {held}");
        let by = |by: &str| json(&["stats", run, "--json", "--by", by])["top_by_size"][0].clone();
        assert_eq!(
            (by("function")["function"].as_str(), by("function")["line"].as_u64()),
            (Some("parse"), Some(0))
        );
        assert_eq!(by("own-line")["line"], 4, "{is_module}: the line of the helper");
        assert_eq!(by("module")["function"], "helper");
        assert_eq!(stats["top_by_module"][0]["function"], "helper");
        drop(recorded.folder);
    }
}

#[test]
fn failed_requests_of_one_place_are_one_line() {
    let recorded = record(
        "
def ask(size):
    try:
        bytearray(size)
    except MemoryError:
        pass
for _ in range(30):
    ask(1 << 61)
ask(1 << 58)
",
        &[],
    );
    let stats = answer(&["stats", text(&recorded.run)]);
    let lines: Vec<&str> = stats.lines().filter(|line| line.starts_with("failed ")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("30 times, last after") && lines[0].contains("program.py:4 ask"), "{lines:?}");
    assert!(!lines[1].contains("times"), "{lines:?}");
    assert_eq!(json(&["stats", text(&recorded.run), "--json"])["failed_request_count"], 31);
}

const NATIVE: &str = "
#include <stdlib.h>
#include <string.h>
#include <signal.h>
char *kept[64];
__attribute__((noinline)) void load_table(void) { for (int i = 0; i < 64; i++) kept[i] = memset(malloc(1 << 20), 1, 1 << 20); }
int main(void) { load_table(); raise(SIGABRT); return 0; }
";

#[test]
fn native_holder_of_the_run_summary_is_a_function() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("native.c");
    std::fs::write(&source, NATIVE).unwrap();
    let program = folder.path().join("native");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-fno-omit-frame-pointer", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
    let program = text(&program).to_owned();
    let recorded = record_command(folder, &["--native"], &[&program]);
    let outcome = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
    let outcome: Value = serde_json::from_str(&outcome[outcome.find('{').unwrap()..]).unwrap();
    let held = outcome["processes"][0]["heap"]["held_by"][0]["place"].as_str().unwrap();
    assert!(held.ends_with("native.c:6 load_table"), "{held}");
}

#[test]
fn pages_show_the_program_its_time_and_its_threads() {
    let recorded = record(
        "
import threading
held = []
def load_rows():
    held.extend(bytearray(100_000) for _ in range(50))
thread = threading.Thread(target=load_rows)
thread.start()
thread.join()
",
        &[],
    );
    let run = text(&recorded.run);
    let stats = json(&["stats", run, "--json"]);
    let names: Vec<&str> =
        stats["by_thread"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.contains(&"load_rows"), "{names:?}");
    let table = answer(&["table", run, "-n", "1"]);
    let row = table.lines().last().unwrap().to_owned() + table.lines().rev().nth(1).unwrap();
    assert!(row.contains("load_rows (") && row.contains("malloc"), "{table}");
}
