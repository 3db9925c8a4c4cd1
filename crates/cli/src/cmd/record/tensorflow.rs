//! `tfmemprof monitor` and `track`: the older flags, lines and file over the same watch as the other names.
//!
//! Memory is in megabytes, of the device named, as its driver tells it: no TensorFlow is needed in this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Counter, Event, SCHEMA_LATEST, to_record};
use stormlog_store::sink::{Sink, SinkConfig};
use stormlog_track::{HOST_DEVICE, Outlets};

use crate::Program;
use crate::cmd::record::track::code;
use crate::cmd::record::track_export::{self, Export};
use crate::cmd::record::watch::{self, MAX_EVENTS, Reason, Screen, Stop, Wanted, Watch};
use crate::exit::Wrong;

pub(crate) struct Options {
    /// `track` rather than `monitor`.
    pub(crate) is_tracking: bool,
    pub(crate) pid: Option<u32>,
    /// `/GPU:N` or `/CPU:0`.
    pub(crate) device: String,
    pub(crate) interval: f64,
    pub(crate) duration: Option<f64>,
    pub(crate) threshold_mb: Option<f64>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) identity: [Value; 4],
    pub(crate) sink: Option<SinkConfig>,
    /// Services the session is sent to.
    pub(crate) export: Option<Export>,
    pub(crate) json: bool,
}

/// Seconds between two status lines where they cannot be kept up to date, as `track` has it.
const STATUS_SECONDS: f64 = 5.0;
const MIB: f64 = 1_048_576.0;

pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    if let Some(export) = &options.export {
        export.check()?;
    }
    let device = device_of(&options.device)?;
    let stop = Stop::watch();
    let mut screen = Screen::new(options.json);
    let found = watch::find(Wanted {
        pid: options.pid,
        device: Some(device),
        interval: options.interval,
        alerts: false,
        thresholds: Thresholds::default(),
        identity: options.identity.clone(),
        flight_events: 0,
        source: "stormlog.tensorflow",
    })?;
    if device != HOST_DEVICE && options.pid.is_none() && !found.has_gpu() {
        let asked = &options.device;
        let sentence = format!(
            "there is no GPU for {asked}, so TensorFlow is not available on it; --device /CPU:0 or --pid PID \
             watches the host"
        );
        return Err(Wrong(sentence).into());
    }
    header(&mut screen, options);
    let sink = match &options.sink {
        Some(config) => Some(Sink::open(config.clone(), found.session.host.clone())?),
        None => None,
    };
    if let Some(parent) = options.output.as_deref().and_then(Path::parent) {
        fs::create_dir_all(parent)?;
    }
    let mut watch = found.start(Outlets::new(sink, None))?;
    let mut seen = Seen { next: 0.0, threshold: options.threshold_mb, alerts: Vec::new(), is_above: false };
    let duration = options.duration.filter(|duration| *duration != 0.0);
    let reason = watch.run(duration, &stop, |watch, _: &[Event]| seen.look(&mut screen, watch));
    screen.settle();
    match &reason {
        Reason::Signal(_) if options.is_tracking => screen.line("\nStopping tracking..."),
        Reason::Signal(_) => screen.line("\n\nStopping monitoring..."),
        Reason::Departed(departure) => screen.line(&format!("\n{}", departure.sentence)),
        Reason::Elapsed | Reason::ReaderGone => {}
    }
    watch.finish(&reason);
    let results = results(options, &watch, &seen.alerts);
    report(&mut screen, options, &watch, &results)?;
    if let Some(export) = &options.export {
        let sink = options.sink.as_ref().map(|sink| sink.root_dir.as_path());
        let done = track_export::tracked(&watch, options.output.as_deref(), sink, None);
        export.deliver(Program::Tfmemprof, done, options.json)?;
    }
    if options.json {
        let mut answer = results;
        answer["stopped_by"] = reason.word().into();
        answer["process"] = watch::process_json(&watch, &reason);
        screen.answer(&format!("{answer:#}"));
    }
    Ok(code(&reason))
}

/// `/GPU:1` → 1, `/CPU:0` → the host.
fn device_of(text: &str) -> Result<i64, Wrong> {
    let upper = text.to_ascii_uppercase();
    let name = upper.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix("DEVICE:").unwrap_or(name);
    match name.split_once(':') {
        Some(("CPU", _)) => Ok(HOST_DEVICE),
        Some(("GPU", number)) if number.parse::<u32>().is_ok() => Ok(number.parse().unwrap_or(0)),
        _ => Err(Wrong(format!("{text} is no device; expected /GPU:0 or /CPU:0"))),
    }
}

