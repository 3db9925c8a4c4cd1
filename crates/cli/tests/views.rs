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
        .args(["run", "--quiet", "--wait", "--heap", "--", python.trim(), "-I", "-S"])
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
        assert!(text.contains(" resident "), "what the heap does not explain is said: {text}");
        assert!(!text.contains('\x1b'), "no colours in a pipe: {text}");
        assert!(!text.contains("Python stacks are unknown"), "{text}");
    }
    let lines = answer(&["parse", run]);
    let mallocs = lines.lines().filter(|line| line.starts_with("MALLOC ")).count();
    assert!(mallocs > 500, "{mallocs}");
    let objects = answer(&["parse", run, "--json"]);
    let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), lines.lines().count());
    for (object, line) in objects.iter().zip(lines.lines()) {
        let name = object["record"].as_str().unwrap();
        assert!(line.starts_with(name), "{object} is not {line}");
        if let Some(bytes) = object["bytes"].as_u64() {
            assert!(
                line.contains(&format!(" address={:#x} ", number(object, "address"))),
                "{object}: {line}"
            );
            assert!(line.contains(&format!(" bytes={bytes}")), "{object} is not {line}");
        }
    }
    let counts: Vec<u64> =
        rows(&["summary", run, "--json", "--sort", "count"]).iter().map(|row| number(row, "count")).collect();
    assert!(counts.len() > 1 && counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert!(answer(&["summary", run, "-n", "1"]).contains(&format!("… {} more functions", counts.len() - 1)));
    assert!(answer(&["summary", run, "--temporary"]).contains("freed before the next allocation"));
}

#[test]
fn ended_running_and_truncated_captures_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(folder.path(), PROGRAM);
    let sessions = std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path().join("heap.bin"));
    let capture = sessions.into_iter().find(|path| path.is_file()).unwrap();
    let text = answer(&["stats", capture.to_str().unwrap()]);
    assert!(text.contains("\nat the end  ") && text.contains("\nend         exited 0 after "), "{text}");
    let whole = std::fs::read(&capture).unwrap();
    let cut = folder.path().join("cut.bin");
    // What is last in the file is how it ended.
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let cut = cut.to_str().unwrap();
    let text = answer(&["stats", cut]);
    assert!(
        text.contains("\nlast seen   ") && text.contains("unknown: the file is truncated after"),
        "{text}"
    );
    let stats: Value = serde_json::from_str(&answer(&["stats", cut, "--json"])).unwrap();
    assert_eq!(stats["complete"], false, "{stats}");
    let views = [
        &["stats"][..],
        &["summary"],
        &["tree"],
        &["table"],
        &["leaks"],
        &["flamegraph", "--format", "collapsed", "-o", "-"],
    ];
    let said = |view: &[&str], more: &[&str]| {
        let output = stormlog(&[view, &[cut][..], more].concat());
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let json = |view: &[&str]| if view.len() > 1 { &[][..] } else { &["--json"][..] };
    for view in views {
        for more in [&[][..], json(view)] {
            let (code, text) = said(view, more);
            assert_eq!(code, Some(0), "{view:?}: {text}");
            assert!(text.contains("The file is truncated: its last "), "{view:?}: {text}");
        }
    }
    // Cut between two blocks: how it ended is gone, and nothing else that can be seen.
    let ending = whole.windows(4).rposition(|word| word == b"SLBK").unwrap();
    std::fs::write(cut, &whole[..ending]).unwrap();
    let (_, text) = said(&["stats"], &[]);
    assert!(text.contains("The file is truncated: how it ended is missing"), "{text}");
    let stats: Value = serde_json::from_str(&answer(&["stats", cut, "--json"])).unwrap();
    assert_eq!(stats["complete"], false, "{stats}");
    // Cut within the first block, before it, and within the header.
    let first = whole.windows(4).position(|word| word == b"SLBK").unwrap();
    for (length, says) in [(first + 40, "is truncated"), (first, "is truncated"), (first - 1, "is truncated")]
    {
        std::fs::write(cut, &whole[..length]).unwrap();
        for view in views.iter().copied().chain([&["parse"][..]]) {
            for more in [&[][..], json(view)] {
                let (code, text) = said(view, more);
                assert_eq!(code, Some(5), "{length} {view:?}: {text}");
                assert!(text.contains(says), "{length} {view:?}: {text}");
            }
        }
    }

    let sums = folder.path().join("sums.bin");
    let sums = sums.to_str().unwrap();
    let home = folder.path().join("sums");
    let recording = ["run", "--quiet", "--dir", home.to_str().unwrap(), "--heap", "--aggregate", "-o", sums];
    answer(&[&recording[..], &["--", "true"]].concat());
    let none = stormlog(&["parse", sums]);
    assert!(
        none.stdout.is_empty()
            && String::from_utf8_lossy(&none.stderr).contains("individual records are not stored")
    );

    let mut program = Command::new(env!("CARGO_BIN_EXE_stormlog"))
        .args(["run", "--quiet", "--heap", "--", "cat"])
        .env("STORMLOG_DIR", folder.path().join("living"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"x").unwrap();
    // It answers once it is up, and then waits for more.
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let living = folder.path().join("living");
    let text = answer(&["stats", living.to_str().unwrap()]);
    let leaks = answer(&["tree", living.to_str().unwrap(), "--leaks"]);
    drop(input);
    assert!(program.wait().unwrap().success());
    assert!(text.contains("\nnow         ") && text.contains("\nend         not yet"), "{text}");
    assert!(leaks.contains("not freed so far"), "{leaks}");
    let text = answer(&["stats", living.to_str().unwrap()]);
    assert!(text.contains("\nat the end  "), "{text}");
}

#[test]
fn a_process_that_became_another_program_is_shown_as_the_larger_one() {
    let folder = tempfile::tempdir().unwrap();
    let run = record(
        folder.path(),
        "import os, sys
child = os.fork()
if not child:
    os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'kept = [bytearray(100_000) for _ in range(100)]'])
os.waitpid(child, 0)
open(os.path.join(os.path.dirname(sys.argv[0]), 'pid'), 'w').write(str(child))
",
    );
    let run = run.to_str().unwrap();
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let output = stormlog(&["stats", run, "--pid", &pid, "--json"]);
    let stats: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["pid"].to_string(), pid);
    assert!(number(&stats, "peak_bytes") > 10_000_000, "{stats}");
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(note.contains(&format!("2 captures of process {pid}")), "{note}");
    let wrong = stormlog(&["stats", run, "--pid", "1"]);
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(5), "{text}");
    let known = text.trim().split_once("it has those of ").unwrap().1.split(", ");
    assert_eq!(known.filter(|known| *known == pid).count(), 1, "each process is named once: {text}");
}

