//! Writing bundles: the bytes of 0.4.3, whole or not at all, kept within bounds.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{START, event, record, session, some_events};
use serde_json::{Value, json};
use stormlog_model::{Event, Record};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{
    Bundle, BundleContent, BundleError, BundleWriter, Environment, Evidence, ExceptionText, Retention, list,
    sweep_unfinished,
};
use stormlog_store::{ReadOptions, Source};

const CREATED: u64 = 1_794_715_237_000_000_000;

struct Fixture {
    session: stormlog_model::SessionSummary,
    custom: Record,
    system: Record,
    evidence: Evidence,
}

impl Fixture {
    fn new() -> Self {
        Fixture {
            session: session(),
            custom: record(json!({"tracker_stats": {"peak_memory": 5}, "batch_size": 128, "ratio": 0.5})),
            system: record(json!({"platform": "test"})),
            evidence: Evidence::of(Cause::OomException),
        }
    }

    fn content(&self) -> BundleContent<'_> {
        BundleContent {
            created_at_ns: CREATED,
            pid: 77,
            backend: "cuda",
            reason: "message_pattern:out of memory",
            exception: Some(ExceptionText {
                type_name: "RuntimeError",
                module: "builtins",
                message: "CUDA out of memory — é",
            }),
            context: Some("train"),
            session: Some(&self.session),
            custom_metadata: &self.custom,
            environment: Environment { cwd: Some("/work"), system: &self.system },
            evidence: &self.evidence,
        }
    }

    fn write(&self, root: &Path, events: &[Event]) -> PathBuf {
        let mut writer = BundleWriter::new(Retention::default());
        writer.write(root, &self.content(), events).unwrap().path
    }
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_directory_has_its_name_and_all_its_files() {
    let root = tempfile::tempdir().unwrap();
    let path = Fixture::new().write(&root.path().join("made/as/needed"), &some_events());
    assert_eq!(path.file_name().unwrap(), "oom_dump_20261115T040037Z_77_cuda_1");
    let manifest = json_of(&path.join("manifest.json"));
    assert_eq!(
        keys(&manifest),
        [
            "schema_version",
            "bundle_name",
            "created_at_utc",
            "reason",
            "backend",
            "event_count",
            "session_id",
            "session_status",
            "session",
            "files"
        ]
    );
    assert_eq!(manifest["bundle_name"], "oom_dump_20261115T040037Z_77_cuda_1");
    assert_eq!(manifest["created_at_utc"], "2026-11-15T04:00:37Z");
    let files = json!(["manifest.json", "events.json", "metadata.json", "environment.json", "evidence.json"]);
    assert_eq!(manifest["files"], files);
    for file in files.as_array().unwrap() {
        assert!(path.join(file.as_str().unwrap()).is_file(), "{file}");
    }
    assert_eq!(manifest["event_count"], 4);
    assert_eq!(json_of(&path.join("metadata.json"))["captured_event_count"], 4);
    let evidence = json_of(&path.join("evidence.json"));
    // Computed from the events while they were written.
    assert_eq!(evidence["last_event_timestamp_ns"], START + 1_000_000_000);
    assert_eq!(evidence["peak_rss_bytes"], 3u64 << 30);
    assert_eq!(evidence["limit_bytes"], Value::Null);
    assert_eq!(evidence["devices"].as_array().unwrap().len(), 2);
    assert_eq!(evidence["devices"][1]["device_used_bytes"], 1);
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(entries, 1, "nothing temporary is left");
}

#[test]
fn events_are_the_bytes_of_the_golden_bundle() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/peer-0.4.3/oom/oom_dump_20261115T040037Z_77_cuda_1");
    let events = Source::OomBundle(golden.clone()).events(&ReadOptions::default()).unwrap();
    let events: Vec<Event> = events.map(Result::unwrap).collect();
    let root = tempfile::tempdir().unwrap();
    let path = Fixture::new().write(root.path(), &events);
    // The golden one was fed `null` by hand; a tracker of 0.4.3 writes an object.
    let expected = fs::read_to_string(golden.join("events.json"))
        .unwrap()
        .replace("\"metadata\": null", "\"metadata\": {}");
    assert_eq!(fs::read_to_string(path.join("events.json")).unwrap(), expected);
}

