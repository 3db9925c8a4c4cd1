//! Allocator snapshots on the command line, with recordings from a real GPU, as a user or a script runs them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod analyze;
mod diff;
mod hostile;
mod page;
mod replay;
mod timeline;

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn recording(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../torch/tests/data").canonicalize().unwrap();
    data.join(format!("{name}.pickle.gz")).to_str().unwrap().to_owned()
}

fn stormlog(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("stormlog").unwrap().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The answer of a command that must succeed, as JSON.
fn json(arguments: &[&str]) -> Value {
    let (code, out, err) = stormlog(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}
