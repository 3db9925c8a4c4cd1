//! `monitor`: memory as it is now, for a while, and a summary.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_model::Event;
use stormlog_store::Format;
use stormlog_track::{Outlets, Statistics};

use crate::cmd::record::track::code;
use crate::cmd::record::watch::keep::OutputDraft;
use crate::cmd::record::watch::{self, Part, Reason, Screen, Stop, WatchOptions, WatchSession};

pub(crate) struct Options {
    pub(crate) pid: Option<u32>,
    pub(crate) device: Option<i64>,
    pub(crate) duration: f64,
    pub(crate) interval: f64,
    pub(crate) output: Option<PathBuf>,
    pub(crate) format: Format,
    pub(crate) json: bool,
}

/// Seconds between two status lines where they cannot be kept up to date.
const STATUS_SECONDS: f64 = 5.0;

pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    let stop = Stop::watch();
    let mut screen = Screen::new(options.json);
    let found =
        watch::find(WatchOptions::look(options.pid, options.device, options.interval, "stormlog.monitor"))?;
    screen.line(&format!("Starting memory monitoring for {:?} seconds...", options.duration));
    match &found.target {
        Some(target) => {
            screen.line(&format!("Mode: {} (pid {}) and its children", target.name(), target.pid()));
        }
        None if found.has_gpu() => screen.line(&format!("Mode: GPU ({})", found.backend())),
        None => {
            screen.line("Mode: CPU");
            let hint = "this watches the command itself; --pid PID watches a program and its children";
            writeln!(io::stderr(), "Note: {hint}")?;
        }
    }
    screen.line(&format!("Sampling interval: {:?}s", options.interval));
    screen.line("Press Ctrl+C to stop early");
    screen.line("");
    let kept = match &options.output {
        Some(path) => Some(OutputDraft::create(path, options.format, &found.session)?),
        None => None,
    };
    let (kept, recorder) = kept.map_or((None, None), |(kept, recorder)| (Some(kept), Some(recorder)));
    let mut watch = found.start(Outlets::new(None, recorder))?;
    let mut next = 0.0;
    let reason = watch.run(Some(options.duration), &stop, |watch, _: &[Event]| {
        let elapsed = watch.elapsed();
        if elapsed >= next {
            next = if screen.is_live() { elapsed + 0.5 } else { next + STATUS_SECONDS };
            let lines = lines(watch);
            match screen.is_live() {
                true => screen.live(&lines.join(" | ")),
                false => lines.iter().for_each(|line| screen.line(line)),
            }
        }
        !screen.is_gone()
    });
    screen.settle();
    watch.finish(&reason);
    report(&mut screen, &watch, &reason);
    if let (Some(kept), Some(path)) = (kept, &options.output) {
        kept.finish()?;
        screen.line(&format!("Events saved to: {}", path.display()));
    }
    if options.json {
        screen.answer(&format!("{:#}", answer(options, &watch, &reason)));
    }
    Ok(code(&reason))
}

fn lines(watch: &WatchSession) -> Vec<String> {
    let line = |(part, tracker): (&Part, &stormlog_track::Tracker)| {
        let label = if watch.parts.len() > 1 { format!("[{}] ", part.label) } else { String::new() };
        let memory = part.size(part.bytes(&tracker.statistics()), "-");
        format!("{label}Elapsed: {:.1}s, Current Memory: {memory}", watch.elapsed())
    };
    watch.parts.iter().zip(watch.group.trackers()).map(line).collect()
}

/// Bytes more than at the first sample; of a process that is gone, when it was last seen.
fn change(part: &Part, seen: &Statistics) -> Option<i64> {
    let now = i64::try_from(part.bytes(seen)?).ok()?;
    now.checked_sub(i64::try_from(part.baseline?).ok()?)
}

fn report(screen: &mut Screen, watch: &WatchSession, reason: &Reason) {
    match reason {
        Reason::Signal(_) => screen.line("\nMonitoring stopped by user"),
        Reason::Departed(departure) => screen.line(&format!("\n{}", departure.sentence)),
        Reason::Elapsed | Reason::ReaderGone => {}
    }
    screen.line("\nMonitoring Summary:");
    screen.line(&"-".repeat(30));
    let several = watch.parts.len() > 1;
    for (part, tracker) in watch.parts.iter().zip(watch.group.trackers()) {
        let seen = tracker.statistics();
        if several {
            let name = part.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            screen.line(&format!("{}{name}:", part.label));
        }
        screen.line(&format!("Snapshots collected: {}", seen.sample_count));
        screen.line(&format!("Peak memory usage: {}", part.size(part.peak(&seen), "N/A")));
        let change = change(part, &seen).map_or_else(
            || "N/A".to_owned(),
            |change| {
                let sign = if change < 0 { "-" } else { "" };
                format!("{sign}{}", part.size(Some(change.unsigned_abs()), "N/A"))
            },
        );
        screen.line(&format!("Memory change from baseline: {change}"));
        if part.is_gpu() {
            screen.line(&format!("Peak device usage: {}", part.size(seen.peak_device_used, "N/A")));
        }
    }
}

fn answer(options: &Options, watch: &WatchSession, reason: &Reason) -> Value {
    let device = |(part, tracker): (&Part, &stormlog_track::Tracker)| {
        let mut object = part.to_json(tracker);
        object["change_bytes"] = change(part, &tracker.statistics()).into();
        object
    };
    json!({
        "interval_seconds": options.interval, "duration_seconds": watch.elapsed(), "stopped_by": reason.word(),
        "devices": watch.parts.iter().zip(watch.group.trackers()).map(device).collect::<Vec<_>>(),
        "process": watch::process_json(watch, reason),
        "output": options.output.as_ref().map(|path| path.display().to_string()),
    })
}
