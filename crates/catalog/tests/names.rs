//! The names of a run directory are in one file. A second place that spells one will drift from it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_catalog::run::layout::{
    CAPTURE_FILE, EXCEPTIONS_DIRECTORY, LOCKS_DIRECTORY, MEMORY_MAP_FILE, OUTPUT_FILE, RING_FILE, RUN_FILE,
    RUN_VARIABLE, RUNS_DIRECTORY, RUNS_VARIABLE, SESSION_FILE, SNAPSHOT_FILE,
};

const OWNER: &str = "crates/model/src/layout.rs";
const NAMES: [&str; 12] = [
    RUN_FILE,
    SESSION_FILE,
    RING_FILE,
    CAPTURE_FILE,
    EXCEPTIONS_DIRECTORY,
    LOCKS_DIRECTORY,
    OUTPUT_FILE,
    MEMORY_MAP_FILE,
    RUNS_DIRECTORY,
    RUNS_VARIABLE,
    RUN_VARIABLE,
    SNAPSHOT_FILE,
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().into_string().unwrap_or_default();
        if kind.is_dir() && !matches!(name.as_str(), "tests" | "target" | "__pycache__" | "examples") {
            sources(&path, found);
        } else if kind.is_file() && (name.ends_with(".rs") || name.ends_with(".py")) {
            found.push(path);
        }
    }
}

#[test]
fn names_of_a_run_directory_are_spelt_in_one_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    sources(&root.join("python"), &mut files);
    assert!(files.len() > 500, "the sources are here");
    let mut again = Vec::new();
    for file in files {
        let place = file.strip_prefix(&root).unwrap().display().to_string();
        if place == OWNER {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        // Tests may spell what they expect.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let spells =
                |name: &&&str| line.contains(&format!("\"{name}\"")) || line.contains(&format!("'{name}'"));
            // As a word of its own it is also a key of our JSON and a field of Python's API.
            let is_word = |name: &&str| [EXCEPTIONS_DIRECTORY].contains(name) && !line.contains("join(");
            if let Some(name) = NAMES.iter().find(spells).filter(|name| !is_comment && !is_word(name)) {
                again.push(format!("{place}:{}: {name}", number + 1));
            }
            if !is_comment && line.contains("-pid{") {
                again.push(format!("{place}:{}: the name of a session directory", number + 1));
            }
        }
    }
    assert!(again.is_empty(), "take these from {OWNER}:\n{}", again.join("\n"));
}
