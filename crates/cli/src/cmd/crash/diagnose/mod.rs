//! `diagnose`: one directory to send along: the machine, memory over a few seconds, its risks, a verdict.
//!
//! Files, keys and exit codes are 0.4.3's. The numbers are the driver's and the kernel's: what they say of a GPU or of a
//! process, where 0.4.3 asked the allocator of the command itself, which holds nothing. Must never write a secret.

mod bundle;
mod summary;

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_catalog::diagnose::{ENVIRONMENT, SUMMARY, Summary, TIMELINE, environment};
use stormlog_model::{Counter, SessionStatus, SessionSummary};
use stormlog_track::Outlets;

use crate::Program;
use crate::cmd::record::track_export::Export;
use crate::cmd::record::watch::{self, Stop, WatchOptions, WatchSession};
use crate::exit::{Exit, UsageError};
use bundle::Bundle;
use summary::summary;

pub(crate) struct Options {
    pub(crate) program: Program,
    pub(crate) output: Option<PathBuf>,
    pub(crate) pid: Option<u32>,
    pub(crate) device: Option<i64>,
    pub(crate) duration: f64,
    pub(crate) interval: f64,
    pub(crate) native_history: bool,
    pub(crate) native_history_max_entries: i64,
    /// Services the directory is sent to.
    pub(crate) export: Option<Export>,
    /// The words of the command line, for the record.
    pub(crate) argv: Vec<String>,
}

/// What a few seconds of looking came to.
struct Sampled {
    timeline: Value,
    summary: Summary,
    session: SessionSummary,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    check(options)?;
    let source = match options.program {
        Program::Stormlog => "stormlog diagnose",
        Program::Gpumemprof => "gpumemprof diagnose",
        Program::Tfmemprof => "tfmemprof diagnose",
        Program::Jaxmemprof => "jaxmemprof diagnose",
    };
    // Who is asked comes first: a process that is not there leaves no directory behind.
    let found = watch::find(WatchOptions::look(options.pid, options.device, options.interval, source))?;
    let session = found.session.clone();
    let mut bundle = Bundle::create(options)?;
    let facts = crate::cmd::machine::info::page();
    bundle.write(ENVIRONMENT, &environment(&facts, options.device));
    let watch = found.start(Outlets::new(None, None))?;
    let seen = look(watch, options, session, &facts);
    bundle.write(TIMELINE, &seen.timeline);
    bundle.write(SUMMARY, &seen.summary.to_value());
    let exit = bundle.finish(&seen.summary, seen.session);
    let mut out = io::stdout().lock();
    writeln!(out, "Artifact: {}", bundle.directory.display())?;
    let status = match exit {
        Exit::Ok => "OK",
        Exit::Findings => "MEMORY_RISK",
        _ => "FAILED",
    };
    writeln!(out, "Status: {status} (exit_code={})", exit.code())?;
    let raised = seen.summary.raised().collect::<Vec<_>>();
    match exit {
        Exit::Ok => writeln!(out, "Findings: no memory risk detected")?,
        _ if !raised.is_empty() => writeln!(out, "Findings: {}", raised.join(", "))?,
        _ => {}
    }
    if let Some(error) = &bundle.error {
        writeln!(io::stderr(), "Error: Failed to write diagnostic artifact: {error}")?;
    }
    drop(out);
    if let Some(export) = &options.export {
        let directory = bundle.directory.display().to_string();
        let done = [("command".to_owned(), "diagnose".into()), ("artifact_dir".to_owned(), directory.into())];
        export.deliver(options.program, done.into_iter().collect(), false)?;
    }
    Ok(exit)
}

fn check(options: &Options) -> Result<(), UsageError> {
    let wrong = |sentence: &str| Err(UsageError(sentence.to_owned()));
    if !(options.duration >= 0.0 && options.duration.is_finite()) {
        return wrong("--duration must be >= 0");
    }
    if !(options.interval > 0.0 && options.interval.is_finite()) {
        return wrong("--interval must be > 0");
    }
    if options.native_history_max_entries <= 0 {
        return wrong("--native-history-max-entries must be > 0");
    }
    if options.native_history {
        return wrong(
            "Native memory history is recorded inside the program that allocates: use `stormlog run`, or \
             MemoryTracker(enable_native_cuda_history=True) in it, and `stormlog snapshot` on what it leaves",
        );
    }
    options.export.as_ref().map_or(Ok(()), Export::check)
}

/// Watches for the time given; Ctrl-C shortens it, and what was seen until then is kept.
fn look(mut watch: WatchSession, options: &Options, mut session: SessionSummary, facts: &Value) -> Sampled {
    let stop = Stop::watch();
    let reason = watch.run(Some(options.duration), &stop, |_, _| true);
    watch.finish(&reason);
    session.status = match reason.status() {
        SessionStatus::Interrupted if stop.signal().is_some() => SessionStatus::Interrupted,
        _ => SessionStatus::Completed,
    };
    session.ended_at_ns = watch.group.session().and_then(|session| session.ended_at_ns);
    // The process asked for, else the first GPU, else this command.
    let asked = if options.pid.is_some() {
        0
    } else {
        watch.parts.iter().position(|part| part.is_gpu()).unwrap_or(0)
    };
    let (mut timeline, mut found) = (json!({"timestamps": [], "allocated": [], "reserved": []}), None);
    if let (Some(part), Some(tracker)) = (watch.parts.get(asked), watch.group.trackers().get(asked)) {
        // An interval far too short for the time watched is widened: the bundle must have a timeline.
        let taken = tracker.timeline(options.interval);
        let taken = taken.or_else(|refused| tracker.timeline(refused.least_interval_s * 1.01));
        let points = if options.duration > 0.0 { taken.unwrap_or_default() } else { Vec::new() };
        let row = |counter: Counter| -> Vec<u64> {
            let used = |at: usize| points[at].1.get(Counter::Used).unwrap_or(0);
            (0..points.len()).map(|at| points[at].1.get(counter).unwrap_or_else(|| used(at))).collect()
        };
        timeline = json!({
            "timestamps": points.iter().map(|(at, _)| *at).collect::<Vec<f64>>(),
            "allocated": row(Counter::Allocated), "reserved": row(Counter::Reserved),
        });
        found = Some(summary(part, &tracker.statistics(), facts, options.program));
    }
    Sampled { timeline, summary: found.unwrap_or_default(), session }
}
