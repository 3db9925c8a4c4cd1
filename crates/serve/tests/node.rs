//! The reader of a node over sessions that are written here as a supervisor and a program write them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stormlog_catalog::run::{RunDirectory, RunStart};
use stormlog_metrics::Format;
use stormlog_model::{
    Counter, Counters, Event, Head, Identity, Metadata, SessionStatus, SessionSummary, new_session_id,
};
use stormlog_node::{Node, NodeOptions};
use stormlog_serve::{Exposure, exposition};
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::wall_ns;

const GIB: u64 = 1 << 30;
const HOST: i64 = -1;

/// A run whose supervisor is this test.
struct Running {
    root: tempfile::TempDir,
    run: RunDirectory,
    pid: u32,
    _lock: Option<Box<dyn std::any::Any>>,
}

impl Running {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let command = ["train.py".into()];
        let started_at_ns = i64::try_from(wall_ns()).unwrap();
        let run = RunDirectory::create(root.path(), &command, started_at_ns, false).unwrap();
        let lock = run.hold_lock().map(|lock| Box::new(lock) as Box<dyn std::any::Any>);
        let start = RunStart {
            command: &command,
            host: "node",
            started_at_ns,
            interval_ms: 100,
            records_environment: false,
        };
        let mut record = start.to_record();
        let pid = std::process::id();
        record.insert("supervisor".to_owned(), run.supervisor_record());
        record.insert("pid".to_owned(), pid.into());
        run.write(&record).unwrap();
        Running { root, run, pid, _lock: lock }
    }

    fn session(&self, suffix: &str) -> Recorder {
        let summary = SessionSummary {
            session_id: new_session_id(),
            status: SessionStatus::Running,
            started_at_ns: 1,
            ended_at_ns: None,
            host: "node".to_owned(),
            pid: self.pid.into(),
            job_id: Some("job".to_owned()),
            rank: 0,
            local_rank: 0,
            world_size: 1,
            attempt: None,
            source: "test".to_owned(),
        };
        let directory = self.run.path().join(format!("rank0-pid{}{suffix}", self.pid));
        let config = RecorderConfig { keep_log: true, ..RecorderConfig::default() };
        Recorder::create(&directory, summary, &config).unwrap()
    }

    fn node(&self, budget: Option<Duration>) -> Node {
        let roots = vec![self.root.path().to_owned()];
        Node::new(NodeOptions { roots, budget, ..NodeOptions::default() }).unwrap()
    }
}

fn event(event_type: &str, device_id: i64, numbers: &[(Counter, u64)], metadata: Value) -> Event {
    let mut counters = Counters::UNKNOWN;
    for (counter, value) in numbers {
        counters.set(*counter, Some(*value));
    }
    let collector = if device_id == HOST { "stormlog.process_tracker" } else { "stormlog.cuda_tracker" };
    let Value::Object(map) = metadata else { panic!("metadata is an object") };
    let head = Head {
        session_id: "s".to_owned(),
        event_type: event_type.to_owned(),
        collector: collector.to_owned(),
        sampling_interval_ms: 100,
        pid: 7,
        host: "node".to_owned(),
        identity: Identity::default(),
        device_id,
    };
    let metadata = Metadata::read(map, collector, &counters).unwrap();
    Event {
        timestamp_ns: wall_ns(),
        counters,
        context: None,
        head: Arc::new(head),
        metadata: Arc::new(metadata),
    }
}

/// A program with a GPU, which it numbers 0 and the driver 3.
fn record_all(outside: &mut Recorder, inside: &mut Recorder) {
    let host = [(Counter::Used, GIB), (Counter::Total, 16 * GIB), (Counter::Free, 8 * GIB)];
    let facts =
        json!({"comm": "python3", "ppid": 1, "file_backed_bytes": 1 << 20, "process_swap_bytes": 4096});
    assert!(outside.append(&event("sample", HOST, &host, facts)));
    let device = [(Counter::Used, 10 * GIB), (Counter::Free, 6 * GIB), (Counter::Total, 16 * GIB)];
    let of_driver = json!({"device_uuid": "GPU-x", "process_device_used_bytes": 4 * GIB});
    assert!(outside.append(&event("sample", 3, &device, of_driver)));
    let allocator = [
        (Counter::Allocated, 2 * GIB),
        (Counter::Reserved, 3 * GIB),
        (Counter::Active, 2 * GIB),
        (Counter::Inactive, GIB / 2),
        (Counter::Used, 10 * GIB),
    ];
    let of_allocator = json!({"device_uuid": "GPU-x", "num_alloc_retries": 5, "num_ooms": 1});
    assert!(inside.append(&event("sample", 0, &allocator, of_allocator)));
}

