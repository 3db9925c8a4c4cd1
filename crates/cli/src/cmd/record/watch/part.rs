//! One of the things watched, and its numbers as people read them.

use serde_json::{Value, json};
use stormlog_collect::DeviceIdentity;
use stormlog_model::Record;
use stormlog_supervise::Departure;
use stormlog_track::{HOST_DEVICE, Health, NewEvent, Statistics, Tracker};

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// A process's host side or a GPU.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) device_id: i64,
    /// `GPU 0`, `pid 7`, `CPU`.
    pub(crate) label: String,
    pub(crate) name: Option<String>,
    pub(crate) backend: String,
    /// Bytes at the first sample.
    pub(crate) baseline: Option<u64>,
}

impl Part {
    pub(crate) fn this() -> Self {
        Part::host("CPU".to_owned(), None)
    }

    pub(crate) fn process(name: &str, pid: u32) -> Self {
        Part::host(format!("pid {pid}"), Some(name.to_owned()))
    }

    fn host(label: String, name: Option<String>) -> Self {
        Part { device_id: HOST_DEVICE, label, name, backend: "cpu".to_owned(), baseline: None }
    }

    pub(crate) fn gpu(identity: &DeviceIdentity) -> Self {
        Part {
            device_id: identity.device_id,
            label: format!("GPU {}", identity.device_id),
            name: identity.name.clone(),
            backend: identity.backend.clone(),
            baseline: None,
        }
    }

    pub(crate) fn is_gpu(&self) -> bool {
        self.device_id != HOST_DEVICE
    }

    /// The bytes in use: of a framework's allocator where that is known, else of the device.
    pub(crate) fn bytes(&self, seen: &Statistics) -> Option<u64> {
        seen.last_sample.and_then(|sample| sample.allocated.or(sample.used))
    }

    /// The most bytes in use.
    pub(crate) fn peak(&self, seen: &Statistics) -> Option<u64> {
        seen.peak_memory.or(seen.peak_device_used)
    }

    /// 0.4.3's way: gigabytes on a device, megabytes on the host.
    pub(crate) fn size(&self, bytes: Option<u64>, unknown: &str) -> String {
        match bytes {
            None => unknown.to_owned(),
            Some(bytes) if self.is_gpu() => gigabytes(bytes),
            Some(bytes) => megabytes(bytes),
        }
    }

    /// The status line of `track`.
    pub(crate) fn track_line(&self, elapsed: f64, tracker: &Tracker, now_ns: u64) -> String {
        let seen = tracker.statistics();
        let bytes = self.bytes(&seen);
        let share = bytes.zip(seen.total_bytes).filter(|(_, total)| *total > 0);
        let share = share.map_or_else(
            || "-".to_owned(),
            |(bytes, total)| format!("{:.1}%", bytes as f64 / total as f64 * 100.0),
        );
        let health = tracker.health();
        format!(
            "Elapsed: {elapsed:.1}s, Memory: {} ({share}), Peak: {}, Health: {}{}",
            self.size(bytes, "-"),
            self.size(self.peak(&seen), "N/A"),
            health.status.as_str(),
            retry(&health, now_ns)
        )
    }

    /// What `--json` says of it.
    pub(crate) fn to_json(&self, tracker: &Tracker) -> Value {
        let (seen, health) = (tracker.statistics(), tracker.health());
        let sample = seen.last_sample;
        json!({
            "device_id": self.device_id, "label": self.label, "name": self.name, "backend": self.backend,
            "current_bytes": self.bytes(&seen), "peak_bytes": self.peak(&seen), "baseline_bytes": self.baseline,
            "device_used_bytes": sample.and_then(|sample| sample.used),
            "device_free_bytes": sample.and_then(|sample| sample.free), "total_bytes": seen.total_bytes,
            "samples": seen.sample_count, "events": seen.retained_events + seen.dropped_events,
            "alerts": seen.alert_count, "seconds_to_limit": seen.seconds_to_limit,
            "health": health.status.as_str(), "last_error": health.last_error,
        })
    }
}

fn retry(health: &Health, now_ns: u64) -> String {
    match health.next_retry_ns {
        Some(at) => format!(", Retry In: {:.1}s", at.saturating_sub(now_ns) as f64 / 1e9),
        None => String::new(),
    }
}

/// `12.34 MB`
fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / MIB)
}

/// `1.23 GB`
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / GIB)
}

/// The event that keeps how the process ended.
pub(crate) fn departed(departure: &Departure) -> NewEvent<'_> {
    let verdict = departure.verdict.as_ref();
    let metadata = Record::from_iter([
        ("cause".to_owned(), Value::from(verdict.map(|verdict| verdict.cause.as_str()))),
        ("exit_code".to_owned(), verdict.and_then(|verdict| verdict.exit_code).into()),
        ("signal".to_owned(), verdict.and_then(|verdict| verdict.signal).into()),
    ]);
    NewEvent {
        event_type: "process_exit",
        change: Some(0),
        context: Some(&departure.sentence),
        metadata,
        sample: None,
    }
}
