//! The results of `monitor` and `track` as 0.4.3 writes and prints them: of TensorFlow in megabytes, of JAX in bytes and with what is known of the device.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use stormlog_model::{Counter, Event, SCHEMA_LATEST, to_record};
use stormlog_track::HOST_DEVICE;

use super::{Framework, MIB, Options, subject};
use crate::args::machine::device;
use crate::cmd::record::watch::{Screen, WatchSession};

/// Where the figures are from: of a device, and of a process.
const FROM_DRIVER: &str = "driver";
const FROM_PROCESS: &str = "process_rss";

/// The object of the file.
pub(crate) fn of(options: &Options, watch: &WatchSession, alerts: &[Value]) -> Value {
    let at = subject(watch);
    let Some(tracker) = watch.group.trackers().get(at) else { return Value::Null };
    let samples = tracker.events(|event| event.head.event_type == "sample", None);
    let known =
        samples.iter().filter_map(|event| Some((event.counters.get(Counter::Used)?, event.timestamp_ns)));
    let (memory, times): (Vec<u64>, Vec<f64>) = known.map(|(bytes, at)| (bytes, at as f64 / 1e9)).unzip();
    let seen = tracker.statistics();
    let peak = watch.parts.get(at).and_then(|part| part.peak(&seen)).unwrap_or(0) as f64 / MIB;
    let sum: f64 = memory.iter().map(|bytes| *bytes as f64 / MIB).sum();
    let average = if memory.is_empty() { 0.0 } else { sum / memory.len() as f64 };
    let retained = memory.len() as u64;
    let mut results = json!({
        "peak_memory": peak, "average_memory": average, "duration": watch.elapsed(), "timestamps": times,
        "history_window_limit": options.max_history, "history_retained_samples": retained,
        "history_dropped_samples": seen.sample_count.saturating_sub(retained),
        "history_retained_alerts": alerts.len(), "history_dropped_alerts": 0,
    });
    match options.framework {
        Framework::Tensorflow => {
            results["memory_usage"] = memory.iter().map(|bytes| Value::from(*bytes as f64 / MIB)).collect();
            results["alerts"] = alerts.into();
        }
        Framework::Jax => {
            results["memory_usage"] = memory.into();
            results["alerts"] = alerts.len().into();
            add_source(&mut results, options, watch);
        }
    }
    if options.is_tracking {
        let events = watch.group.events();
        let dropped: u64 =
            watch.group.trackers().iter().map(|tracker| tracker.statistics().dropped_events).sum();
        results["history_retained_events"] = events.len().into();
        results["history_dropped_events"] = dropped.into();
        let record = |event: &Event| to_record(event, SCHEMA_LATEST).ok().map(Value::Object);
        results["events"] = events.iter().filter_map(record).collect();
    }
    results
}

/// Whether the figures are of a device, and of what else.
fn add_source(results: &mut Value, options: &Options, watch: &WatchSession) {
    let is_device = watch.parts.get(subject(watch)).is_some_and(|part| part.is_gpu());
    let host = watch.parts.iter().position(|part| !part.is_gpu());
    let rss = host.and_then(|at| watch.parts.get(at)?.bytes(&watch.group.trackers().get(at)?.statistics()));
    let reason = match device::number(&options.device) {
        Ok(HOST_DEVICE) => "JAX does not count the memory of the CPU".to_owned(),
        _ => format!("there is no GPU for device {}", options.device),
    };
    results["device_memory_available"] = is_device.into();
    results["memory_source"] = if is_device { FROM_DRIVER } else { FROM_PROCESS }.into();
    results["device_memory_unavailable_reason"] = (!is_device).then_some(reason).into();
    results["process_memory_bytes"] = rss.into();
}

/// Prints the end of it and writes the file.
pub(crate) fn report(
    screen: &mut Screen,
    options: &Options,
    watch: &WatchSession,
    results: &Value,
) -> anyhow::Result<()> {
    let number = |key: &str| results[key].as_f64().unwrap_or(0.0);
    // Only JAX's results have the key.
    let is_device = results["device_memory_available"].as_bool().unwrap_or(true);
    let peak = number("peak_memory");
    if !options.is_tracking {
        screen.line("\nMonitoring Results:");
        screen.line(&"-".repeat(20));
        if is_device {
            screen.line(&format!("Peak Memory: {peak:.1} MB"));
            screen.line(&format!("Average Memory: {:.1} MB", number("average_memory")));
        } else {
            screen.line("Device Memory: unavailable");
            screen.line(&format!("Process RSS: {:.1} MB", number("process_memory_bytes") / MIB));
            screen.line(&format!("Peak Process RSS: {peak:.1} MB"));
        }
        screen.line(&format!("Duration: {:.1} seconds", number("duration")));
        screen.line(&format!("Samples Collected: {}", results["history_retained_samples"]));
        let alerts = results["history_retained_alerts"].as_u64().unwrap_or(0);
        if alerts > 0 {
            screen.line(&format!("Alerts Triggered: {alerts}"));
        }
    }
    if let Some(path) = &options.output {
        save(path, results)?;
        screen.line(&format!("Results saved to {}", path.display()));
    }
    if options.is_tracking {
        screen.line(&if is_device {
            format!("\nTracking completed. Peak memory: {peak:.1} MB")
        } else {
            let reason = "Device memory was unavailable on this backend.";
            format!("\nTracking completed. {reason} Peak process RSS: {peak:.1} MB")
        });
        let dropped = ["history_dropped_samples", "history_dropped_events"].map(number);
        if options.framework == Framework::Jax && dropped.iter().any(|count| *count > 0.0) {
            screen.line(&format!("History truncation: samples={}, events={}", dropped[0], dropped[1]));
        }
        let health = watch.group.trackers().get(subject(watch)).map(stormlog_track::Tracker::health);
        if let Some(health) = health {
            screen.line(&format!("Collector health: {}", health.status.as_str()));
        }
    }
    Ok(())
}

fn save(path: &Path, results: &Value) -> io::Result<()> {
    stormlog_files::write_output(path, format!("{results:#}").as_bytes(), stormlog_files::Existing::Replace)
}