fn text(node: &mut Node) -> String {
    node.look();
    exposition(node, Exposure::Everyone).render(Format::Text)
}

fn has(text: &str, line: &str) -> bool {
    text.lines().any(|found| found == line)
}

#[test]
fn allocator_and_hidden_memory_are_joined_with_the_drivers_device() {
    let running = Running::new();
    let (mut outside, mut inside) = (running.session(""), running.session("-cuda0"));
    record_all(&mut outside, &mut inside);
    let text = text(&mut running.node(None));
    let of = r#"job_id="job",rank="0""#;
    for line in [
        format!(r#"stormlog_allocator_allocated_bytes{{{of},device="3"}} {}"#, 2 * GIB),
        format!(r#"stormlog_allocator_inactive_split_bytes{{{of},device="3"}} {}"#, GIB / 2),
        format!(r#"stormlog_allocator_retries_total{{{of},device="3"}} 5"#),
        format!(r#"stormlog_hidden_bytes{{{of},device="3",part="process"}} {GIB}"#),
        format!(r#"stormlog_hidden_bytes{{{of},device="3",part="others"}} {}"#, 6 * GIB),
        format!(r#"stormlog_device_used_bytes{{device="3",uuid="GPU-x"}} {}"#, 10 * GIB),
        format!(r#"stormlog_window_max_bytes{{{of},what="reserved",device="3",window="1m"}} {}"#, 3 * GIB),
        format!(r#"stormlog_process_swap_bytes{{{of},role="main"}} 4096"#),
        format!(r#"stormlog_limit_bytes{{{of},limit="device",device="3"}} {}"#, 16 * GIB),
    ] {
        assert!(has(&text, &line), "{line}\n{text}");
    }
    assert!(!text.contains("device=\"0\"") && !text.contains("command="), "{text}");
    let of_rank = text.lines().filter(|line| line.contains("rank=\"0\"")).count();
    assert!(of_rank <= 60, "{of_rank}");
}

#[test]
fn session_of_a_killed_process_ends_with_it() {
    let running = Running::new();
    let (mut outside, mut inside) = (running.session(""), running.session("-cuda0"));
    record_all(&mut outside, &mut inside);
    let mut node = running.node(None);
    assert!(text(&mut node).contains("stormlog_allocator_reserved_bytes{"));
    assert!(outside.append(&event("error", HOST, &[], json!({"death": "cgroup_oom_kill"}))));
    let now = i64::try_from(wall_ns()).unwrap();
    outside.close(SessionStatus::Interrupted, now).unwrap();
    let text = text(&mut node);
    assert!(!text.contains("stormlog_allocator_reserved_bytes{") && !text.contains("rank=\""), "{text}");
    assert!(has(&text, "stormlog_deaths_total{cause=\"cgroup_oom_kill\"} 1"), "{text}");
    drop(inside);
}

#[test]
fn look_without_time_has_no_samples_and_counts_what_was_not_read() {
    let running = Running::new();
    let (mut outside, mut inside) = (running.session(""), running.session("-cuda0"));
    record_all(&mut outside, &mut inside);
    let text = text(&mut running.node(Some(Duration::ZERO)));
    assert!(has(&text, "stormlog_scrape_unread_runs 1"), "{text}");
    assert!(!text.contains("rank=\""), "{text}");
}

#[test]
fn directory_that_is_not_there_is_counted() {
    let options = NodeOptions { roots: vec![Path::new("/nonexistent").to_owned()], ..NodeOptions::default() };
    let text = text(&mut Node::new(options).unwrap());
    assert!(has(&text, "stormlog_scrape_errors_total{reason=\"directory\"} 1"), "{text}");
}