fn header(screen: &mut Screen, options: &Options) {
    if options.is_tracking {
        screen.line("Starting background memory tracking...");
        if let Some(sink) = &options.sink {
            screen.line(&format!("Append-only telemetry sink: {}", sink.root_dir.display()));
        }
        screen.line("Tracking started. Press Ctrl+C to stop and save results.");
        return;
    }
    screen.line("Starting TensorFlow memory monitoring...");
    screen.line(&format!("Sampling interval: {:?} seconds", options.interval));
    match options.duration.filter(|duration| *duration != 0.0) {
        Some(duration) => screen.line(&format!("Duration: {duration:?} seconds")),
        None => screen.line("Duration: Indefinite"),
    }
    if let Some(threshold) = options.threshold_mb.filter(|threshold| *threshold != 0.0) {
        screen.line(&format!("Alert threshold: {threshold:?} MB"));
    }
    screen.line("Press Ctrl+C to stop\n");
}

/// What was shown and warned of so far.
struct Seen {
    next: f64,
    threshold: Option<f64>,
    alerts: Vec<Value>,
    is_above: bool,
}

impl Seen {
    fn look(&mut self, screen: &mut Screen, watch: &Watch) -> bool {
        let current = current(watch);
        self.warn(screen, current);
        let elapsed = watch.elapsed();
        if elapsed >= self.next {
            self.next = if screen.is_live() { elapsed + 0.5 } else { self.next + STATUS_SECONDS };
            let memory = current.map_or_else(|| "unavailable".to_owned(), |mb| format!("{mb:.1} MB"));
            let line = format!("Current memory usage: {memory}");
            if screen.is_live() { screen.live(&line) } else { screen.line(&line) }
        }
        !screen.is_gone()
    }

    /// One long breach is one alert.
    fn warn(&mut self, screen: &mut Screen, current: Option<f64>) {
        let Some((now, threshold)) = current.zip(self.threshold.filter(|threshold| *threshold > 0.0)) else {
            return;
        };
        let was_above = std::mem::replace(&mut self.is_above, now > threshold);
        if was_above || !self.is_above {
            return;
        }
        let message = format!("Memory usage {now:.1} MB exceeds threshold {threshold:.1} MB");
        screen.line(&format!("\n⚠️  MEMORY ALERT: {message}"));
        let at = jiff::Timestamp::now().as_nanosecond() as f64 / 1e9;
        self.alerts.push(json!({
            "timestamp": at, "memory_mb": now, "threshold_mb": threshold, "message": message,
        }));
    }
}

/// The device asked for: the GPU where there is one.
fn subject(watch: &Watch) -> usize {
    watch.parts.iter().position(watch::Part::is_gpu).unwrap_or(0)
}

fn current(watch: &Watch) -> Option<f64> {
    let at = subject(watch);
    let seen = watch.group.trackers().get(at)?.statistics();
    Some(watch.parts.get(at)?.bytes(&seen)? as f64 / MIB)
}

/// The object 0.4.3 writes.
fn results(options: &Options, watch: &Watch, alerts: &[Value]) -> Value {
    let at = subject(watch);
    let Some(tracker) = watch.group.trackers().get(at) else { return Value::Null };
    let samples = tracker.events(|event| event.head.event_type == "sample", None);
    let used = |event: &Event| event.counters.get(Counter::Used).map(|bytes| bytes as f64 / MIB);
    let memory: Vec<f64> = samples.iter().filter_map(used).collect();
    let times: Vec<f64> = samples.iter().map(|event| event.timestamp_ns as f64 / 1e9).collect();
    let seen = tracker.statistics();
    let peak = watch.parts.get(at).and_then(|part| part.peak(&seen)).unwrap_or(0) as f64 / MIB;
    let average = if memory.is_empty() { 0.0 } else { memory.iter().sum::<f64>() / memory.len() as f64 };
    let retained = memory.len() as u64;
    let mut results = json!({
        "peak_memory": peak, "average_memory": average, "duration": watch.elapsed(), "memory_usage": memory,
        "timestamps": times, "alerts": alerts, "history_window_limit": MAX_EVENTS,
        "history_retained_samples": retained,
        "history_dropped_samples": seen.sample_count.saturating_sub(retained),
        "history_retained_alerts": alerts.len(), "history_dropped_alerts": 0,
    });
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

fn report(screen: &mut Screen, options: &Options, watch: &Watch, results: &Value) -> anyhow::Result<()> {
    let number = |key: &str| results[key].as_f64().unwrap_or(0.0);
    if !options.is_tracking {
        screen.line("\nMonitoring Results:");
        screen.line(&"-".repeat(20));
        screen.line(&format!("Peak Memory: {:.1} MB", number("peak_memory")));
        screen.line(&format!("Average Memory: {:.1} MB", number("average_memory")));
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
        screen.line(&format!("\nTracking completed. Peak memory: {:.1} MB", number("peak_memory")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_tensorflow_names_them() {
        for (text, device) in [("/GPU:0", 0), ("/device:GPU:3", 3), ("gpu:1", 1), ("/CPU:0", HOST_DEVICE)] {
            assert_eq!(device_of(text).unwrap(), device, "{text}");
        }
        for text in ["", "/GPU", "/TPU:0", "/GPU:x", "/GPU:-1"] {
            assert!(device_of(text).unwrap_err().0.contains("is no device"), "{text}");
        }
    }
}
