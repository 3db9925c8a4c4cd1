//! `snapshot` and `replay` on recordings from a real GPU, as a user or a script runs them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

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

#[test]
fn one_page_names_the_cause_and_the_cure() {
    let (code, page, err) = stormlog(&["snapshot", &recording("varlen-s11-default")]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in [
        "fragmentation: 2.67 GiB were held for at most 2.08 GiB in use",
        "expandable_segments:True would have held 2.16 GiB",
        "4438 of 4438 recorded addresses predicted",
        "activations",
        "(stranded)",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
}

#[test]
fn the_page_for_scripts() {
    let (code, out, _) = stormlog(&["snapshot", &recording("gpt-oom"), "--json", "--no-advice"]);
    assert_eq!(code, 0);
    let page: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(page["devices"][0]["peak_reserved_bytes"], 4_341_104_640u64);
    assert_eq!(page["verdict"]["kind"], "oom_full");
    assert_eq!(page["oom"]["request_bytes"], 1_048_576_000u64);
    assert!(page["top"].as_array().unwrap().len() == 10 && page["categories"].is_array());
}

#[test]
fn the_failed_request() {
    let (code, page, _) = stormlog(&["snapshot", &recording("kvcache-s11-oomretry"), "--oom"]);
    assert_eq!(code, 0);
    assert!(page.starts_with("fragmentation: 47.18 MiB were asked for and 131.50 MiB are free"), "{page}");
    assert!(page.contains("the largest block 21.93 MiB") && page.contains("retries   1"), "{page}");
    let (code, out, err) = stormlog(&["snapshot", &recording("gpt-train"), "--oom"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("no request failed"), "{err}");
}

#[test]
fn replay_answers_would_it_have_fitted() {
    let file = recording("varlen-s11-default");
    let arguments =
        ["replay", &file, "--set", "expandable_segments:True", "--set", "max_split_size_mb:64", "--json"];
    let (code, out, _) = stormlog(&arguments);
    assert_eq!(code, 0);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["self_match"], serde_json::json!({"matched": 4438, "total": 4438}));
    assert_eq!(answer["recorded"]["peak_reserved_bytes"], 2_868_903_936u64);
    assert_eq!(answer["predictions"][0]["peak_reserved_bytes"], 2_323_644_416u64);
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 2);

    let (code, page, _) = stormlog(&["replay", &file, "--search", "--limit", "2.3GiB"]);
    assert_eq!(code, 0);
    assert!(page.contains("Best: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{page}");
    assert!(page.lines().any(|line| line.ends_with("no    (defaults)")), "{page}");
}

#[test]
fn wrong_uses_say_what_to_do() {
    let file = recording("gpt-train");
    for setting in ["max_split_size_mb:3", "colour:red", "expandable_segments"] {
        let (code, out, err) = stormlog(&["replay", &file, "--set", setting]);
        assert_eq!((code, out.as_str()), (2, ""), "{setting}");
        assert!(err.contains(setting), "{err}");
    }
    let (code, _, err) = stormlog(&["replay", &file, "--device", "7", "--search"]);
    assert_eq!(code, 2);
    assert!(err.contains("device 7"), "{err}");
    let directory = tempfile::tempdir().unwrap();
    let evil = directory.path().join("evil.pickle");
    std::fs::write(&evil, b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.").unwrap();
    let (code, out, err) = stormlog(&["snapshot", evil.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (5, ""));
    assert!(err.contains("evil.pickle") && err.contains("wants to run code (GLOBAL)"), "{err}");
    assert_eq!(stormlog(&["snapshot", "/nonexistent.pickle"]).0, 5);
}
