//! Time and memory of a bundle of 100,000 torch-shaped events: `cargo run --release --example bundle_rate [DIR] [COUNT]`.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use stormlog_model::{Counter, Counters, Event, Head, Identity, Metadata, Record};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{BundleContent, BundleWriter, Environment, Evidence, Retention};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let root = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("bundle-rate-{}", std::process::id()));
    let count = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(100_000);
    // Each event has metadata of its own in the second run: the worst case, nothing repeats.
    for distinct in [false, true] {
        let mut writer = BundleWriter::new(Retention { max_bundles: 1, max_total_bytes: 0 });
        let (system, evidence) = (Record::new(), Evidence::of(Cause::OomException));
        let content = BundleContent {
            created_at_ns: 1_794_715_237_000_000_000,
            pid: 77,
            backend: "cuda",
            reason: "torch.cuda.OutOfMemoryError",
            exception: None,
            context: None,
            session: None,
            custom_metadata: &system,
            environment: Environment { cwd: None, system: &system },
            evidence: &evidence,
        };
        // Making the events is not the writer's time.
        let started = Instant::now();
        let made = Made::new(count, distinct)?.map(|event| event.timestamp_ns).max();
        let making = started.elapsed();
        println!("distinct metadata {distinct}: making {count} events takes {making:.1?} (last at {made:?})");
        let before = resident()?;
        for round in 0..3 {
            let started = Instant::now();
            let events = Made::new(count, distinct)?;
            let written = writer.write(&root, &content, events)?;
            let elapsed = started.elapsed();
            let bytes = std::fs::metadata(written.path.join("events.json"))?.len();
            let grown = resident()?.saturating_sub(before);
            println!(
                "distinct metadata {distinct}, round {round}: {count} events, {bytes} bytes, {elapsed:.1?}, {grown} KiB more resident"
            );
        }
    }
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

/// Events made one at a time, so that what is measured as memory is the writer's.
struct Made {
    left: u64,
    distinct: bool,
    event: Event,
}

impl Made {
    fn new(count: u64, distinct: bool) -> Result<Self, Box<dyn Error>> {
        let mut counters = Counters::UNKNOWN;
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::Change) {
            counters.set(counter, Some(42_000_000_000));
        }
        counters.set_change(Some(-1_048_576));
        let head = Arc::new(Head {
            session_id: "4f2a0d52-63f5-4f3c-9c8e-6f2b1d2c3e4f".into(),
            event_type: "sample".into(),
            collector: "stormlog.cuda_tracker".into(),
            sampling_interval_ms: 100,
            pid: 77,
            host: "node-1".into(),
            identity: Identity::default(),
            device_id: 0,
        });
        let metadata = metadata(0, &counters)?;
        let context = Some("Memory allocated: 1.00 MB".into());
        Ok(Made {
            left: count,
            distinct,
            event: Event { timestamp_ns: 1_700_000_000_000_000_000, counters, context, head, metadata },
        })
    }
}

impl Iterator for Made {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.left = self.left.checked_sub(1)?;
        self.event.timestamp_ns += 100_123_457;
        if self.distinct {
            self.event.metadata = metadata(self.left, &self.event.counters).ok()?;
        }
        Some(self.event.clone())
    }
}

fn metadata(failures: u64, counters: &Counters) -> Result<Arc<Metadata>, Box<dyn Error>> {
    let map = json!({"collector_health_status": "healthy", "telemetry_partial": false, "collector_partial_fields": [],
        "collector_last_error": null, "collector_consecutive_failures": failures, "collector_next_retry_epoch_s": null});
    let map = map.as_object().cloned().unwrap_or_default();
    Ok(Arc::new(Metadata::read(map, "stormlog.cuda_tracker", counters)?))
}

fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
