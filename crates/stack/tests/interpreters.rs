//! The walkers inside every real interpreter that is here, compared with what Python and the C runtime say themselves.
//!
//! `STORMLOG_TEST_PYTHONS` (paths separated by `:`) adds interpreters to those found.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library of `examples/probe.rs`, which `cargo test` builds beside the tests.
fn probe() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().and_then(Path::parent).unwrap().join("examples/libprobe.so");
    assert!(
        library.exists(),
        "{} is not built: run `cargo test -p stormlog-stack --all-features`",
        library.display()
    );
    library
}

/// One interpreter of each version, by what it says its version is.
fn interpreters() -> BTreeMap<String, PathBuf> {
    let mut candidates: Vec<PathBuf> =
        std::env::var("STORMLOG_TEST_PYTHONS").unwrap_or_default().split(':').map(PathBuf::from).collect();
    candidates.push("python3".into());
    candidates.extend((10..16).map(|minor| format!("/usr/bin/python3.{minor}").into()));
    if let Some(home) = std::env::var_os("HOME") {
        let versions =
            std::fs::read_dir(Path::new(&home).join(".pyenv/versions")).into_iter().flatten().flatten();
        candidates.extend(versions.map(|version| version.path().join("bin/python")));
    }
    let mut found = BTreeMap::new();
    for path in candidates.into_iter().filter(|path| !path.as_os_str().is_empty()) {
        let script =
            "import sys, platform; assert sys.version_info >= (3, 10); print(platform.python_version())";
        let Ok(answer) = Command::new(&path).args(["-c", script]).output() else { continue };
        if answer.status.success() {
            found.entry(String::from_utf8(answer.stdout).unwrap().trim().into()).or_insert(path);
        }
    }
    found
}

fn supported(version: &str) -> bool {
    ["3.11.", "3.12.", "3.13.", "3.14."].iter().any(|minor| version.starts_with(minor))
        && !version.contains(['a', 'b', 'r'])
}

fn run(python: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let output = Command::new(python)
        .arg(programs.join(program))
        .arg(probe())
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

fn everywhere(program: &str, arguments: &[&str]) {
    let interpreters = interpreters();
    let mut tried = 0;
    for (version, python) in interpreters.iter().filter(|(version, _)| supported(version)) {
        let (ok, said) = run(python, program, arguments);
        assert!(ok && said.starts_with(version.as_str()), "{program} in {}:\n{said}", python.display());
        tried += 1;
    }
    assert!(tried > 0, "no supported Python among {interpreters:?}");
}

#[test]
fn python_stacks_equal_those_of_python() {
    everywhere("stacks.py", &[]);
}

#[test]
fn the_kept_stack_is_the_plain_one_at_every_allocation() {
    everywhere("workloads.py", &["20000", "0"]);
}

#[test]
fn a_deep_stack_is_compared_at_its_top_only() {
    everywhere("depth.py", &[]);
}

#[test]
fn native_stacks_equal_those_of_the_c_runtime() {
    everywhere("native.py", &[]);
    everywhere("workloads.py", &["10000", "1"]);
}

#[cfg(feature = "symbols")]
#[test]
fn python_and_native_frames_merge_in_true_order() {
    everywhere("merged.py", &[]);
}

#[test]
fn other_versions_are_refused_with_their_number() {
    for (version, python) in interpreters().iter().filter(|(version, _)| !supported(version)) {
        let (ok, said) = run(python, "stacks.py", &[]);
        assert!(
            !ok && said.contains(&format!("refused Python {version} is not supported")),
            "{version}:\n{said}"
        );
    }
}
