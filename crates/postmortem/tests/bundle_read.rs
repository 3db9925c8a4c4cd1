//! Reading bundles: of any origin, damaged or hostile, and finding them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{START, event, some_events};
use proptest::prelude::*;
use serde_json::{Value, json};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{
    Bundle, BundleContent, BundleWriter, Environment, Evidence, HeldBy, MapRow, Retention, list,
};
use stormlog_postmortem::verdict::{DeathFacts, Ending, judge};

fn write(root: &Path, files: &[(&str, Value)]) -> PathBuf {
    fs::create_dir_all(root).unwrap();
    for (name, value) in files {
        fs::write(root.join(name), serde_json::to_vec(value).unwrap()).unwrap();
    }
    root.to_owned()
}

fn original(root: &Path) -> PathBuf {
    write(
        &root.join("oom_cuda_20260303_152030_001"),
        &[
            (
                "manifest.json",
                json!({"schema_version": 1, "bundle_name": "oom_cuda_20260303_152030_001",
                "created_at_utc": "2026-03-03T15:20:30Z", "reason": "oom_exception", "backend": "cuda", "event_count": 1,
                "files": ["events.json", "metadata.json", "environment.json"]}),
            ),
            (
                "metadata.json",
                json!({"reason": "oom_exception", "exception_type": "OutOfMemoryError",
                "exception_module": "torch.cuda", "exception_message": "CUDA out of memory...",
                "context": "training.forward_pass", "backend": "cuda", "captured_event_count": 1,
                "custom_metadata": {"batch_size": 128}}),
            ),
            (
                "events.json",
                json!([{"timestamp": 1709480430.123, "event_type": "allocation", "memory_allocated": 2147483648u64,
                "memory_reserved": 2415919104u64, "memory_change": 134217728, "device_id": 0,
                "context": "training.forward_pass", "backend": "cuda"}]),
            ),
            ("environment.json", json!({"pid": 5})),
        ],
    )
}

#[test]
fn bundle_of_a_kill_has_every_documented_key() {
    let root = tempfile::tempdir().unwrap();
    let mut events = some_events();
    let scope = json!({"phase_scope": {"action": "enter", "name": "forward", "path": ["train", "forward"], "depth": 2,
        "scope_id": "s:2", "parent_scope_id": "s:1", "thread_id": 1, "thread_name": "MainThread", "sequence": 2}});
    events.push(event(START + 7, "phase_enter", -1, None, scope));
    let session = common::session();
    let verdict = judge(&DeathFacts::of("train.py", 77, Ending::Signaled(9)));
    let mut evidence = Evidence::of(verdict.cause);
    evidence.signal = verdict.signal;
    evidence.verdict = Some(verdict.sentence.clone());
    evidence.limit_bytes = Some(16 << 30);
    evidence.peak_rss_bytes = Some(9 << 30);
    evidence.held_by = vec![HeldBy { place: "a.py:1".into(), bytes: 5, note: None }];
    evidence.memory_map =
        vec![MapRow { name: "[heap]".into(), mappings: 1, rss_bytes: Some(4), ..MapRow::default() }];
    let (custom, system) = (Default::default(), Default::default());
    let content = BundleContent {
        created_at_ns: START,
        pid: 77,
        backend: "cpu",
        reason: verdict.cause.as_str(),
        exception: None,
        context: None,
        session: Some(&session),
        custom_metadata: &custom,
        environment: Environment { cwd: None, system: &system },
        evidence: &evidence,
    };
    let path = BundleWriter::new(Retention::default()).write(root.path(), &content, &events).unwrap().path;
    let bundle = Bundle::read(&path).unwrap();
    let shown = Value::Object(bundle.to_record());
    assert_eq!(shown["cause"], "sigkill");
    assert_eq!(shown["signal"], 9);
    assert_eq!(shown["exit_code"], Value::Null);
    assert_eq!(shown["session_id"], "session-1");
    assert_eq!(shown["session_status"], "running");
    assert_eq!(shown["last_event_timestamp_ns"], START + 1_000_000_000);
    assert_eq!(shown["peak_rss_bytes"], 9u64 << 30);
    assert_eq!(shown["limit_bytes"], 16u64 << 30);
    assert_eq!(shown["evidence"]["open_phases"][0]["path"], json!(["train", "forward"]));
    assert_eq!(shown["evidence"]["signal_name"], "SIGKILL");
    assert_eq!(shown["evidence"]["held_by"][0]["place"], "a.py:1");
    assert_eq!(shown["evidence"]["memory_map"][0]["swap_bytes"], Value::Null);
    assert!(bundle.notes.is_empty(), "{:?}", bundle.notes);
    // A file of it stands for it.
    assert_eq!(Bundle::read(&path.join("manifest.json")).unwrap().name, bundle.name);
}

