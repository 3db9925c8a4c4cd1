//! The tracker with real memory and with a scripted source: what it records, when it warns, and how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests stop where something is wrong")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Counter, Event, Identity, Record, SessionStatus, SessionSummary};
use stormlog_store::LoadOptions;
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::sink::{Sink, SinkConfig};
use stormlog_track::{
    Config, DeviceSample, HealthStatus, HostSource, Listener, NewEvent, Outlets, Sampled, Source, Tracker,
    Wording,
};

const HOUR: Duration = Duration::from_secs(3600);

fn session() -> SessionSummary {
    SessionSummary {
        session_id: "s1".into(),
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
    }
}

fn config(interval: Duration, wording: Wording) -> Config {
    let capabilities = json!({
        "backend": "cuda", "telemetry_collector": "stormlog.cuda_tracker", "sampling_source": "test",
        "supports_allocator_allocated": true, "supports_allocator_reserved": true,
        "supports_allocator_active": false, "supports_allocator_inactive": false,
        "supports_device_used": true, "supports_device_free": true, "supports_device_total": true,
        "supports_native_allocator_history": false, "supports_fragmentation_analysis": false,
        "supports_allocator_attribution": true, "supports_bounded_profiling": false,
    });
    Config {
        session: session(),
        identity: Identity::default(),
        collector: "stormlog.cuda_tracker".into(),
        interval,
        max_events: 1000,
        flight_events: 4,
        metadata: Record::from_iter([("memory_capabilities".to_owned(), capabilities)]),
        wording,
        says_health: wording == Wording::Device,
        alerts: true,
        thresholds: Thresholds::default(),
        total_bytes: None,
    }
}

/// Returns the given answers, then the last one forever.
struct ScriptedStandIn(VecDeque<Sampled>);

impl Source for ScriptedStandIn {
    fn sample(&mut self) -> Sampled {
        match self.0.len() {
            1 => self.0[0].clone(),
            _ => self.0.pop_front().unwrap_or_default(),
        }
    }
}

fn bytes(allocated: u64) -> Sampled {
    let sample = DeviceSample {
        allocated: Some(allocated),
        reserved: Some(allocated),
        used: Some(allocated),
        free: Some(1000 - allocated),
        total: Some(1000),
        ..DeviceSample::default()
    };
    Sampled { sample: Some(sample), ..Sampled::default() }
}

fn broken() -> Sampled {
    Sampled { error: Some("no device".into()), ..Sampled::default() }
}

fn scripted(script: Vec<Sampled>) -> Box<ScriptedStandIn> {
    Box::new(ScriptedStandIn(script.into()))
}

