//! `stormlog sanitize` with a stand-in for compute-sanitizer, which needs a GPU: it writes a report and runs the program.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Mode of the report, and what is printed to stderr.
fn sanitize(report: &str) -> (u32, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("given"), report).unwrap();
    let tool = format!(
        "#!/bin/sh\nwhile [ \"$1\" != --log-file ]; do shift; done\ncat '{}' > \"$2\"; shift 2; exec \"$@\"\n",
        path("given").display()
    );
    fs::write(path("compute-sanitizer"), tool).unwrap();
    fs::set_permissions(path("compute-sanitizer"), fs::Permissions::from_mode(0o755)).unwrap();
    let search = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let done = Command::new(env!("CARGO_BIN_EXE_stormlog"))
        .args(["sanitize", "-o", "out/report.txt", "--", "sh", "-c", "exit 3"])
        .current_dir(folder.path())
        .env("PATH", search)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let mode = fs::metadata(path("out/report.txt")).unwrap().permissions().mode() & 0o777;
    (mode, String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn report_with_an_error_and_no_leak_is_private_and_has_that_error() {
    let (mode, text) = sanitize(
        "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n\
         =========     at scale() in scale.cu:18\n========= \n========= ERROR SUMMARY: 1 error\n",
    );
    assert_eq!(mode, 0o600);
    assert!(
        text.contains(
            "with 1 error and no leak: Invalid __global__ write of size 4 bytes at scale() in scale.cu:18"
        ),
        "{text}"
    );
    assert!(!text.contains("--leak-check full"), "{text}");
}

#[test]
fn empty_report_has_its_own_sentence() {
    let (_, text) = sanitize("");
    assert_eq!(text, "compute-sanitizer wrote no report: it could not start the program, or was killed.\n");
}
