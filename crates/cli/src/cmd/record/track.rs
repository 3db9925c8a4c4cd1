//! `track`: memory over time with alerts, kept in files, until the time is over, Ctrl-C, or the process ends.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_alert::alerts::Thresholds;
use stormlog_model::Event;
use stormlog_store::Format;
use stormlog_store::sink::{Sink, SinkConfig};
use stormlog_track::{GpuHoldings, Outlets};

use crate::Program;
use crate::cmd::record::flight::{self, Flight, Oom};
use crate::cmd::record::track_export::{self, Export};
use crate::cmd::record::watch::keep::OutputDraft;
use crate::cmd::record::watch::{
    self, MAX_EVENTS, Reason, Screen, Stop, WatchOptions, WatchSession, WatchTargets,
};
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) pid: Option<u32>,
    pub(crate) device: Option<i64>,
    pub(crate) duration: Option<f64>,
    pub(crate) interval: f64,
    pub(crate) output: Option<PathBuf>,
    pub(crate) format: Format,
    pub(crate) watchdog: bool,
    pub(crate) warning_threshold: f64,
    pub(crate) critical_threshold: f64,
    /// Job, rank, local rank and world size as given.
    pub(crate) identity: [Value; 4],
    pub(crate) oom: Option<Oom>,
    pub(crate) sink: Option<SinkConfig>,
    /// The name the command was called by.
    pub(crate) program: Program,
    /// Services the session is sent to.
    pub(crate) export: Option<Export>,
    pub(crate) json: bool,
    /// Print nothing while it watches and no summary.
    pub(crate) quiet: bool,
}

/// Seconds between two samples unless the user says otherwise.
pub(crate) const INTERVAL: f64 = 0.1;
/// Percent of the memory from which on there is a warning, and a critical one.
pub(crate) const WARNING_PERCENT: f64 = 80.0;
pub(crate) const CRITICAL_PERCENT: f64 = 95.0;

impl Options {
    /// Watching one process from outside, with the defaults of `track`.
    pub(crate) fn of_process(pid: u32, program: Program) -> Self {
        Options {
            pid: Some(pid),
            device: None,
            duration: None,
            interval: INTERVAL,
            output: None,
            format: Format::Csv,
            watchdog: false,
            warning_threshold: WARNING_PERCENT,
            critical_threshold: CRITICAL_PERCENT,
            identity: [const { Value::Null }; 4],
            oom: None,
            sink: None,
            program,
            export: None,
            json: false,
            quiet: false,
        }
    }
}

/// Seconds between two status lines where they cannot be kept up to date.
const STATUS_SECONDS: f64 = 10.0;
/// Seconds between two looks at what the process holds on GPUs: a driver takes milliseconds to list its processes.
const GPU_SECONDS: f64 = 1.0;
/// The same while it holds nothing there, or there is no driver, which is then looked for again.
const NO_GPU_SECONDS: f64 = 10.0;

pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    if let Some(export) = &options.export {
        export.check()?;
    }
    let stop = Stop::watch();
    let mut screen = Screen::new(options.json || options.quiet);
    // 0.4.3 prints its header before it looks; a process that is not there must not be announced.
    if options.pid.is_none() {
        header(&mut screen, options);
    }
    let mut thresholds = Thresholds::default();
    thresholds.set("memory_warning_percent", options.warning_threshold)?;
    thresholds.set("memory_critical_percent", options.critical_threshold)?;
    let found = watch::find(WatchOptions {
        pid: options.pid,
        device: options.device,
        interval: options.interval,
        alerts: true,
        thresholds,
        identity: options.identity.clone(),
        max_events: MAX_EVENTS,
        flight_events: options.oom.as_ref().map_or(0, |oom| oom.buffer_size),
        source: "stormlog.track",
    })?;
    if options.pid.is_some() {
        header(&mut screen, options);
    }
    announce(&mut screen, options, &found)?;
    let sink = match &options.sink {
        Some(config) => Some(Sink::open(config.clone(), found.session.host.clone())?),
        None => None,
    };
    let kept = match &options.output {
        Some(path) => Some(OutputDraft::create(path, options.format, &found.session)?),
        None => None,
    };
    let (kept, recorder) = kept.map_or((None, None), |(kept, recorder)| (Some(kept), Some(recorder)));
    let flight = options.oom.as_ref().map(Flight::new);
    let mut watch = found.start(Outlets::new(sink, recorder))?;
    let mut status = Status::default();
    // 0 is for ever, as in 0.4.3.
    let duration = options.duration.filter(|duration| *duration != 0.0);
    let reason = watch.run(duration, &stop, |watch, alerts| status.show(&mut screen, watch, alerts));
    screen.settle();
    for alert in watch.finish(&reason) {
        screen.line(&alert_line(&alert));
    }
    let dump = match flight {
        Some(flight) => flight.dump(&watch, &reason, "track")?,
        None => None,
    };
    report(&mut screen, options, &watch, &reason, dump.as_ref(), &status);
    for warning in watch.group.take_warnings() {
        writeln!(io::stderr(), "Warning: {warning}")?;
    }
    if let (Some(kept), Some(path)) = (kept, &options.output) {
        kept.finish()?;
        screen.line(&format!("Events saved to: {}", path.display()));
    }
    if options.json {
        screen.answer(&format!("{:#}", answer(options, &watch, &reason, dump.as_ref(), &status)));
    }
    if let Some(export) = &options.export {
        let sink = options.sink.as_ref().map(|sink| sink.root_dir.as_path());
        let done = track_export::tracked(&watch, options.output.as_deref(), sink, dump.as_deref());
        export.deliver(options.program, done, options.json)?;
    }
    Ok(code(&reason))
}