#[test]
fn the_golden_bundle_of_0_4_3() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/peer-0.4.3");
    let found = list(&golden).unwrap();
    assert_eq!(found.bundles.len(), 1);
    let row = Value::Object(found.bundles[0].to_record());
    let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["path", "created_at_utc", "cause", "backend", "session_id"]);
    assert_eq!(row["cause"], "oom_exception");
    let bundle = Bundle::read(&found.bundles[0].path).unwrap();
    assert_eq!(bundle.session_status.as_deref(), Some("running"));
    assert_eq!(bundle.event_count, Some(3));
    assert_eq!((bundle.peak_rss_bytes, bundle.limit_bytes, bundle.signal), (None, None, None));
    assert!(bundle.last_event_timestamp_ns.is_some());
    assert!(bundle.notes.is_empty(), "{:?}", bundle.notes);
}

#[test]
fn the_original_documents_bundle() {
    let root = tempfile::tempdir().unwrap();
    let bundle = Bundle::read(&original(root.path())).unwrap();
    assert_eq!((bundle.cause, bundle.backend.as_deref()), (Cause::OomException, Some("cuda")));
    assert_eq!((bundle.session_id.as_deref(), bundle.session_status.as_deref()), (None, None));
    assert!(bundle.last_event_timestamp_ns.unwrap().abs_diff(1_709_480_430_123_000_000) < 1000);
    assert_eq!(bundle.to_record()["custom_metadata"]["batch_size"], 128);
    assert_eq!(list(root.path()).unwrap().bundles.len(), 1);
}

#[test]
fn a_memory_error_of_0_4_3_is_one() {
    let root = tempfile::tempdir().unwrap();
    let path = original(root.path());
    let metadata =
        json!({"exception_type": "MemoryError", "exception_module": "builtins", "exception_message": ""});
    fs::write(path.join("metadata.json"), metadata.to_string()).unwrap();
    assert_eq!(Bundle::read(&path).unwrap().cause, Cause::MemoryError);
}

#[test]
fn a_bundle_whose_writer_died_is_read_as_far_as_it_goes() {
    let root = tempfile::tempdir().unwrap();
    let path = original(root.path());
    fs::remove_file(path.join("manifest.json")).unwrap();
    let whole = fs::read(path.join("events.json")).unwrap();
    fs::write(path.join("events.json"), &whole[..whole.len() / 2]).unwrap();
    let bundle = Bundle::read(&path).unwrap();
    assert_eq!(bundle.created_at_utc.as_deref(), Some("2026-03-03T15:20:30Z"));
    assert_eq!(bundle.backend.as_deref(), Some("cuda"));
    assert!(bundle.notes.iter().any(|note| note == "manifest.json is missing"), "{:?}", bundle.notes);
    assert!(bundle.notes.len() >= 2, "{:?}", bundle.notes);
    assert_eq!(list(root.path()).unwrap().bundles.len(), 1);
}