#[test]
fn events_come_back_as_they_were() {
    let root = tempfile::tempdir().unwrap();
    let path = Fixture::new().write(root.path(), &some_events());
    let back = Source::OomBundle(path).events(&ReadOptions::default()).unwrap();
    let back: Vec<Event> = back.map(Result::unwrap).collect();
    assert_eq!(back.len(), 4);
    for (before, after) in some_events().iter().zip(&back) {
        assert_eq!(before.counters, after.counters);
        assert_eq!(before.context, after.context);
        assert_eq!(before.metadata.map, after.metadata.map);
        assert_eq!(before.head.identity, after.head.identity);
        assert_eq!(before.head.session_id, after.head.session_id);
        assert!(
            before.timestamp_ns.abs_diff(after.timestamp_ns) < 1000,
            "seconds as a float keep microseconds"
        );
    }
}

#[test]
fn no_events_are_an_empty_list() {
    let root = tempfile::tempdir().unwrap();
    let path = Fixture::new().write(root.path(), &[]);
    assert_eq!(fs::read_to_string(path.join("events.json")).unwrap(), "[]");
    let bundle = Bundle::read(&path).unwrap();
    assert_eq!((bundle.event_count, bundle.last_event_timestamp_ns), (Some(0), None));
}

#[test]
fn further_files_join_before_it_is_published() {
    let root = tempfile::tempdir().unwrap();
    let fixture = Fixture::new();
    let mut writer = BundleWriter::new(Retention::default());
    let mut draft = writer.draft(root.path(), &fixture.content(), some_events()).unwrap();
    assert!(list(root.path()).unwrap().bundles.is_empty(), "a draft is not a bundle yet");
    fs::write(draft.directory().join("heap.bin"), b"x").unwrap();
    draft.list("heap.bin").unwrap();
    draft.note("native_history_enabled", true.into());
    for wrong in ["../heap.bin", "/etc/passwd", "missing", ""] {
        assert!(matches!(draft.list(wrong), Err(BundleError::NotInBundle { .. })), "{wrong}");
    }
    let path = draft.publish().unwrap().path;
    let manifest = json_of(&path.join("manifest.json"));
    assert_eq!(manifest["files"][5], "heap.bin");
    assert_eq!(keys(&manifest)[9..], ["files", "native_history_enabled"]);
    // Dropped without being published, it is gone.
    let draft = writer.draft(root.path(), &fixture.content(), some_events()).unwrap();
    drop(draft);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn taken_names_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let fixture = Fixture::new();
    fs::create_dir(root.path().join("oom_dump_20261115T040037Z_77_cuda_1")).unwrap();
    fs::write(root.path().join("oom_dump_20261115T040037Z_77_cuda_2"), "a file").unwrap();
    std::os::unix::fs::symlink("/nowhere", root.path().join("oom_dump_20261115T040037Z_77_cuda_3")).unwrap();
    let path = fixture.write(root.path(), &some_events());
    assert_eq!(path.file_name().unwrap(), "oom_dump_20261115T040037Z_77_cuda_4");
    assert_eq!(json_of(&path.join("manifest.json"))["bundle_name"], "oom_dump_20261115T040037Z_77_cuda_4");
}

#[test]
fn two_recorders_of_one_process_never_share_a_bundle() {
    let root = tempfile::tempdir().unwrap();
    let keep_all = Retention { max_bundles: 0, max_total_bytes: 0 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let fixture = Fixture::new();
                let mut writer = BundleWriter::new(keep_all);
                for _ in 0..25 {
                    writer.write(root.path(), &fixture.content(), some_events()).unwrap();
                }
            });
        }
    });
    let found = list(root.path()).unwrap();
    assert_eq!(found.bundles.len(), 100);
    assert!(found.problems.is_empty());
    for row in found.bundles {
        let bundle = Bundle::read(&row.path).unwrap();
        assert_eq!(bundle.name, row.path.file_name().unwrap().to_str().unwrap());
        assert!(bundle.notes.is_empty(), "{:?}", bundle.notes);
    }
}

/// What a child of the tests below does: writes events without end, or as many as fit.
#[test]
fn child() {
    let Some(root) = std::env::var_os("STORMLOG_TEST_BUNDLE_ROOT") else { return };
    let endless = std::env::var_os("STORMLOG_TEST_ENDLESS").is_some();
    let one = event(START, "sample", 0, Some(5), json!({"pad": "x".repeat(1000)}));
    let events = std::iter::repeat_n(one, if endless { usize::MAX } else { 10_000 });
    let fixture = Fixture::new();
    let mut writer = BundleWriter::new(Retention::default());
    writer.write(Path::new(&root), &fixture.content(), events).unwrap();
}

fn child_command(root: &Path) -> String {
    let exe = std::env::current_exe().unwrap();
    format!("STORMLOG_TEST_BUNDLE_ROOT='{}' exec '{}' --exact child", root.display(), exe.display())
}

