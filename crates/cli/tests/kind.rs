//! Defaults are found, and an error is one sentence with the next step.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_cmd::Command;

/// Exit code, standard output and standard error of a command started in a folder.
fn stormlog(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("stormlog").unwrap();
    let output = command.current_dir(folder).env_remove("STORMLOG_DIR").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn without_a_path_the_runs_here_are_meant() {
    let work = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/peer-0.4.3/v3.jsonl");
    let asked: [&[&str]; 4] = [&["sessions"], &["oom", "list"], &["oom", "show"], &["query", "events"]];
    for words in asked {
        let (code, out, error) = stormlog(work.path(), words);
        assert_eq!((code, out.as_str(), error.lines().count()), (2, "", 1), "{error}");
        assert!(error.contains("there is no stormlog-runs here"), "{error}");
        assert!(error.contains("stormlog run -- python3 train.py"), "{error}");
    }
    fs::create_dir(work.path().join("stormlog-runs")).unwrap();
    fs::copy(golden, work.path().join("stormlog-runs/events.jsonl")).unwrap();
    for words in [&["sessions"][..], &["query", "events"]] {
        let here = stormlog(work.path(), words);
        assert_eq!(here.0, 0, "{}", here.2);
        assert_eq!(here, stormlog(work.path(), &[words, &["stormlog-runs"]].concat()));
        assert!(here.1.lines().count() > 1, "{}", here.1);
    }
    assert_eq!(stormlog(work.path(), &["oom", "list"]), (0, "No bundles.\n".to_owned(), String::new()));
    let (code, _, error) = stormlog(work.path(), &["oom", "show"]);
    assert_eq!((code, error.contains("no OOM bundle here")), (5, true), "{error}");
}

#[test]
fn missing_path_is_reported_once() {
    let work = tempfile::tempdir().unwrap();
    let message =
        "Error: nothing: does not exist; give a recording, a run directory or a directory of them\n";
    assert_eq!(stormlog(work.path(), &["analyze", "nothing"]), (5, String::new(), message.to_owned()));
    assert_eq!(stormlog(work.path(), &["compare", "nothing", "nothing"]).2, message.repeat(2));
}

#[test]
fn a_program_that_cannot_be_started_is_explained_with_a_shells_status() {
    let work = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        fs::write(work.path().join(name), text).unwrap();
        fs::set_permissions(work.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("train.py", "print(1)", 0o644);
    file("tool", "#!/bin/sh\n", 0o755);
    file("notes", "text", 0o644);
    file("orphan", "#!/no/such/interpreter\n", 0o755);
    fs::create_dir(work.path().join("folder")).unwrap();
    for (words, code, parts) in [
        (&["nosuchprogram"][..], 127, ["nosuchprogram is not on PATH (", "spelling"]),
        (&["--limit", "1GiB", "nosuchprogram"], 127, ["nosuchprogram is not on PATH (", "spelling"]),
        (&["train"], 127, ["train is not on PATH", "did you mean train.py?"]),
        (&["./train"], 127, ["./train does not exist", "did you mean ./train.py?"]),
        (&["other.py"], 127, ["other.py is not on PATH", "no such file here either"]),
        (&["tool"], 127, ["tool is not on PATH", "the file here is ./tool"]),
        (&["notes"], 127, ["notes is not on PATH", "`stormlog run python3 notes`"]),
        (&["sh -c true"], 127, ["quoted as one word", "`stormlog run sh -c true`"]),
        (&["folder"], 127, ["folder is not on PATH", "is a directory"]),
        (&["./folder"], 126, ["./folder is a directory", "name a program"]),
        (&["./notes"], 126, ["./notes is not executable", "chmod +x"]),
        (&["./orphan"], 127, ["./orphan", "interpreter in its first line"]),
        (&[""], 127, ["not on PATH", "spelling"]),
    ] {
        let (found, out, error) = stormlog(work.path(), &[&["run"], words].concat());
        assert_eq!((found, out.as_str(), error.lines().count()), (code, "", 1), "{words:?}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{words:?}: {error}");
    }
    let runs: Vec<_> = fs::read_dir(work.path().join("stormlog-runs")).into_iter().flatten().collect();
    assert!(runs.is_empty(), "what never ran leaves nothing: {runs:?}");
    assert_eq!(stormlog(work.path(), &["run", "--quiet", "./tool"]).0, 0);
}
