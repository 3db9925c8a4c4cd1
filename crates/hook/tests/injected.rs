//! What `stormlog run` puts into a Python program, as the recording of that program shows it: not at all.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Capture, capture, directory, preloaded, python};
use stormlog_capture::record::{definition, kind};

/// Runs a script with the injected code, recorded.
fn run(python: &Path, place: &Path, script: &str) -> Output {
    let injected = place.join("inject");
    std::fs::create_dir_all(place.join("exceptions")).unwrap();
    std::fs::create_dir(&injected).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../supervise/src");
    let code = ["scrubber.py", "../../../python/stormlog/_torch/backward.py", "sitecustomize.py"]
        .map(|part| std::fs::read_to_string(source.join(part)).unwrap());
    // The list of secrets is not the subject here.
    let tables = "_HARMLESS = _WHOLE = _ANYWHERE = _WORDS = _LAST = _ENDINGS = _STARTS = _SCHEMES = ()\n    \
                  _KEY_BLOCK = _SECRET_PATH = _REDACTED = '-'";
    let names = "run_variable, exceptions, locks = 'STORMLOG_RUN_DIR', 'exceptions', '.locks'";
    let code =
        code.join("\n").replace("# tables of secrets", tables).replace("# names in a run directory", names);
    std::fs::write(injected.join("sitecustomize.py"), code).unwrap();
    let mut command = Command::new(python);
    command.args(["-c", script]).env("PYTHONPATH", &injected).env("STORMLOG_RUN_DIR", place);
    preloaded(&mut command, place, "")
}

fn names(capture: &Capture) -> Vec<String> {
    let codes = capture.definitions.iter().filter(|(sort, _, _)| *sort == definition::CODE);
    codes.map(|(_, id, _)| capture.code_name(*id)).collect()
}

#[test]
fn the_failed_requests_are_the_programs_own() {
    let Some(python) = python() else { return };
    let place = directory();
    // Small blocks first: the limit is reached when CPython's allocator asks for an arena.
    let script = "
import resource
pages = int(open('/proc/self/statm').read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 100_000_000,) * 2)
def grow():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
grow()
";
    let done = run(&python, place.path(), script);
    assert!(String::from_utf8_lossy(&done.stderr).contains("MemoryError"));
    let capture = capture(place.path());
    let mut failures = Vec::new();
    for (stream, events) in &capture.streams {
        for event in events.iter().filter(|event| event.kind == kind::FAILED) {
            failures.push(capture.python_stack(*stream, event.python));
        }
    }
    assert!(!failures.is_empty());
    for stack in &failures {
        assert_eq!(stack[..], ["grow", "<module>"], "{failures:?}");
    }
    let reports: Vec<_> = std::fs::read_dir(place.path().join("exceptions")).unwrap().flatten().collect();
    assert_eq!(reports.len(), 1);
    let report = std::fs::read_to_string(reports[0].path()).unwrap();
    assert!(
        report.contains(r#""type": "MemoryError""#) && report.contains(r#""function": "grow""#),
        "{report}"
    );
}

#[test]
fn its_frames_and_what_it_takes_are_not_in_the_capture() {
    let Some(python) = python() else { return };
    let place = directory();
    let script = r#"
import sys
def ours():
    return bytearray(7_777_003)
sys.excepthook, kept = sys.excepthook, ours()
raise ValueError('a "quoted" \\ text\n with \x07 and \udc80')
"#;
    let done = run(&python, place.path(), script);
    assert!(String::from_utf8_lossy(&done.stderr).contains("ValueError"));
    let capture = capture(place.path());
    let names = names(&capture);
    assert!(names.iter().all(|name| !name.contains("_stormlog")), "{names:?}");
    assert!(names.iter().any(|name| name == "ours"));
    assert!(capture.of_size((4 << 20) + 1).is_empty() && capture.of_size(4 << 20).is_empty(), "the reserve");
    let report = std::fs::read_dir(place.path().join("exceptions")).unwrap().next().unwrap().unwrap();
    let report = std::fs::read_to_string(report.path()).unwrap();
    let message = r#""message": "a \"quoted\" \\ text\u000a with \u0007 and \udc80""#;
    assert!(report.contains(message), "{report}");
}
