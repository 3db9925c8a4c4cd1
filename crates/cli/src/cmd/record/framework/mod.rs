//! `monitor` and `track` of `tfmemprof` and `jaxmemprof`: the older flags, lines and file over the same watch as the other names.
//!
//! Memory is that of the device named, as its driver reports it: neither framework is needed in this process. Where there is no GPU it is the host's, and one
//! sentence says so.

mod profile;
mod results;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_alert::alerts::Thresholds;
pub(crate) use stormlog_catalog::frameworks::Framework;
use stormlog_model::Event;
use stormlog_store::sink::{Sink, SinkConfig};
use stormlog_track::{HOST_DEVICE, Outlets};

use crate::Program;
use crate::args::machine::device;
use crate::cmd::record::flight::{self, Flight, Oom};
use crate::cmd::record::track::code;
use crate::cmd::record::track_export::{self, Export};
use crate::cmd::record::watch::{self, Reason, Screen, Stop, WatchOptions, WatchSession};
use crate::exit::UsageError;

pub(crate) struct Options {
    pub(crate) framework: Framework,
    /// `track` rather than `monitor`.
    pub(crate) is_tracking: bool,
    pub(crate) pid: Option<u32>,
    /// As the user names it.
    pub(crate) device: String,
    pub(crate) interval: f64,
    pub(crate) duration: Option<f64>,
    pub(crate) threshold_mb: Option<f64>,
    /// Events kept in memory.
    pub(crate) max_history: usize,
    /// Take a memory profile of the program at the end.
    pub(crate) profile: bool,
    pub(crate) output: Option<PathBuf>,
    pub(crate) identity: [Value; 4],
    pub(crate) oom: Option<Oom>,
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
    let framework = options.framework;
    let device = device::number(&options.device).map_err(UsageError)?;
    let threshold = options.threshold_mb.filter(|threshold| *threshold > 0.0 && threshold.is_finite());
    let program = Program::of(framework);
    let stop = Stop::watch();
    let mut screen = Screen::new(options.json);
    let found = watch::find(WatchOptions {
        pid: options.pid,
        device: Some(device),
        interval: options.interval,
        alerts: threshold.is_some(),
        thresholds: threshold.map_or_else(Thresholds::default, |mb| Thresholds::only_above(mb * MIB)),
        identity: options.identity.clone(),
        flight_events: options.oom.as_ref().map_or(0, |oom| oom.buffer_size),
        max_events: options.max_history,
        source: match framework {
            Framework::Tensorflow => "stormlog.tensorflow",
            Framework::Jax => "stormlog.jax",
        },
    })?;
    if device != HOST_DEVICE && options.pid.is_none() && !found.has_gpu() {
        let asked = match framework {
            Framework::Tensorflow => options.device.clone(),
            Framework::Jax => format!("device {}", options.device),
        };
        let hint = "this watches the command itself on the CPU; --pid PID watches a program and its children";
        writeln!(io::stderr(), "Note: {asked} has no GPU here; {hint}")?;
    }
    if framework == Framework::Jax && found.has_gpu() {
        let hint = "`stormlog run` records how much of it is in use";
        writeln!(
            io::stderr(),
            "Note: the driver counts the pool that JAX takes at the start as used; {hint}"
        )?;
    }
    header(&mut screen, options);
    if let Some(oom) = &options.oom {
        flight::announce(&mut screen, oom, &found)?;
    }
    let sink = match &options.sink {
        Some(config) => Some(Sink::open(config.clone(), found.session.host.clone())?),
        None => None,
    };
    if let Some(parent) = options.output.as_deref().and_then(Path::parent) {
        fs::create_dir_all(parent)?;
    }
    let flight = options.oom.as_ref().map(Flight::new);
    let mut watch = found.start(Outlets::new(sink, None))?;
    let mut seen = PrintedState::default();
    let duration = options.duration.filter(|duration| *duration != 0.0);
    let reason =
        watch.run(duration, &stop, |watch, alerts: &[Event]| seen.look(&mut screen, options, watch, alerts));
    screen.settle();
    match &reason {
        Reason::Signal(_) if options.is_tracking => screen.line("\nStopping tracking..."),
        Reason::Signal(_) => screen.line("\n\nStopping monitoring..."),
        Reason::Departed(departure) => screen.line(&format!("\n{}", departure.sentence)),
        Reason::Elapsed | Reason::ReaderGone => {}
    }
    let late = watch.finish(&reason);
    seen.warn(&mut screen, &watch, &late);
    let dump = match flight {
        Some(flight) => {
            let command = if options.is_tracking { "track" } else { "monitor" };
            flight.dump(&watch, &reason, &format!("{} {command}", program.name()))?
        }
        None => None,
    };
    if let Some(dump) = &dump {
        screen.line(&format!("OOM flight recorder dump saved to: {}", dump.display()));
    }
    let results = results::of(options, &watch, &seen.alerts);
    results::report(&mut screen, options, &watch, &results)?;
    let profile = match options.profile {
        true => profile::take(&mut screen, options.pid, &reason)?,
        false => None,
    };
    if let Some(export) = &options.export {
        let sink = options.sink.as_ref().map(|sink| sink.root_dir.as_path());
        let done = track_export::tracked(&watch, options.output.as_deref(), sink, dump.as_deref());
        export.deliver(program, done, options.json)?;
    }
    if options.json {
        let mut answer = results;
        answer["stopped_by"] = reason.word().into();
        answer["oom_dump"] = dump.map(|path| path.display().to_string()).into();
        if options.profile {
            answer["device_memory_profile"] = profile.into();
        }
        answer["process"] = watch::process_json(&watch, &reason);
        screen.answer(&format!("{answer:#}"));
    }
    Ok(code(&reason))
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
    screen.line(&format!("Starting {} memory monitoring...", options.framework.name()));
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
#[derive(Default)]
struct PrintedState {
    next: f64,
    alerts: Vec<Value>,
}

impl PrintedState {
    fn look(
        &mut self,
        screen: &mut Screen,
        options: &Options,
        watch: &WatchSession,
        alerts: &[Event],
    ) -> bool {
        self.warn(screen, watch, alerts);
        let elapsed = watch.elapsed();
        if elapsed >= self.next {
            self.next = if screen.is_live() { elapsed + 0.5 } else { self.next + STATUS_SECONDS };
            let line = status(options, watch);
            if screen.is_live() { screen.live(&line) } else { screen.line(&line) }
        }
        !screen.is_gone()
    }