/// Ctrl-C is how tracking without a duration ends, so it is success; other signals say so in the code.
pub(crate) fn code(reason: &Reason) -> u8 {
    const SIGINT: i32 = 2;
    match reason {
        Reason::Elapsed | Reason::Signal(SIGINT) => Exit::Ok.code(),
        Reason::Signal(signal) => u8::try_from(128 + signal).unwrap_or(Exit::Error.code()),
        Reason::Departed(_) => Exit::Findings.code(),
        Reason::ReaderGone => Exit::Error.code(),
    }
}

fn header(screen: &mut Screen, options: &Options) {
    screen.line("Starting real-time memory tracking...");
    let device = options.device.map_or_else(|| "current".to_owned(), |device| device.to_string());
    screen.line(&format!("Device: {device}"));
    screen.line(&format!("Sampling interval: {:?}s", options.interval));
    match options.duration.filter(|duration| *duration != 0.0) {
        Some(duration) => screen.line(&format!("Duration: {duration:?}s")),
        None => screen.line("Duration: indefinite"),
    }
    screen.line("Press Ctrl+C to stop");
    screen.line("");
}

fn announce(screen: &mut Screen, options: &Options, found: &WatchTargets) -> io::Result<()> {
    if let Some(sink) = &options.sink {
        screen.line(&format!("Append-only telemetry sink: {}", sink.root_dir.display()));
    }
    if let Some(oom) = &options.oom {
        flight::announce(screen, oom, found)?;
    }
    if options.watchdog {
        let why = "only the program itself can free its memory (stormlog.MemoryWatchdog inside it)";
        writeln!(io::stderr(), "Warning: --watchdog warns but does not clean up: {why}")?;
    }
    match &found.target {
        Some(target) => {
            screen.line(&format!("Watching {} (pid {}) and its children.", target.name(), target.pid()));
        }
        None if !found.has_gpu() => {
            screen.line("Running CPU memory tracker (no GPU backend available).");
            let hint = "this watches the command itself; --pid PID watches a program and its children";
            writeln!(io::stderr(), "Note: {hint}")?;
        }
        None => {}
    }
    if found.has_gpu() && found.count() > 1 {
        screen.line(&format!("Watching {} at the same time.", plural(found.count())));
    }
    Ok(())
}

fn plural(count: usize) -> String {
    if count == 1 { "1 device".to_owned() } else { format!("{count} devices") }
}

/// What the status lines need to remember.
#[derive(Default)]
struct Status {
    gpus: GpuHoldings,
    next: f64,
    next_gpu: f64,
    /// What the process holds on GPUs, as last read, and the most of it.
    held: Option<u64>,
    peak_gpu: Option<u64>,
}

impl Status {
    /// `false` when the reader of the output is gone.
    fn show(&mut self, screen: &mut Screen, watch: &WatchSession, alerts: &[Event]) -> bool {
        for alert in alerts {
            screen.line(&alert_line(alert));
        }
        let elapsed = watch.elapsed();
        if elapsed >= self.next_gpu {
            self.held = watch.tree.as_ref().and_then(|tree| self.gpus.bytes_of(&tree.list()));
            let holds = self.held.is_some_and(|bytes| bytes > 0);
            self.next_gpu = elapsed + if holds { GPU_SECONDS } else { NO_GPU_SECONDS };
            self.peak_gpu = self.peak_gpu.max(self.held);
        }
        if elapsed < self.next {
            return !screen.is_gone();
        }
        self.next = if screen.is_live() { elapsed + 0.5 } else { self.next + STATUS_SECONDS };
        let lines = lines(watch, self.held);
        match screen.is_live() {
            true => screen.live(&lines.join(" | ")),
            false => lines.iter().for_each(|line| screen.line(line)),
        }
        !screen.is_gone()
    }
}

