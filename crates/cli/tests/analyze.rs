//! `analyze`, `check`, `compare` and `query` as they are typed: answers, JSON, files, exit codes.
#![allow(clippy::unwrap_used, reason = "a test stops at what cannot be")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::{Value, json};

const GIB: f64 = 1_073_741_824.0;

fn stormlog(arguments: &[&str]) -> Output {
    Command::cargo_bin("stormlog").unwrap().args(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// Host samples a second apart.
fn write(path: &Path, gibibytes: impl Fn(u32) -> f64) -> String {
    let record = |index: u32| {
        let bytes = (gibibytes(index) * GIB) as u64;
        json!({
            "timestamp": 1_700_000_000 + index, "event_type": "sample", "memory_allocated": bytes,
            "memory_reserved": bytes, "memory_change": 0, "device_id": -1, "session_id": "run",
        })
    };
    let records: Vec<Value> = (0..200).map(record).collect();
    fs::write(path, Value::Array(records).to_string()).unwrap();
    path.display().to_string()
}

struct Fixture {
    folder: tempfile::TempDir,
    leak: String,
    saw: String,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let leak = write(&folder.path().join("leak_events.json"), |i| 1.0 + 19.5 * f64::from(i) / 199.0);
    let saw = write(&folder.path().join("saw_events.json"), |i| 1.0 + 19.5 * f64::from(i % 20) / 20.0);
    Fixture { folder, leak, saw }
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn a_leak_is_critical_and_exits_3_and_a_saw_of_the_same_peak_is_fine() {
    let fixture = fixture();
    let leak = stormlog(&["analyze", &fixture.leak, "--json"]);
    let report = parsed(&leak);
    assert_eq!(code(&leak), 3);
    assert_eq!(report["verdict"]["status"], "findings");
    assert_eq!(report["verdict"]["exit_code"], 3);
    let finding = &report["findings"][0];
    assert_eq!((&finding["kind"], &finding["severity"]), (&json!("leak"), &json!("critical")));
    for key in ["id", "confidence", "title", "evidence", "advice", "metrics"] {
        assert!(!finding[key].is_null(), "{key}");
    }
    assert!(!report["recommendations"].as_array().unwrap().is_empty());
    assert_ne!(report["payload"]["optimization_score"]["grade"], "A");

    let saw = stormlog(&["analyze", &fixture.saw, "--json"]);
    assert_eq!(code(&saw), 0);
    let report = parsed(&saw);
    assert_eq!(report["verdict"]["status"], "pass");
    let bad = |finding: &Value| finding["severity"] != "info";
    assert!(!report["findings"].as_array().unwrap().iter().any(bad), "{report:#}");
}

#[test]
fn pages_are_text_markdown_and_html() {
    let fixture = fixture();
    let page = text(&stormlog(&["analyze", &fixture.leak]).stdout);
    assert!(page.contains("CRITICAL  LEAK") && page.contains("try "), "{page}");
    let markdown = fixture.path("report.md");
    let output = stormlog(&["analyze", &fixture.leak, "--output", markdown.to_str().unwrap()]);
    assert_eq!(code(&output), 3);
    assert!(fs::read_to_string(&markdown).unwrap().starts_with("# Memory analysis"));
    let html = text(&stormlog(&["analyze", &fixture.leak, "--format", "html"]).stdout);
    assert!(html.starts_with("<!doctype html>"));
}

#[test]
fn unreadable_input_is_named_and_exits_5() {
    let fixture = fixture();
    let broken = fixture.path("broken.json");
    fs::write(&broken, "{\"events\": [{\"timesta").unwrap();
    for path in [broken.to_str().unwrap(), "/nowhere/at/all.json"] {
        let output = stormlog(&["analyze", path, "--json"]);
        assert_eq!(code(&output), 5, "{path}");
        assert_eq!(parsed(&output)["verdict"]["status"], "invalid_input");
        assert!(text(&output.stderr).contains(path), "{}", text(&output.stderr));
    }
    let both = stormlog(&["analyze", &fixture.leak, broken.to_str().unwrap(), "--json"]);
    assert_eq!(code(&both), 5);
    let kinds: Vec<Value> =
        parsed(&both)["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].clone()).collect();
    assert!(kinds.contains(&json!("leak")) && kinds.contains(&json!("damaged_input")), "{kinds:?}");
    let session = stormlog(&["analyze", &fixture.leak, "--session-id", "nobody"]);
    assert_eq!(code(&session), 5);
    assert!(text(&session.stderr).contains("Requested session_id not found: nobody"));
    assert_eq!(code(&stormlog(&["analyze"])), 2);
}

#[test]
fn parts_are_read_in_their_order_and_copies_are_counted() {
    let fixture = fixture();
    let whole = fs::read_to_string(&fixture.leak).unwrap();
    let events: Vec<Value> = serde_json::from_str(&whole).unwrap();
    let folder = fixture.path("parts");
    fs::create_dir(&folder).unwrap();
    // By name the second comes first.
    for (part, name) in events.chunks(events.len().div_ceil(2)).zip(["events_2.json", "events_10.json"]) {
        fs::write(folder.join(name), serde_json::to_string(part).unwrap()).unwrap();
    }
    let count = |paths: &[&str]| {
        let report = parsed(&stormlog(&[&["analyze", "--json"], paths].concat()));
        let kinds = report["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].clone());
        (report["metrics"]["event_count"].as_u64().unwrap(), kinds.collect::<Vec<_>>())
    };
    let parts = folder.to_str().unwrap();
    assert_eq!(count(&[parts]), count(&[&fixture.leak]));
    let (events_seen, kinds) = count(&[&fixture.leak, parts]);
    assert_eq!(events_seen, events.len() as u64, "once");
    assert!(kinds.contains(&json!("overlapping_input")), "and said: {kinds:?}");
}

#[test]
fn a_gate_passes_fails_and_writes_what_ci_reads() {
    let fixture = fixture();
    let (junit, table) = (fixture.path("junit.xml"), fixture.path("check.md"));
    let failed = stormlog(&[
        "check",
        &fixture.leak,
        "--max-peak",
        "4GiB",
        "--max-growth",
        "1MiB/min",
        "--junit",
        junit.to_str().unwrap(),
        "--markdown",
        table.to_str().unwrap(),
    ]);
    assert_eq!(code(&failed), 4);
    assert!(text(&failed.stdout).contains("FAILED"));
    let junit = fs::read_to_string(&junit).unwrap();
    assert!(junit.contains("failures=\"3\""), "{junit}");
    assert!(fs::read_to_string(&table).unwrap().contains("**failed**"));
    let baseline = fixture.path("baseline.json");
    let baseline = baseline.to_str().unwrap();
    assert_eq!(code(&stormlog(&["check", &fixture.saw, "--baseline", baseline, "--update-baseline"])), 0);
    assert_eq!(code(&stormlog(&["check", &fixture.saw, "--baseline", baseline])), 0);
    let output = stormlog(&["check", &fixture.leak, "--baseline", baseline, "--json"]);
    assert_eq!(code(&output), 4);
    assert_eq!(parsed(&output)["verdict"]["status"], "gate_failed");
    let wide = ["check", &fixture.leak, "--baseline", baseline, "--max-allocated-peak-increase", "10%"];
    assert_eq!(code(&stormlog(&wide)), 0);
    assert_eq!(code(&stormlog(&["check", &fixture.saw])), 2);
    let missing = stormlog(&["check", &fixture.saw, "--baseline", "/nowhere.json"]);
    assert_eq!(code(&missing), 5);
    assert!(text(&missing.stderr).contains("/nowhere.json: there is no baseline yet"));
    for (option, value) in [("--max-growth", "1MiB"), ("--max-allocated-peak-increase", "2")] {
        let guessed = stormlog(&["check", &fixture.saw, "--baseline", baseline, option, value]);
        assert_eq!(code(&guessed), 2, "{option} {value}: a unit is never guessed");
    }
}

#[test]
fn bundle_alone_reports_what_ended_the_program() {
    let bundles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/peer-0.4.3/oom");
    let output = stormlog(&["analyze", bundles, "--json"]);
    assert_eq!(code(&output), 3);
    let report = parsed(&output);
    assert_eq!(
        (&report["findings"][0]["kind"], &report["findings"][0]["severity"]),
        (&json!("oom"), &json!("critical"))
    );
    assert_eq!(report["findings"].as_array().unwrap().len(), 1, "said once: {report:#}");
}

#[test]
fn two_runs_are_compared() {
    let fixture = fixture();
    let output = stormlog(&["compare", &fixture.saw, &fixture.leak, "--json"]);
    assert_eq!(code(&output), 0);
    let answer = parsed(&output);
    assert!(answer["peak_allocated_bytes"]["delta"].as_i64().unwrap() > 0);
    assert_eq!(answer["findings"]["b"]["leak"], 1);
    // Against nothing there is nothing to say.
    let nothing = stormlog(&["compare", &fixture.saw, "/nowhere/at/all"]);
    assert_eq!((code(&nothing), text(&nothing.stdout)), (5, String::new()));
    assert!(text(&nothing.stderr).contains("/nowhere/at/all"), "{}", text(&nothing.stderr));
}

#[test]
fn queries_give_rows() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/peer-0.4.3");
    let sink = format!("{golden}/sink");
    let sessions = parsed(&stormlog(&["query", "sessions", &sink, "--json"]));
    assert_eq!((&sessions[0]["status"], &sessions[0]["source_count"]), (&json!("completed"), &json!(3)));
    let events = parsed(&stormlog(&["query", "events", &sink, "--event-type", "stop", "--json"]));
    assert_eq!(events.as_array().unwrap().len(), 1);
    let limited = parsed(&stormlog(&["query", "events", &sink, "--limit", "2", "--json"]));
    assert_eq!(limited.as_array().unwrap().len(), 2);
    let ooms = parsed(&stormlog(&["query", "ooms", golden, "--json"]));
    assert_eq!(ooms[0]["backend"], "cuda");
    let issues = parsed(&stormlog(&["query", "issues", golden, "--kind", "oom", "--json"]));
    // The fingerprint 0.4.3 gives the same bundle.
    assert_eq!(issues[0]["fingerprint_id"], "issue:63b1d6557bebb97a5d630e5b");
    let runs = parsed(&stormlog(&["query", "runs", &sink, "--json"]));
    assert_eq!(runs[0]["run_id"], "job:job-7");
    let peak =
        parsed(&stormlog(&["query", "summary", &sink, "--metric", "peak_device_used_bytes", "--json"]));
    assert_eq!(peak[0]["value"], 37_261_312);
    let at = events[0]["timestamp_ns"].to_string();
    let near = parsed(&stormlog(&["query", "correlate", &sink, "--at-ns", &at, "--limit", "3", "--json"]));
    let kinds = |answer: &Value| -> Vec<Value> {
        answer["evidence"].as_array().unwrap().iter().map(|found| found["kind"].clone()).collect()
    };
    assert_eq!(kinds(&near)[0], "rollup_window", "what holds the moment comes first");
    let phase = ["query", "correlate", &sink, "--at-ns", &at, "--kind", "timeline_marker", "--json"];
    let markers = parsed(&stormlog(&phase));
    let titles: Vec<&Value> =
        markers["evidence"].as_array().unwrap().iter().map(|found| &found["title"]).collect();
    assert!(titles.contains(&&json!("Phase: load")), "{titles:?}");
    // The id 0.4.3 gives the same marker.
    let ids: Vec<&Value> =
        markers["evidence"].as_array().unwrap().iter().map(|found| &found["evidence_id"]).collect();
    assert!(ids.contains(&&json!("evidence-b0a66d973a6fc483a6c8d56a")), "{ids:?}");
    let events = ["query", "correlate", &sink, "--at-ns", &at, "--kind", "telemetry_event", "--json"];
    let near = parsed(&stormlog(&events));
    let record = near["evidence"][0]["metadata"]["record_id"].as_str().unwrap().to_owned();
    let again = parsed(&stormlog(&["query", "correlate", &sink, "--record-id", &record, "--json"]));
    assert_eq!(again["evidence"][0]["confidence"], "high");
    assert_eq!(code(&stormlog(&["query", "issues", golden, "--csv"])), 2);
    assert_eq!(code(&stormlog(&["query", "sessions", "/nowhere"])), 5);
    let nothing = stormlog(&["query", "events", &sink, "--event-type", "nothing"]);
    assert_eq!(text(&nothing.stdout), "No rows.\n");
}

#[test]
fn under_the_older_name_words_file_and_exit_codes_are_those_of_the_older_release() {
    let fixture = fixture();
    let older_name = fixture.path("gpumemprof");
    std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin("stormlog"), &older_name).unwrap();
    let gpumemprof = |arguments: &[&str]| Command::new(&older_name).args(arguments).output().unwrap();
    let report = fixture.path("report.json");
    let output = gpumemprof(&["analyze", &fixture.leak, "--output", report.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    let page = text(&output.stdout);
    for words in ["Basic Analysis:", "Gap findings: 0", "Telemetry session selected: run (incomplete", "leak"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["session"]["selected_session_id"], "run");
    assert_eq!(report["critical_issues"][0]["pattern_type"], "leak");
    for key in [
        "summary",
        "all_patterns",
        "all_insights",
        "recommendations",
        "gap_analysis",
        "collective_attribution",
    ] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert_eq!(code(&gpumemprof(&["analyze", "/nowhere.json"])), 5);
    let foreign = fixture.path("foreign.json");
    fs::write(&foreign, "{\"a\": 1}").unwrap();
    let output = gpumemprof(&["analyze", foreign.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).contains("Notes: JSON payload does not contain telemetry events"));
}

/// A job of some ranks whose third jumps first, one file a rank.
fn ranks(folder: &Path, count: u32) -> String {
    let job = folder.join(format!("job-{count}"));
    fs::create_dir(&job).unwrap();
    for rank in 0..count {
        let record = |step: u32| {
            let jumped = (rank == 2 && step >= 20) || step >= 40;
            let used = (if jumped { 9.0 } else { 4.0 } * GIB) as u64;
            json!({
                "timestamp_ns": 1_700_000_000_000_000_000_u64 + u64::from(step) * 100_000_000, "event_type": "sample",
                "device_id": 0, "allocator_allocated_bytes": 1_u64 << 30, "allocator_reserved_bytes": 2_u64 << 30,
                "device_used_bytes": used, "device_total_bytes": 80_u64 << 30, "session_id": format!("s{rank}"),
                "job_id": "night", "rank": rank, "local_rank": rank, "world_size": count, "host": "node", "pid": 10 + rank,
            })
        };
        let lines: Vec<String> = (0..80).map(|step| record(step).to_string()).collect();
        fs::write(job.join(format!("events_rank{rank}.jsonl")), lines.join("\n") + "\n").unwrap();
    }
    job.display().to_string()
}

fn is_png(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(b"IEND\xaeB`\x82")
}

#[test]
fn plots_are_drawn_where_they_are_wanted_under_each_name() {
    let fixture = fixture();
    let (job, plots) = (ranks(fixture.folder.path(), 4), fixture.path("plots"));
    let output = stormlog(&["analyze", &job, "--visualization", "--plot-dir", plots.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("Plot saved to: "), "{}", text(&output.stderr));
    for name in ["memory_timeline", "cross_rank_timeline", "rank_timelines"] {
        assert!(is_png(&plots.join(format!("{name}.png"))), "{name}");
        let svg = fs::read_to_string(plots.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg ") && svg.contains("rank 2"), "{name}");
    }
    let svg = fs::read_to_string(plots.join("cross_rank_timeline.svg")).unwrap();
    assert!(svg.contains("rank 2 jumped first") && svg.contains("cluster onset"), "{svg}");
    // Of many ranks, the outlier has a name and a colour, and the rest is a range.
    let (many, crowded) = (ranks(fixture.folder.path(), 12), fixture.path("crowded"));
    stormlog(&["analyze", &many, "--visualization", "--plot-dir", crowded.to_str().unwrap()]);
    let svg = fs::read_to_string(crowded.join("cross_rank_timeline.svg")).unwrap();
    assert!(
        svg.contains("least to greatest of 12 ranks")
            && svg.contains(">rank 2<")
            && !svg.contains(">rank 7<"),
        "{svg}"
    );
    let nothing = fixture.path("nothing");
    let output =
        stormlog(&["analyze", "/nowhere", "--visualization", "--plot-dir", nothing.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("Nothing to plot") && !nothing.exists());
    let file = fixture.path("file");
    fs::write(&file, "").unwrap();
    let output = stormlog(&["analyze", &job, "--visualization", "--plot-dir", file.to_str().unwrap()]);
    assert!(code(&output) != 0 && text(&output.stderr).contains("file"), "{}", text(&output.stderr));
}

#[test]
fn sql_is_listed_with_its_requirements() {
    let help = stormlog(&["--help"]);
    assert!(text(&help.stdout).contains("sql"), "{}", text(&help.stdout));
    let output = stormlog(&["sql", "run", "select 1"]);
    assert_eq!(code(&output), 2);
    let sentence = text(&output.stderr);
    assert!(
        sentence.contains("pip install 'stormlog[sql]'") && sentence.contains("convert run"),
        "{sentence}"
    );
}

#[test]
fn attachments_of_a_run_are_listed_as_in_0_4_3() {
    let folder = tempfile::tempdir().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/peer-0.4.3/sink");
    let sink = folder.path().join("run/sink");
    fs::create_dir_all(&sink).unwrap();
    for entry in fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), sink.join(entry.file_name())).unwrap();
    }
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(sink.join("manifest.json")).unwrap()).unwrap();
    let session = manifest["sessions"][0]["session_id"].as_str().unwrap();
    let sidecar = json!({"schema_version": 1, "format": "stormlog.attachments", "attachments": [
        {"title": "Dash", "kind": "dashboard", "url": "https://example.org/d", "session_id": session},
        {"title": "no place", "kind": "dashboard"}, "not an object",
    ]});
    fs::write(folder.path().join("run/stormlog_attachments.json"), sidecar.to_string()).unwrap();
    let path = folder.path().to_str().unwrap();
    let rows = parsed(&stormlog(&["query", "attachments", path, "--json"]));
    let kinds: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    let segments = manifest["segments"].as_array().unwrap().len();
    assert_eq!(kinds.iter().filter(|kind| **kind == "telemetry_sink_segment").count(), segments);
    for kind in ["dashboard", "telemetry_sink", "telemetry_rollup"] {
        assert_eq!(kinds.iter().filter(|found| **found == kind).count(), 1, "{kinds:?}");
    }
    let dash = rows.as_array().unwrap().iter().find(|row| row["kind"] == "dashboard").unwrap();
    assert_eq!((&dash["run_id"], &dash["storage"]), (&json!("job:job-7"), &json!("reference")));
    assert_eq!(dash["source_kind"], "attachment_sidecar");
    let one = parsed(&stormlog(&["query", "attachments", path, "--kind", "telemetry_sink", "--json"]));
    assert_eq!(one.as_array().unwrap().len(), 1);
    assert_eq!(
        one[0]["metadata"]["manifest_path"].as_str().unwrap(),
        sink.join("manifest.json").to_str().unwrap()
    );
    let csv = text(&stormlog(&["query", "attachments", path, "--csv"]).stdout);
    assert!(
        csv.starts_with("run_id,kind,title,storage,session_id,job_id,rank,source_kind,source_path,"),
        "{csv}"
    );
    let none = stormlog(&["query", "attachments", path, "--run-id", "nobody"]);
    assert_eq!(text(&none.stdout), "No rows.\n");
}
