//! `--wandb` and `--mlflow`: what was tracked, handed to the Python package, which speaks to those services.
//!
//! It is asked before tracking begins, so that a missing extra is a wrong command line and not a lost hour. What goes wrong
//! afterwards is a warning: the exit code must stay that of the tracking.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use stormlog_model::{Record, SCHEMA_LATEST, SessionStatus, to_record};

use crate::Program;
use crate::cmd::record::watch::WatchSession;
use crate::exit::UsageError;
use crate::interpreter::{Interpreter, with_package};

/// The module that does it.
const MODULE: &str = "stormlog._export";

/// Exports that were requested: `wandb` and `mlflow`, each with the settings of 0.4.3.
#[derive(Debug)]
pub(crate) struct Export {
    settings: Record,
}

impl Export {
    /// `None` when nothing was requested.
    pub(crate) fn of(settings: Record) -> Option<Self> {
        (!settings.is_empty()).then_some(Export { settings })
    }

    /// Whether it can be done here; otherwise what to do about it.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let Some(python) = with_package() else {
            let flags: Vec<String> = self.settings.keys().map(|name| format!("--{name}")).collect();
            return Err(UsageError(format!(
                "{} is not available here: this command comes without Python. Use the command that \
                 `pip install stormlog` installs, name an interpreter with STORMLOG_PYTHON, or write \
                 --output FILE and upload that file yourself",
                flags.join(" and ")
            )));
        };
        let mut checker = helper(&python, "check");
        let command = checker.stdout(Stdio::null()).stderr(Stdio::piped());
        match hand_over(command, &json!({"settings": self.settings})) {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => Err(UsageError(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
            Err(error) => {
                Err(UsageError(format!("{} could not be started: {error}", python.program().display())))
            }
        }
    }

    /// Hands over a tracked session. With `--json` standard output has an answer already.
    pub(crate) fn deliver(&self, program: Program, mut done: Record, is_json: bool) -> io::Result<()> {
        done.insert("settings".to_owned(), self.settings.clone().into());
        done.insert("program".to_owned(), program.name().into());
        let Some(python) = with_package() else { return Ok(()) };
        let mut helping = helper(&python, "deliver");
        if is_json {
            helping.stdout(io::stderr());
        }
        io::stdout().flush()?;
        if let Err(error) = hand_over(&mut helping, &done.into()) {
            writeln!(io::stderr(), "Warning: export skipped: {}: {error}", python.program().display())?;
        }
        Ok(())
    }
}

/// Everything an export of a tracked session needs.
pub(crate) fn tracked(
    watch: &WatchSession,
    output: Option<&Path>,
    sink: Option<&Path>,
    dump: Option<&Path>,
) -> Record {
    // What was asked for in the first place: the process, else the first GPU.
    let asked = if watch.target.is_some() { None } else { watch.parts.iter().position(|part| part.is_gpu()) };
    let asked = asked.unwrap_or(0);
    let mut done = Record::new();
    done.insert("command".to_owned(), "track".into());
    done.insert("session".to_owned(), watch.group.session().map(|session| session.to_record()).into());
    if let Some(tracker) = watch.group.trackers().get(asked) {
        let events = tracker.events(|_| true, None);
        let records = events.iter().filter_map(|event| to_record(event, SCHEMA_LATEST).ok());
        done.insert("events".to_owned(), records.map(Value::from).collect());
        done.insert("stats".to_owned(), statistics(watch, asked));
    }
    for (key, path) in [("output_path", output), ("telemetry_sink_dir", sink), ("oom_dump_path", dump)] {
        done.insert(key.to_owned(), path.map(|path| path.display().to_string()).into());
    }
    done
}

/// The numbers under the names that 0.4.3's tracker has for them.
fn statistics(watch: &WatchSession, asked: usize) -> Value {
    let (Some(part), Some(tracker)) = (watch.parts.get(asked), watch.group.trackers().get(asked)) else {
        return Value::Null;
    };
    let (seen, health, sink) = (tracker.statistics(), tracker.health(), tracker.sink_diagnostics());
    let duration = watch.elapsed();
    let status = watch.group.session().map(|session| session.status);
    let share = part.bytes(&seen).zip(seen.total_bytes).filter(|(_, total)| *total > 0);
    json!({
        "backend": part.backend, "peak_memory": part.peak(&seen), "alert_count": seen.alert_count,
        "total_events": seen.retained_events + seen.dropped_events,
        "current_memory_allocated": part.bytes(&seen),
        "current_memory_reserved": seen.last_sample.and_then(|sample| sample.reserved),
        "memory_utilization_percent": share.map(|(bytes, total)| bytes as f64 / total as f64 * 100.0),
        "total_allocations": seen.total_allocations, "total_deallocations": seen.total_deallocations,
        "total_allocation_bytes": seen.total_allocation_bytes,
        "total_deallocation_bytes": seen.total_deallocation_bytes, "tracking_duration_seconds": duration,
        "allocations_per_second": seen.total_allocations as f64 / duration.max(1.0),
        "bytes_allocated_per_second": seen.total_allocation_bytes as f64 / duration.max(1.0),
        "history_retained_events": seen.retained_events, "history_dropped_events": seen.dropped_events,
        "rollover_count": sink.as_ref().map(|sink| sink.rollover_count),
        "pruned_segment_count": sink.as_ref().map(|sink| sink.pruned_segment_count),
        "pruned_bytes": sink.as_ref().map(|sink| sink.pruned_bytes),
        "final_retained_files": sink.as_ref().map(|sink| sink.final_retained_files),
        "final_retained_bytes": sink.as_ref().map(|sink| sink.final_retained_bytes),
        "collector_health_status": health.status.as_str(), "collector_last_error": health.last_error,
        "session_status": status.map(SessionStatus::as_str),
    })
}

fn helper(python: &Interpreter, what: &str) -> Command {
    let mut command = python.module(MODULE);
    command.arg(what);
    command
}

/// Runs it with a value on its standard input.
fn hand_over(command: &mut Command, value: &Value) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // One that ends without reading says so in its exit status.
        let _ = serde_json::to_writer(&mut input, value);
    }
    child.wait_with_output()
}