#[test]
fn a_writer_killed_in_the_middle_leaves_no_bundle() {
    let root = tempfile::tempdir().unwrap();
    let script = format!("STORMLOG_TEST_ENDLESS=1 {}", child_command(root.path()));
    let mut child = Command::new("bash").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let unfinished = || {
        let entries = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| path.join("events.json"))
            .find(|path| fs::metadata(path).is_ok_and(|file| file.len() > 1 << 20))
    };
    for _ in 0..600 {
        if unfinished().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(unfinished().is_some(), "it was killed while it wrote");
    assert!(list(root.path()).unwrap().bundles.is_empty());
    let now = SystemTime::now();
    assert!(
        sweep_unfinished(root.path(), now, Duration::from_secs(3600)).removed.is_empty(),
        "it may be alive"
    );
    let swept = sweep_unfinished(root.path(), now + Duration::from_secs(7200), Duration::from_secs(3600));
    assert_eq!((swept.removed.len(), swept.failed.len()), (1, 0));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn when_the_disk_is_full_the_verdict_is_kept() {
    let root = tempfile::tempdir().unwrap();
    // A file size limit is the full disk an unprivileged test can have: writing fails with EFBIG beyond 1 MiB.
    let script = format!("trap '' XFSZ; ulimit -f 1024; {}", child_command(root.path()));
    let status = Command::new("bash").args(["-c", &script]).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    let bundle = Bundle::read(&list(root.path()).unwrap().bundles[0].path).unwrap();
    assert_eq!(bundle.event_count, Some(0));
    assert_eq!(fs::read_to_string(bundle.path.join("events.json")).unwrap(), "[]");
    assert!(
        bundle.evidence["notes"][0].as_str().unwrap().contains("events are missing"),
        "{:?}",
        bundle.evidence
    );
    assert_eq!(
        bundle.last_event_timestamp_ns,
        Some(START),
        "computed from the events before they were dropped"
    );
}

fn peer() -> Option<std::ffi::OsString> {
    let python = std::env::var_os("STORMLOG_PEER_PYTHON");
    if python.is_none() {
        eprintln!("skipped: STORMLOG_PEER_PYTHON is not set to a Python that has stormlog 0.4.3");
    }
    python
}

/// The real recorder is fed the same events and dumps them: every known file must have the same bytes.
#[test]
fn the_files_are_those_of_the_real_one() {
    let Some(python) = peer() else { return };
    let root = tempfile::tempdir().unwrap();
    let ours = Fixture::new().write(&root.path().join("ours"), &some_events());
    let script = "import sys, json\n\
        from stormlog.oom_flight_recorder import OOMFlightRecorder, OOMFlightRecorderConfig\n\
        from stormlog.session import SessionSummary\n\
        ours, theirs = sys.argv[1:]\n\
        metadata = json.load(open(ours + '/metadata.json'))\n\
        recorder = OOMFlightRecorder(OOMFlightRecorderConfig(enabled=True, dump_dir=theirs),\n\
        \x20   system_info_provider=lambda: json.load(open(ours + '/environment.json'))['system'])\n\
        for event in json.load(open(ours + '/events.json')): recorder.record_event(event)\n\
        print(recorder.dump(reason=metadata['reason'], exception=RuntimeError(metadata['exception_message']),\n\
        \x20   context=metadata['context'], backend=metadata['backend'], metadata=metadata['custom_metadata'],\n\
        \x20   session_summary=SessionSummary(**metadata['session'])), end='')";
    let output = Command::new(&python)
        .args(["-c", script])
        .arg(&ours)
        .arg(root.path().join("theirs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = PathBuf::from(String::from_utf8(output.stdout).unwrap());
    let text = |path: PathBuf| fs::read_to_string(path).unwrap();
    for file in ["events.json", "metadata.json"] {
        assert_eq!(text(ours.join(file)), text(theirs.join(file)), "{file}");
    }
    let (our_environment, their_environment) =
        (json_of(&ours.join("environment.json")), json_of(&theirs.join("environment.json")));
    assert_eq!(keys(&our_environment), keys(&their_environment));
    let mut manifest = json_of(&theirs.join("manifest.json"));
    let our_manifest = json_of(&ours.join("manifest.json"));
    for differs in ["bundle_name", "created_at_utc"] {
        manifest[differs] = our_manifest[differs].clone();
    }
    manifest["files"].as_array_mut().unwrap().push("evidence.json".into());
    assert_eq!(manifest.to_string(), our_manifest.to_string());
    // Its own reader finds both.
    let output = Command::new(&python)
        .args(["-m", "stormlog", "query", "ooms", "--json"])
        .arg(root.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(ours.file_name().unwrap().to_str().unwrap()), "{text}");
}
