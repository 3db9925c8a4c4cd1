//! What the telemetry of a source has of each device and phase: the numbers that 0.4.3's tables had.
//!
//! One pass over the events. Must never keep more than [`MAX_READINGS`] readings and [`MAX_SPANS`] phases of a session.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_analyze::phases::{PhaseRecord, Span};
use stormlog_analyze::recording::derived_of;
use stormlog_analyze::rules::gap::GapThresholds;
use stormlog_model::{Counter, Event};
use stormlog_store::{ReadOptions, Source, StoreError};

/// Readings of one session and rank by which its phases are measured.
const MAX_READINGS: usize = 1 << 20;
/// Phases of one session and rank that are measured, the newest.
const MAX_SPANS: usize = 20_000;
/// Readings that are compared in all: nested phases look at the same readings again.
const MAX_COMPARED: usize = 50_000_000;

/// What one source has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FrameworkTelemetry {
    /// One row for each session and device, in the order they appear.
    pub devices: Vec<FrameworkDevice>,
    /// The phases by name, the one that was left last first.
    pub phases: Vec<PhaseRow>,
    /// Events.
    pub events: u64,
    /// Alerts among them.
    pub alerts: u64,
    /// What is missing: a torn end, a damaged record.
    pub notes: Vec<String>,
}

/// One device of one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FrameworkDevice {
    /// The framework or runtime whose allocator is counted: `cuda`, `rocm`, `mps`, `tensorflow`, `jax`, `cpu`, ….
    pub backend: String,
    /// The device; -1 is the host.
    pub device_id: i64,
    /// Rank over the whole job.
    pub rank: u64,
    /// The process; -1 when unknown.
    pub pid: i64,
    /// Samples of it.
    pub samples: u64,
    /// The last of them.
    pub last_ns: u64,
    /// Handed out by the allocator, now.
    pub allocated: Option<u64>,
    /// The most that was.
    pub peak_allocated: Option<u64>,
    /// Held by the allocator, now.
    pub reserved: Option<u64>,
    /// In use, pending frees included.
    pub active: Option<u64>,
    /// Free beside something live.
    pub inactive: Option<u64>,
    /// Used on the device, or resident for a host.
    pub used: Option<u64>,
    /// The most that was.
    pub peak_used: Option<u64>,
    /// Size of the device.
    pub total: Option<u64>,
    /// The highest share of reserved memory that was inactive.
    pub fragmentation: Option<f64>,
}

impl FrameworkDevice {
    /// Whether that share is one worth a finding.
    #[must_use]
    pub fn is_fragmented(&self) -> bool {
        self.fragmentation.is_some_and(|share| share >= GapThresholds::default().fragmentation)
    }

    fn observe(&mut self, event: &Event) {
        self.samples += 1;
        self.last_ns = event.timestamp_ns;
        let known = |counter| event.counter(counter);
        for (now, counter) in [
            (&mut self.allocated, Counter::Allocated),
            (&mut self.reserved, Counter::Reserved),
            (&mut self.active, Counter::Active),
            (&mut self.inactive, Counter::Inactive),
            (&mut self.used, Counter::Used),
            (&mut self.total, Counter::Total),
        ] {
            *now = known(counter).or(*now);
        }
        self.peak_allocated = self.peak_allocated.max(known(Counter::Allocated));
        self.peak_used = self.peak_used.max(known(Counter::Used));
        if let Some(share) = derived_of(event).fragmentation_ratio {
            self.fragmentation = Some(self.fragmentation.map_or(share, |most| most.max(share)));
        }
    }
}

/// A phase by its name: 0.4.3's table of profiles.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PhaseRow {
    /// `train / forward`.
    pub path: String,
    /// How often it was entered.
    pub calls: u64,
    /// The most that was allocated in it.
    pub peak: Option<u64>,
    /// From its beginning to its end, on average.
    pub mean_change: Option<i64>,
    /// Nanoseconds, on average.
    pub mean_ns: u64,
    /// When it was left last.
    pub last_ns: u64,
}

/// Reads a source; when `go_on` says no, what was read so far is the answer.
pub fn framework_telemetry(
    source: &Source,
    go_on: &dyn Fn() -> bool,
) -> Result<FrameworkTelemetry, StoreError> {
    let mut reader = source.events(&ReadOptions::default())?;
    let mut found = FrameworkTelemetry::default();
    let mut places: FxHashMap<(String, u64, i64), usize> = FxHashMap::default();
    let mut programs: BTreeMap<(String, u64), Program> = BTreeMap::new();
    for event in reader.by_ref().take_while(|_| go_on()) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                found.notes.push(error.to_string());
                break;
            }
        };
        found.events += 1;
        let head = &event.head;
        let is_alert = matches!(head.event_type.as_str(), "warning" | "critical" | "error");
        found.alerts += u64::from(is_alert);
        let key = (head.session_id.clone(), head.identity.rank);
        programs.entry(key.clone()).or_default().observe(&event);
        if head.event_type != "sample" && head.event_type != "peak" {
            continue;
        }
        let place = *places.entry((key.0, key.1, head.device_id)).or_insert_with(|| {
            found.devices.push(FrameworkDevice {
                backend: backend_of(&event),
                device_id: head.device_id,
                rank: head.identity.rank,
                pid: head.pid,
                ..FrameworkDevice::default()
            });
            found.devices.len() - 1
        });
        found.devices[place].observe(&event);
    }
    found.notes.extend(reader.notes());
    found.phases = phase_rows(programs.into_values());
    Ok(found)
}

