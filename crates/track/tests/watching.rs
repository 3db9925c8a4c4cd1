//! Another process and its children, and several trackers of one session over the same files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests stop where something is wrong")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stormlog_alert::alerts::Thresholds;
use stormlog_collect::DeviceCapabilities;
use stormlog_model::{Identity, SessionStatus, SessionSummary};
use stormlog_store::LoadOptions;
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::sink::{Sink, SinkConfig};
use stormlog_track::{Config, Group, HostSource, Outlets, Source, TreeSource, Wording, host_metadata};

const HOUR: Duration = Duration::from_secs(3600);

fn config(interval: Duration) -> Config {
    let session = SessionSummary {
        session_id: "together".into(),
        status: SessionStatus::Running,
        started_at_ns: 1,
        ended_at_ns: None,
        host: "here".into(),
        pid: 7,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "test".into(),
    };
    Config {
        session,
        identity: Identity::default(),
        collector: "stormlog.cpu_tracker".into(),
        interval,
        max_events: 100,
        flight_events: 8,
        metadata: host_metadata(&DeviceCapabilities::of_cpu_tracker()),
        wording: Wording::Cpu,
        says_health: false,
        alerts: true,
        thresholds: Thresholds::default(),
        total_bytes: None,
    }
}

fn host() -> Box<dyn Source> {
    Box::new(HostSource::open().unwrap())
}

/// A shell that waits for its child; killed with it.
struct Family(Child);

impl Family {
    fn start() -> (Self, u32) {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Family(shell), line.trim().parse().unwrap())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_summed_up_with_its_children_until_it_is_gone() {
    let (mut family, child) = Family::start();
    let pid = family.0.id();
    let mut source = TreeSource::open(pid).unwrap();
    let alone = stormlog_collect::process::ProcessReader::open(pid).unwrap().memory().unwrap().rss;
    let sample = source.sample().sample.unwrap();
    assert!(sample.used.unwrap() > alone, "{sample:?} against {alone}");
    assert_eq!(sample.allocated, None, "the kernel knows no allocator");
    assert!(source.pids().list().contains(&child));
    assert!(Command::new("kill").arg(child.to_string()).status().unwrap().success());
    family.0.wait().unwrap();
    let gone = source.sample();
    assert_eq!(gone.sample, None);
    assert!(gone.error.unwrap().contains("has exited"));
    assert!(source.pids().list().is_empty());
}

#[test]
fn a_process_that_is_not_there_or_has_no_memory_is_refused() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    assert!(TreeSource::open(ended.id()).unwrap_err().is_gone());
    assert!(TreeSource::open(u32::MAX).is_err());
}

#[test]
fn trackers_share_one_session_and_the_last_one_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let (sink_path, record_path) = (directory.path().join("sink"), directory.path().join("recording"));
    let sink = Sink::open(SinkConfig::new(&sink_path), "here").unwrap();
    let recorder = Recorder::create(&record_path, config(HOUR).session, &RecorderConfig::default()).unwrap();
    let parts = vec![(config(HOUR), host()), (config(HOUR), host()), (config(HOUR), host())];
    let group = Group::new(parts, Outlets::new(Some(sink), Some(recorder)), None).unwrap();
    group.start().unwrap();
    group.trackers().iter().for_each(stormlog_track::Tracker::tick);
    assert!(group.stop(SessionStatus::Interrupted, Duration::from_secs(5)));
    let events = group.events();
    assert_eq!(events.iter().filter(|event| event.head.event_type == "stop").count(), 3);
    assert!(events.is_sorted_by_key(|event| event.timestamp_ns));
    assert_eq!(group.flight().len(), events.len().min(24));
    assert_eq!(group.session().unwrap().status, SessionStatus::Interrupted);
    assert!(group.take_warnings().is_empty());
    for path in [sink_path, record_path] {
        let sessions = stormlog_store::load_sessions(&path, &LoadOptions::default()).unwrap();
        assert_eq!(sessions.len(), 1, "{}", path.display());
        assert_eq!(sessions[0].summary.status, SessionStatus::Interrupted);
        assert_eq!(sessions[0].events.len(), events.len());
    }
}