fn kinds(tracker: &Tracker) -> Vec<String> {
    tracker.events(|_| true, None).iter().map(|event| event.head.event_type.clone()).collect()
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Listener for Heard {
    fn alert(&self, event: &Event) {
        self.0.lock().unwrap().push(event.context.as_deref().unwrap_or("").to_owned());
    }
}

#[test]
fn the_first_sample_is_taken_at_once_and_the_rhythm_is_kept() {
    let source = Box::new(HostSource::open().unwrap());
    let tracker =
        Tracker::new(config(Duration::from_millis(1), Wording::Cpu), source, Outlets::default(), None)
            .unwrap();
    let begun = Instant::now();
    tracker.start().unwrap();
    assert_eq!(kinds(&tracker)[..3], ["start", "peak", "sample"]);
    let start = tracker.events(|_| true, Some(1000)).remove(0);
    assert!(start.counter(Counter::Used).unwrap() > 100_000, "the start carries real numbers");
    while tracker.statistics().sample_count < 100 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no rhythm at all");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(tracker.stop(Duration::from_secs(60)));
    let due = begun.elapsed().as_millis() as u64 + 1;
    assert!(!tracker.is_running());
    let seen = tracker.statistics();
    // A busy machine may miss some, none may be taken twice.
    assert!(seen.sample_count <= due, "{} of {due}", seen.sample_count);
    assert_eq!(kinds(&tracker).last().unwrap(), "stop");
    assert_eq!(tracker.session().unwrap().status, SessionStatus::Completed);
    assert!(tracker.stop(Duration::ZERO), "a second stop does nothing");
}

#[test]
fn real_memory_is_seen() {
    let source = Box::new(HostSource::open().unwrap());
    let tracker = Tracker::new(config(HOUR, Wording::Cpu), source, Outlets::default(), None).unwrap();
    tracker.start().unwrap();
    let before = tracker.statistics().last_sample.unwrap().used.unwrap();
    let block = vec![1u8; 30 << 20];
    tracker.tick();
    let seen = tracker.statistics();
    assert!(seen.last_sample.unwrap().used.unwrap() >= before + (25 << 20));
    assert!(seen.total_allocation_bytes >= 25 << 20);
    assert_eq!(block[123], 1);
    let texts: Vec<Event> = tracker.events(|event| event.head.event_type == "allocation", None);
    assert!(texts[0].context.as_deref().unwrap().starts_with("RSS increased by "));
}

#[test]
fn one_long_breach_is_one_alert_with_an_end() {
    let heard = Heard::default();
    let mut script = vec![bytes(100), bytes(960), bytes(970), bytes(980)];
    script.extend(std::iter::repeat_n(bytes(100), 5));
    let listener: Box<dyn Listener> = Box::new(heard.clone());
    let tracker =
        Tracker::new(config(HOUR, Wording::Device), scripted(script), Outlets::default(), Some(listener))
            .unwrap();
    tracker.start().unwrap();
    (0..8).for_each(|_| tracker.tick());
    assert_eq!(*heard.0.lock().unwrap(), ["CRITICAL: Memory usage at 96.0%"]);
    assert_eq!(tracker.statistics().alert_count, 1);
    assert_eq!(kinds(&tracker).iter().filter(|kind| *kind == "recovered").count(), 1);
}

#[test]
fn changes_are_counted_from_the_first_sample_on() {
    let script = vec![bytes(100), bytes(150), bytes(120), bytes(120)];
    let tracker =
        Tracker::new(config(HOUR, Wording::Device), scripted(script), Outlets::default(), None).unwrap();
    tracker.start().unwrap();
    (0..3).for_each(|_| tracker.tick());
    let seen = tracker.statistics();
    assert_eq!((seen.peak_memory, seen.peak_device_used), (Some(150), Some(150)));
    assert_eq!((seen.total_allocations, seen.total_allocation_bytes), (1, 50));
    assert_eq!((seen.total_deallocations, seen.total_deallocation_bytes), (1, 30));
    let changes: Vec<_> = tracker
        .events(|event| event.head.event_type == "sample", None)
        .iter()
        .map(|event| event.counters.change())
        .collect();
    assert_eq!(changes, [None, Some(50), Some(-30), Some(0)]);
    tracker.clear();
    assert_eq!(tracker.statistics().peak_memory, None);
    assert!(kinds(&tracker).is_empty());
}

#[test]
fn a_failing_source_is_seen_and_left_alone_for_a_while() {
    let script = vec![bytes(100), broken(), bytes(100)];
    let tracker =
        Tracker::new(config(HOUR, Wording::Device), scripted(script), Outlets::default(), None).unwrap();
    tracker.start().unwrap();
    (0..3).for_each(|_| tracker.tick());
    assert_eq!(tracker.health().status, HealthStatus::Unhealthy);
    assert_eq!(tracker.health().consecutive_failures, 1, "asked once: the pause is a second");
    let degraded = tracker.events(|event| event.head.event_type == "collector_degraded", None);
    assert_eq!(degraded[0].metadata.map["collector_degradation_reason"], "no device");
    assert_eq!(degraded[0].metadata.map["collector_retry_delay_s"], 1.0);
    assert_eq!(tracker.statistics().last_sample, None, "what cannot be read is unknown");
    std::thread::sleep(Duration::from_millis(1050));
    tracker.tick();
    assert_eq!(tracker.health().status, HealthStatus::Healthy);
    assert!(kinds(&tracker).contains(&"collector_recovered".to_owned()));
}

#[test]
fn history_is_bounded_and_the_flight_ring_keeps_the_last() {
    let mut config = config(HOUR, Wording::Device);
    config.max_events = 10;
    let tracker = Tracker::new(config, scripted(vec![bytes(5)]), Outlets::default(), None).unwrap();
    tracker.start().unwrap();
    (0..20).for_each(|_| tracker.tick());
    tracker.add(NewEvent { event_type: "error", context: Some("last"), ..NewEvent::default() });
    let seen = tracker.statistics();
    assert_eq!((seen.retained_events, seen.dropped_events), (10, 14));
    let last: Vec<String> =
        tracker.with_flight(|events| events.map(|event| event.head.event_type.clone()).collect()).unwrap();
    assert_eq!(last, ["sample", "sample", "sample", "error"]);
}

#[test]
fn sink_and_recording_hold_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let (sink_dir, recording_dir) = (folder.path().join("sink"), folder.path().join("recording"));
    let sink = Sink::open(SinkConfig::new(&sink_dir), "here").unwrap();
    let recorder = Recorder::create(&recording_dir, session(), &RecorderConfig::default()).unwrap();
    let outlets = Outlets::new(Some(sink), Some(recorder));
    let tracker =
        Tracker::new(config(HOUR, Wording::Device), scripted(vec![bytes(5)]), outlets, None).unwrap();
    tracker.start().unwrap();
    (0..50).for_each(|_| tracker.tick());
    assert!(tracker.stop(Duration::from_secs(1)));
    let kept = tracker.events(|_| true, None);
    for path in [sink_dir, recording_dir] {
        let loaded = stormlog_store::load_sessions(&path, &LoadOptions::default()).unwrap();
        assert_eq!(loaded.len(), 1, "{}", path.display());
        assert_eq!(loaded[0].summary.status, SessionStatus::Completed);
        assert_eq!(loaded[0].events, kept, "{}", path.display());
    }
}

#[test]
fn a_listener_may_stop_the_tracker() {
    #[derive(Clone, Default)]
    struct Stopper(Arc<Mutex<Option<Arc<Tracker>>>>);
    impl Listener for Stopper {
        fn alert(&self, _: &Event) {
            if let Some(tracker) = self.0.lock().unwrap().as_ref() {
                assert!(tracker.stop(Duration::from_secs(60)));
            }
        }
    }
    let stopper = Stopper::default();
    let script = vec![bytes(1), bytes(1), bytes(990)];
    let listener: Box<dyn Listener> = Box::new(stopper.clone());
    let config = config(Duration::from_millis(20), Wording::Device);
    let tracker =
        Arc::new(Tracker::new(config, scripted(script), Outlets::default(), Some(listener)).unwrap());
    *stopper.0.lock().unwrap() = Some(Arc::clone(&tracker));
    tracker.start().unwrap();
    for _ in 0..6000 {
        if !tracker.is_running() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!tracker.is_running());
    assert_eq!(kinds(&tracker).iter().filter(|kind| *kind == "stop").count(), 1);
    *stopper.0.lock().unwrap() = None;
}