/// What the collector states of itself; every event of schema 4 does.
fn backend_of(event: &Event) -> String {
    let capabilities = event.metadata.map.get("memory_capabilities").and_then(Value::as_object);
    let stated = capabilities.and_then(|stated| stated.get("backend")).and_then(Value::as_str);
    stated.unwrap_or("unknown").to_owned()
}

/// What a session and rank has of its phases: the boundaries, and the readings by which they are measured.
#[derive(Debug, Default)]
struct Program {
    phases: PhaseRecord,
    readings: Vec<(u64, u64)>,
}

impl Program {
    fn observe(&mut self, event: &Event) {
        self.phases.observe(event);
        let reading = event.counter(Counter::Allocated).or_else(|| event.counter(Counter::Used));
        if let Some(bytes) = reading.filter(|_| self.readings.len() < MAX_READINGS) {
            self.readings.push((event.timestamp_ns, bytes));
        }
    }
}

fn phase_rows(programs: impl Iterator<Item = Program>) -> Vec<PhaseRow> {
    let mut rows: BTreeMap<String, (PhaseRow, i128, i128, u64)> = BTreeMap::new();
    let mut left = MAX_COMPARED;
    for mut program in programs {
        let mut spans = program.phases.spans();
        if spans.is_empty() {
            continue;
        }
        spans.sort_by_key(|span| std::cmp::Reverse(span.to_ns));
        spans.truncate(MAX_SPANS);
        program.readings.sort_by_key(|(at_ns, _)| *at_ns);
        for span in spans {
            let (row, duration, change, changed) = rows.entry(span.path.clone()).or_default();
            row.calls += 1;
            row.last_ns = row.last_ns.max(span.to_ns);
            *duration += i128::from(span.to_ns.saturating_sub(span.from_ns));
            if let Some((peak, difference)) = measured(&program.readings, &span, &mut left) {
                row.peak = row.peak.max(Some(peak));
                *change += difference;
                *changed += 1;
            }
        }
    }
    let row = |(path, (row, duration, change, changed)): (String, (PhaseRow, i128, i128, u64))| PhaseRow {
        path,
        mean_ns: u64::try_from(duration / i128::from(row.calls.max(1))).unwrap_or(u64::MAX),
        mean_change: (changed > 0).then(|| i64::try_from(change / i128::from(changed)).unwrap_or(i64::MAX)),
        ..row
    };
    let mut rows: Vec<PhaseRow> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.last_ns));
    rows
}

/// The highest reading in a phase, and the last one less the first.
fn measured(readings: &[(u64, u64)], span: &Span, left: &mut usize) -> Option<(u64, i128)> {
    let from = readings.partition_point(|(at_ns, _)| *at_ns < span.from_ns);
    let to = readings.partition_point(|(at_ns, _)| *at_ns <= span.to_ns);
    let inside = readings.get(from..to)?;
    *left = left.checked_sub(inside.len())?;
    let peak = inside.iter().map(|(_, bytes)| *bytes).max()?;
    Some((peak, i128::from(inside.last()?.1) - i128::from(inside.first()?.1)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn event(at: u64, kind: &str, allocated: u64, scope: Option<(&str, u64)>) -> String {
        let scope = scope.map_or(String::new(), |(action, number)| {
            format!(
                r#","phase_scope":{{"action":"{action}","name":"train","path":["train"],"scope_id":"s:{number}","thread_id":1,"thread_name":"m","sequence":{number}}}"#
            )
        });
        format!(
            r#"{{"schema_version":3,"session_id":"s","timestamp_ns":{at},"event_type":"{kind}","collector":"stormlog.cuda_tracker","sampling_interval_ms":1,"pid":7,"host":"h","device_id":0,"allocator_allocated_bytes":{allocated},"allocator_reserved_bytes":100,"allocator_active_bytes":{allocated},"allocator_inactive_bytes":40,"allocator_change_bytes":0,"device_used_bytes":120,"device_free_bytes":null,"device_total_bytes":1000,"context":null,"metadata":{{"x":1{scope}}}}}"#
        )
    }

    #[test]
    fn a_session_has_its_devices_and_its_phases_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let lines = [
            event(10, "phase_enter", 5, Some(("enter", 1))),
            event(20, "sample", 50, None),
            event(30, "phase_exit", 20, Some(("exit", 1))),
            event(40, "warning", 20, None),
            event(50, "sample", 30, None),
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = framework_telemetry(&Source::Json(path), &|| true).unwrap();
        assert_eq!((found.events, found.alerts, found.notes.len()), (5, 1, 0), "{:?}", found.notes);
        let [device] = found.devices.as_slice() else { panic!("{:?}", found.devices) };
        assert_eq!((device.backend.as_str(), device.samples, device.last_ns), ("cuda", 2, 50));
        assert_eq!(
            (device.allocated, device.peak_allocated, device.reserved),
            (Some(30), Some(50), Some(100))
        );
        assert!(device.is_fragmented(), "{:?}", device.fragmentation);
        let [phase] = found.phases.as_slice() else { panic!("{:?}", found.phases) };
        assert_eq!((phase.path.as_str(), phase.calls, phase.mean_ns), ("train", 1, 20));
        assert_eq!((phase.peak, phase.mean_change), (Some(50), Some(15)));
    }

    #[test]
    fn a_damaged_source_shows_what_comes_before_the_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        std::fs::write(&path, format!("{}\n{{\"schema_version\": 99}}\n", event(1, "sample", 5, None)))
            .unwrap();
        let found = framework_telemetry(&Source::Json(path), &|| true).unwrap();
        assert_eq!((found.devices.len(), found.notes.len()), (1, 1));
    }
}
