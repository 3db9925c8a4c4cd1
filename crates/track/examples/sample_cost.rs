//! What a sample costs: `cargo run --release -p stormlog-track --example sample_cost [DIRECTORY]`.
//!
//! First the sample and the append alone, in a loop; then the thread at 10 Hz and 1 kHz, as share of one core. With a
//! directory the events also go into a crash-safe recording there, and a bundle of 100,000 events is written beside it.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks and may stop")]

use std::time::{Duration, Instant};

use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Identity, Record, SessionStatus, SessionSummary};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{BundleContent, BundleWriter, Environment, Retention};
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_track::{Config, HostSource, Outlets, Tracker, Wording};

const SAMPLES: u32 = 200_000;

fn main() {
    let directory = std::env::args_os().nth(1).map(std::path::PathBuf::from);
    let idle = tracker(Duration::from_secs(3600), directory.as_deref());
    let (wall, cpu) = (Instant::now(), cpu_time());
    for _ in 0..SAMPLES {
        idle.tick();
    }
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(SAMPLES);
    println!("sample + append: {:.2} us wall, {:.2} us CPU", each(wall.elapsed()), each(cpu_time() - cpu));
    println!("samples counted: {}", idle.statistics().sample_count);
    if let Some(directory) = &directory {
        dump(&idle, directory);
    }
    drop(idle);
    for hertz in [10, 1000] {
        let tracker = tracker(Duration::from_secs(1) / hertz, None);
        let (wall, cpu) = (Instant::now(), cpu_time());
        tracker.start().expect("the thread starts");
        std::thread::sleep(Duration::from_secs(3));
        let share = (cpu_time() - cpu).as_secs_f64() / wall.elapsed().as_secs_f64() * 100.0;
        tracker.stop(Duration::from_secs(1));
        let count = tracker.statistics().sample_count;
        println!("{hertz} Hz: {share:.3} % of one core, {count} samples in 3 s");
    }
}

fn dump(tracker: &Tracker, directory: &std::path::Path) {
    let (nothing, evidence) = (Record::new(), stormlog_track::evidence_now(Cause::MemoryError));
    let content = BundleContent {
        created_at_ns: 1_700_000_000_000_000_000,
        pid: 1,
        backend: "cpu",
        reason: "builtins.MemoryError",
        exception: None,
        context: None,
        session: None,
        custom_metadata: &nothing,
        environment: Environment { cwd: None, system: &nothing },
        evidence: &evidence,
    };
    let mut writer = BundleWriter::new(Retention::default());
    let start = Instant::now();
    let written = tracker.with_flight(|events| writer.write(&directory.join("bundles"), &content, events));
    let written = written.expect("this process").expect("a writable directory");
    println!("bundle of {} events: {:.3} s", written.event_count, start.elapsed().as_secs_f64());
}

fn tracker(interval: Duration, directory: Option<&std::path::Path>) -> Tracker {
    let session = SessionSummary {
        session_id: "cost".into(),
        status: SessionStatus::Running,
        started_at_ns: 0,
        ended_at_ns: None,
        host: "here".into(),
        pid: 1,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "example".into(),
    };
    let recorder = directory.map(|directory| {
        Recorder::create(directory, session.clone(), &RecorderConfig::default())
            .expect("a writable directory")
    });
    let capabilities = serde_json::json!({
        "backend": "cpu", "telemetry_collector": "stormlog.cpu_tracker", "sampling_source": "/proc/self/statm",
        "supports_allocator_allocated": true, "supports_allocator_reserved": true,
        "supports_allocator_active": false, "supports_allocator_inactive": false,
        "supports_device_used": true, "supports_device_free": true, "supports_device_total": true,
        "supports_native_allocator_history": false, "supports_fragmentation_analysis": false,
        "supports_allocator_attribution": true, "supports_bounded_profiling": false,
    });
    let config = Config {
        session,
        identity: Identity::default(),
        collector: "stormlog.cpu_tracker".into(),
        interval,
        max_events: 10_000,
        flight_events: 100_000,
        metadata: Record::from_iter([("memory_capabilities".to_owned(), capabilities)]),
        wording: Wording::Cpu,
        says_health: false,
        alerts: true,
        thresholds: Thresholds::default(),
        total_bytes: None,
    };
    let source = Box::new(HostSource::open().expect("this process can be read"));
    Tracker::new(config, source, Outlets::new(None, recorder), None).expect("the capabilities are whole")
}

/// CPU time of all threads: nanoseconds on a core, the first number of each thread's `schedstat`.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc");
    let spent = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    Duration::from_nanos(spent.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum())
}