    /// Alerts of the device asked for, under 0.4.3's names; one long breach is one alert.
    fn warn(&mut self, screen: &mut Screen, watch: &WatchSession, alerts: &[Event]) {
        let is_gpu = watch.parts.get(subject(watch)).is_some_and(watch::Part::is_gpu);
        for event in alerts.iter().filter(|event| (event.head.device_id != HOST_DEVICE) == is_gpu) {
            let message = event.context.as_deref().unwrap_or_default();
            screen.line(&format!("\n⚠️  MEMORY ALERT: {message}"));
            let number = |key: &str| event.metadata.map.get(key).cloned();
            if let (Some(memory), Some(threshold)) = (number("memory_mb"), number("threshold_mb")) {
                self.alerts.push(json!({
                    "timestamp": event.timestamp_ns as f64 / 1e9, "memory_mb": memory, "threshold_mb": threshold,
                    "message": message,
                }));
            }
        }
    }
}

fn status(options: &Options, watch: &WatchSession) -> String {
    let memory = current(watch).map_or_else(|| "unavailable".to_owned(), |mb| format!("{mb:.1} MB"));
    match options.framework {
        Framework::Jax if options.is_tracking => {
            let health = watch.group.trackers().get(subject(watch)).map(stormlog_track::Tracker::health);
            let health = health.map_or("unknown", |health| health.status.as_str());
            format!("Current memory: {memory} | Health: {health}")
        }
        _ => format!("Current memory usage: {memory}"),
    }
}

/// The device asked for: the GPU where there is one.
fn subject(watch: &WatchSession) -> usize {
    watch.parts.iter().position(watch::Part::is_gpu).unwrap_or(0)
}

fn current(watch: &WatchSession) -> Option<f64> {
    let at = subject(watch);
    let seen = watch.group.trackers().get(at)?.statistics();
    Some(watch.parts.get(at)?.bytes(&seen)? as f64 / MIB)
}
