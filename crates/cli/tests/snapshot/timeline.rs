//! `timeline`: the page and the files for other tools.

use std::path::Path;

use serde_json::Value;

use super::{json, recording, stormlog};

fn write(directory: &Path, name: &str, format: &str) -> String {
    let output = directory.join(name);
    let output = output.to_str().unwrap();
    let (code, out, err) =
        stormlog(&["timeline", &recording("streams-s11-default"), "-o", output, "--format", format]);
    assert_eq!((code, out.trim(), err.as_str()), (0, output, ""), "{format}");
    output.to_owned()
}

#[test]
fn a_page_that_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(write(directory.path(), "trace.html", "html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("streams-s11-default.pickle.gz") && page.contains("id=\"data\""));
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "nothing is fetched");
}

#[test]
fn every_block_for_other_tools() {
    let directory = tempfile::tempdir().unwrap();
    let taken =
        json(&["replay", &recording("streams-s11-default"), "--json"])["self_match"]["total"].as_u64();
    let read = |path: String| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let blocks = read(write(directory.path(), "blocks.json", "json"));
    assert!(blocks["blocks"].as_array().unwrap().len() as u64 >= taken.unwrap());
    assert!(!blocks["stacks"].as_array().unwrap().is_empty());
    let perfetto = read(write(directory.path(), "trace.perfetto.json", "perfetto"));
    let events = perfetto["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["ph"] == "C") && events.len() as u64 > taken.unwrap());
    let parquet = std::fs::read(write(directory.path(), "blocks.parquet", "parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn a_file_that_is_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("trace.html");
    std::fs::write(&output, "mine").unwrap();
    let arguments = ["timeline", &recording("graph-s11-default"), "-o", output.to_str().unwrap()];
    let (code, _, err) = stormlog(&arguments);
    assert_eq!(code, 2);
    assert!(err.contains("exists; overwrite it") && std::fs::read(&output).unwrap() == b"mine", "{err}");
    assert_eq!(stormlog(&[&arguments[..], &["--force"]].concat()).0, 0);
    assert_ne!(std::fs::read(&output).unwrap(), b"mine");
}