/// One line for each thing watched; the only one is spelt as 0.4.3 does.
fn lines(watch: &WatchSession, held: Option<u64>) -> Vec<String> {
    let now_ns = stormlog_store::wall_ns();
    let mut lines = Vec::new();
    for (part, tracker) in watch.parts.iter().zip(watch.group.trackers()) {
        let line = part.track_line(watch.elapsed(), tracker, now_ns);
        let held =
            held.filter(|_| !part.is_gpu()).map(|bytes| format!(", On GPUs: {}", watch::gigabytes(bytes)));
        let label = if watch.parts.len() > 1 { format!("[{}] ", part.label) } else { String::new() };
        lines.push(format!("{label}{line}{}", held.unwrap_or_default()));
    }
    lines
}

fn alert_line(event: &Event) -> String {
    let at = jiff::Timestamp::from_nanosecond(event.timestamp_ns.into()).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
    let kind = event.head.event_type.to_uppercase();
    format!("[{at}] {kind}: {}", event.context.as_deref().unwrap_or_default())
}

fn report(
    screen: &mut Screen,
    options: &Options,
    watch: &WatchSession,
    reason: &Reason,
    dump: Option<&PathBuf>,
    status: &Status,
) {
    match reason {
        Reason::Signal(2) => screen.line("\nTracking stopped by user"),
        Reason::Signal(signal) => {
            screen.line(&format!("\nTracking stopped by {}", stormlog_postmortem::signal_name(*signal)));
        }
        Reason::Departed(departure) => screen.line(&format!("\n{}", departure.sentence)),
        Reason::Elapsed | Reason::ReaderGone => {}
    }
    if let Some(dump) = dump {
        screen.line(&format!("OOM flight recorder dump saved to: {}", dump.display()));
    }
    screen.line("\nTracking Summary:");
    screen.line(&"-".repeat(30));
    screen.line(&format!("Total events: {}", total_events(watch)));
    let several = watch.parts.len() > 1;
    for (part, tracker) in watch.parts.iter().zip(watch.group.trackers()) {
        let (seen, health) = (tracker.statistics(), tracker.health());
        if several {
            let name = part.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            screen.line(&format!("{}{name}:", part.label));
        }
        screen.line(&format!("Peak memory: {}", part.size(part.peak(&seen), "N/A")));
        if part.is_gpu() {
            screen.line(&format!("Peak device memory: {}", part.size(seen.peak_device_used, "N/A")));
            screen.line(&format!("Collector health: {}", health.status.as_str()));
        }
        // A process that ended is not a fault of the collector.
        let is_trouble = part.is_gpu() || !matches!(reason, Reason::Departed(_));
        if let Some(error) = health.last_error.filter(|_| is_trouble) {
            screen.line(&format!("Last collector error: {error}"));
        }
    }
    if let Some(bytes) = status.peak_gpu {
        screen.line(&format!("Peak of the process on GPUs: {}", watch::gigabytes(bytes)));
    }
    if options.watchdog {
        screen.line("Automatic cleanups: 0");
    }
}

fn total_events(watch: &WatchSession) -> u64 {
    let count = |tracker: &stormlog_track::Tracker| {
        let seen = tracker.statistics();
        seen.retained_events + seen.dropped_events
    };
    watch.group.trackers().iter().map(count).sum()
}

fn answer(
    options: &Options,
    watch: &WatchSession,
    reason: &Reason,
    dump: Option<&PathBuf>,
    status: &Status,
) -> Value {
    let parts = watch.parts.iter().zip(watch.group.trackers());
    let text = |path: &PathBuf| path.display().to_string();
    json!({
        "session": watch.group.session().map(|session| session.to_record()),
        "interval_seconds": options.interval, "duration_seconds": watch.elapsed(),
        "stopped_by": reason.word(), "total_events": total_events(watch),
        "devices": parts.map(|(part, tracker)| part.to_json(tracker)).collect::<Vec<_>>(),
        "process": watch::process_json(watch, reason), "peak_gpu_bytes_of_process": status.peak_gpu,
        "output": options.output.as_ref().map(text), "oom_dump": dump.map(text),
        "telemetry_sink_dir": options.sink.as_ref().map(|sink| text(&sink.root_dir)),
    })
}