const IN_CPP: &str = "
#include <cstdlib>
#include <new>
#include <string>
#include <vector>
struct Row { char data[1000]; };
std::vector<Row*> rows;
std::vector<std::string> words;
void* volatile got;
__attribute__((noinline)) void keep() { for (int i = 0; i < 2000; i++) rows.push_back(new Row); }
__attribute__((noinline)) void say() { for (int i = 0; i < 500; i++) words.push_back(std::string(300, 'x')); }
__attribute__((noinline)) void fail() { try { got = ::operator new(std::size_t(1) << 62); } catch (std::bad_alloc&) {} }
int main() { keep(); say(); fail(); }
";

#[test]
fn cpp_caller_is_shown_instead_of_operator_new() {
    let folder = tempfile::tempdir().unwrap();
    let [source, program, capture, runs] =
        ["rows.cpp", "rows", "rows.bin", "runs"].map(|name| folder.path().join(name));
    std::fs::write(&source, IN_CPP).unwrap();
    let compiler = Command::new("c++").args(["-g", "-O1", "-o"]).args([&program, &source]).status().unwrap();
    assert!(compiler.success());
    let [program, capture, runs] = [&program, &capture, &runs].map(|path| path.to_str().unwrap());
    answer(&["run", "--quiet", "--dir", runs, "--heap", "--native", "-o", capture, "--", program]);
    let stats: Value = serde_json::from_str(&answer(&["stats", capture, "--json", "-n", "1000"])).unwrap();
    let places = stats["top_by_size"].as_array().unwrap();
    let held = |function: &str| {
        let own = places.iter().filter(|place| place["function"].as_str().unwrap().starts_with(function));
        own.map(|place| number(place, "count")).sum::<u64>()
    };
    assert!(held("keep()") >= 2000 && held("say()") >= 500, "{places:?}");
    for passed_over in ["operator new", "std::", "void std::", "__gnu_cxx::"] {
        assert_eq!(held(passed_over), 0, "{places:?}");
    }
    for (all, each) in [("total_allocated_bytes", "bytes"), ("total_allocations", "count")] {
        assert_eq!(places.iter().map(|place| number(place, each)).sum::<u64>(), number(&stats, all));
    }
    for view in ["stats", "tree"] {
        let text = answer(&[view, capture]);
        let line = text.lines().find(|line| line.contains("failed  ") || line.contains("A request for "));
        assert!(line.is_some_and(|line| line.contains("fail()") && !line.contains("operator new")), "{text}");
    }
}

#[test]
fn unsupported_python_is_distinguished_from_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    // As good as any Python that is not known: it has the name, and no interpreter that could be read.
    let python = folder.path().join("python3.10");
    std::fs::copy("/bin/ls", &python).unwrap();
    let [capture, runs] = ["ls.bin", "runs"].map(|name| folder.path().join(name));
    let [capture, runs, python] = [&capture, &runs, &python].map(|path| path.to_str().unwrap());
    let recording = ["run", "--quiet", "--dir", runs, "--heap", "-o", capture, "--"];
    for (program, is_python) in [(python, true), ("/bin/ls", false)] {
        let _ = std::fs::remove_file(capture);
        answer(&[&recording[..], &[program, "/"]].concat());
        for view in ["stats", "summary"] {
            let text = answer(&[view, capture]);
            assert_eq!(text.contains("Python stacks are unknown"), is_python, "{text}");
            assert_eq!(text.contains("this is not a Python program; --native records"), !is_python, "{text}");
        }
    }
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
            [(path, "stormlog run --heap"), ("/nowhere", "does not exist"), (damaged, "damaged.bin")]
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
