//! `--memory`: the views of a capture that has the host's memory and a GPU's, against what PyTorch's allocator counted.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Bytes that the allocator counted: at the peak, at the end; and the host's, which only grew.
const PEAK: u64 = 86_613_504;
const LEFT: u64 = 79_231_488;
const HOST: u64 = 9_000_000;

fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../heap/tests/data/devices.bin")
}

fn stormlog(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stormlog")).args(arguments).arg(capture()).output().unwrap()
}

fn answer(arguments: &[&str]) -> String {
    let output = stormlog(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&answer(arguments)).unwrap()
}

fn sum(rows: &Value) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row["own_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn stats_has_the_figures_of_each_device() {
    let stats = json(&["stats", "--json"]);
    let device = &stats["devices"][0];
    assert_eq!((&stats["memory"], &device["device"]), (&"host".into(), &"cuda:0".into()));
    assert_eq!(
        (&device["allocations"], &device["total_allocated_bytes"]),
        (&2271.into(), &225_335_296.into())
    );
    assert_eq!((&device["peak_bytes"], &device["live_bytes"]), (&PEAK.into(), &LEFT.into()));
    assert_eq!((&device["peak_reserved_bytes"], &device["failed_requests"]), (&88_080_384.into(), &0.into()));
    assert_eq!((&device["before_recording_bytes"], &stats["peak_bytes"]), (&0.into(), &HOST.into()));
    let top = device["top"].as_array().unwrap();
    assert_eq!(top.iter().map(|place| place["bytes"].as_u64().unwrap()).sum::<u64>(), LEFT);
    assert_eq!((&top[0]["file"], &top[0]["line"]), (&"train.py".into(), &20.into()));
    assert!(top[0]["function"].is_string() && top[0]["count"].as_u64().unwrap() > 0);
    let of_device = json(&["stats", "--json", "--memory", "cuda:0"]);
    assert_eq!((&of_device["memory"], &of_device["peak_bytes"]), (&"cuda:0".into(), &PEAK.into()));
    let text = answer(&["stats"]);
    for line in ["GPU cuda:0", "allocated   214.9 MiB in 2271 allocations", "reserved at most 84.00 MiB"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn each_view_shows_the_memory_that_is_asked_for() {
    for view in ["summary", "tree", "table", "flamegraph"] {
        for (memory, peak) in [("cuda:0", PEAK), ("host", HOST), ("all", PEAK + HOST)] {
            assert_eq!(sum(&json(&[view, "--json", "--memory", memory])), peak, "{view} of {memory}");
        }
        assert_eq!(sum(&json(&[view, "--json"])), HOST, "{view}");
    }
    assert_eq!(sum(&json(&["leaks", "--json", "--memory", "cuda:0"])), LEFT);
    let head = answer(&["summary", "--memory", "cuda:0"]);
    assert!(head.starts_with("x.py, cuda:0: 82.60 MiB in "), "{head}");
    // Each memory is a root of the tree of all.
    let stacks = json(&["tree", "--json", "--memory", "all"]);
    let roots = stacks.as_array().unwrap().iter().map(|row| row["stack"].as_array().unwrap().last().unwrap());
    let mut roots: Vec<String> = roots.map(|root| root["function"].as_str().unwrap().to_owned()).collect();
    roots.sort();
    roots.dedup();
    assert_eq!(roots, ["cuda:0", "host"]);
}

#[test]
fn diff_compares_the_memory_that_is_asked_for() {
    let first = capture();
    let own = stormlog(&["diff", "--memory", "cuda:0", first.to_str().unwrap()]);
    let text = String::from_utf8(own.stdout).unwrap();
    assert!(text.starts_with("peak 82.60 MiB → 82.60 MiB"), "{text}");
}

#[test]
fn a_memory_without_records_is_refused_with_those_there_are() {
    let refused = stormlog(&["stats", "--memory", "cuda:3"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && text.contains("no records of cuda:3: it has host, cuda:0"),
        "{text}"
    );
    let unknown = stormlog(&["stats", "--memory", "gpu"]);
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("unknown memory \"gpu\": write host"));
}