#[test]
fn non_bundle_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let error = Bundle::read(root.path()).unwrap_err().to_string();
    assert!(error.contains("not an OOM bundle"), "{error}");
    assert!(Bundle::read(&root.path().join("missing")).is_err());
    assert!(list(&root.path().join("missing")).is_err());
    assert!(list(root.path()).unwrap().bundles.is_empty());
    // A sink's manifest is not a bundle's.
    write(&root.path().join("sink"), &[("manifest.json", json!({"format": "x", "segments": []}))]);
    assert!(list(root.path()).unwrap().bundles.is_empty());
}

#[test]
fn lists_go_deep_but_never_through_links() {
    let root = tempfile::tempdir().unwrap();
    let (inside, outside) = (root.path().join("runs"), root.path().join("outside"));
    original(&inside.join("run-1/rank0-pid5"));
    original(&inside.join("run-1/rank1-pid6"));
    original(&inside.join("oom_dumps"));
    original(&outside);
    std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
    std::os::unix::fs::symlink(&inside, inside.join("loop")).unwrap();
    let hidden = inside.join(".oom_dump_5.1.0.tmp");
    fs::create_dir(&hidden).unwrap();
    original(&hidden);
    let mut deep = inside.clone();
    for _ in 0..40 {
        deep.push("d");
    }
    original(&deep);
    let found = list(&inside).unwrap();
    assert_eq!(found.bundles.len(), 3, "{found:?}");
    assert!(found.incomplete);
    // A bundle, or a file of it, named directly.
    let one = found.bundles[0].path.clone();
    assert_eq!(list(&one).unwrap().bundles.len(), 1);
    assert_eq!(list(&one.join("events.json")).unwrap().bundles[0].path, one);
}

#[test]
fn a_linked_or_special_part_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let path = original(root.path());
    fs::write(root.path().join("secret.json"), r#"{"reason": "secret"}"#).unwrap();
    fs::remove_file(path.join("metadata.json")).unwrap();
    std::os::unix::fs::symlink(root.path().join("secret.json"), path.join("metadata.json")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(path.join("evidence.json")).status().unwrap();
    assert!(status.success());
    let bundle = Bundle::read(&path).unwrap();
    assert_eq!(bundle.reason.as_deref(), Some("oom_exception"));
    assert!(bundle.metadata.is_empty());
    assert_eq!(bundle.notes.len(), 2, "{:?}", bundle.notes);
}

proptest! {
    /// Whatever bytes a bundle's files contain, reading answers and never panics.
    #[test]
    fn any_bytes_are_survived(
        parts in prop::collection::vec((0usize..5, prop::collection::vec(any::<u8>(), 0..200)), 0..6),
        name in "oom_[a-z0-9_]{0,40}",
    ) {
        let root = tempfile::tempdir().unwrap();
        let path = original(root.path());
        let files = ["manifest.json", "metadata.json", "events.json", "environment.json", "evidence.json"];
        for (file, bytes) in parts {
            fs::write(path.join(files[file]), bytes).unwrap();
        }
        let renamed = root.path().join(name);
        if fs::rename(&path, &renamed).is_ok() {
            if let Ok(bundle) = Bundle::read(&renamed) {
                bundle.to_record();
            }
            list(root.path()).unwrap();
        }
    }

    /// Well-formed JSON of wrong types is survived as well.
    #[test]
    fn any_types_are_survived(keys in prop::collection::vec(("[a-z_]{1,12}", any::<Option<i64>>()), 0..10), pick in 0usize..5) {
        let root = tempfile::tempdir().unwrap();
        let path = original(root.path());
        let mut object = serde_json::Map::new();
        for (key, value) in keys {
            object.insert(key, value.into());
        }
        for key in ["bundle_name", "reason", "backend", "event_count", "session", "cause", "signal", "exception_type"] {
            object.insert(key.into(), json!([{}, -1, 1e300]));
        }
        let files = ["manifest.json", "metadata.json", "events.json", "environment.json", "evidence.json"];
        fs::write(path.join(files[pick]), Value::Object(object).to_string()).unwrap();
        Bundle::read(&path).unwrap().to_record();
    }
}
