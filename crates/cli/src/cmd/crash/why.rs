//! `stormlog why`: what keeps the memory of a process, of one that runs or of one that reported it when it ended.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_catalog::retained::{self, Retained, Retention};
use stormlog_catalog::run::{Process, processes};
use stormlog_heap_report::retained::{retention, with_lines};
use stormlog_model::format_bytes;
use stormlog_supervise::{AttachMethod, ask_why, running_process};

use crate::cmd::record::attach::{ScriptDirectory, said, stormlog_hook_image};
use crate::default_path;
use crate::exit::{Exit, UsageError};

/// Rows shown.
const ROWS: usize = 10;
/// Holders of less than this part are left to `--json`.
const SMALLEST_PART: u64 = 100;

pub(crate) struct Options {
    pub(crate) subject: Option<PathBuf>,
    pub(crate) line: Option<String>,
    pub(crate) method: AttachMethod,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let pid = options.subject.as_deref().and_then(Path::to_str).and_then(|text| text.parse::<u32>().ok());
    let mut found = match (pid, &options.subject) {
        (Some(pid), Some(path)) if !path.exists() => vec![of_process(pid, options.method)?],
        (_, path) => {
            let path = default_path::or_runs(path.as_deref())?;
            // What its killed supervisor left is finished by whichever reader comes first.
            drop(stormlog_catalog::run::finish_abandoned(&path));
            of_path(&path)?
        }
    };
    if let Some(line) = &options.line {
        for (_, report) in &mut found {
            report.held.retain(|row| is_at(row, line));
        }
    }
    if options.json {
        let rows: Vec<Value> =
            found.iter().map(|(process, report)| to_value(process.as_ref(), report)).collect();
        writeln!(io::stdout(), "{:#}", json!({"processes": rows}))?;
        return Ok(Exit::Ok);
    }
    let mut out = io::stdout().lock();
    for (process, report) in &found {
        show(&mut out, process.as_ref(), report, options.line.as_deref())?;
    }
    Ok(Exit::Ok)
}

fn of_process(pid: u32, method: AttachMethod) -> anyhow::Result<(Option<Process>, Retention)> {
    let room = ScriptDirectory::new()?;
    let path = ask_why(pid, &stormlog_hook_image()?, method, &room.0).map_err(said)?;
    let report = retained::read(&path)
        .ok_or_else(|| UsageError(format!("process {pid} wrote a report that cannot be read; try again")))?;
    let process = running_process(pid);
    let report = match process.as_ref().and_then(|process| process.captures.first()) {
        Some(capture) => with_lines(report, capture),
        None => report,
    };
    Ok((process, report))
}

/// Of the newest run at a path that has a report.
fn of_path(path: &Path) -> anyhow::Result<Vec<(Option<Process>, Retention)>> {
    let all = processes(path, &|| true)?.processes;
    let newest = all
        .iter()
        .filter(|process| process.retained.is_some())
        .filter_map(|process| process.run.clone())
        .max();
    let mut found: Vec<(Option<Process>, Retention)> = all
        .into_iter()
        .filter(|process| process.run.is_some() && process.run == newest)
        .filter_map(|process| retention(&process).map(|report| (Some(process), report)))
        .collect();
    found.sort_by_key(|(_, report)| std::cmp::Reverse(report.held.first().map(|row| row.bytes)));
    if found.is_empty() {
        return Err(UsageError(format!(
            "no process at {} reported what keeps its memory: a process reports that when memory runs out or when it exits with a large heap; `stormlog why PID` asks a running one",
            path.display()
        ))
        .into());
    }
    Ok(found)
}

/// `train.py:31`, with as much of the path as was typed.
fn is_at(row: &Retained, wanted: &str) -> bool {
    let (file, line) = match wanted.rsplit_once(':') {
        Some((file, line)) => (file, line.parse().ok()),
        None => (wanted, None),
    };
    let known = row.file.as_deref().unwrap_or_default();
    let is_file = known == file || known.strip_suffix(file).is_some_and(|rest| rest.ends_with('/'));
    is_file && (line.is_none() || row.line == line)
}

fn to_value(process: Option<&Process>, report: &Retention) -> Value {
    json!({
        "pid": report.pid.or(process.and_then(|process| process.pid)),
        "program": process.and_then(|process| process.program.clone()),
        "reason": report.reason.as_str(), "taken_at_ns": report.taken_at_ns, "elapsed_us": report.elapsed_us,
        "complete": report.is_complete, "note": report.note,
        "held": report.held.iter().map(Retained::to_value).collect::<Vec<Value>>(),
    })
}

fn show(
    out: &mut impl Write,
    process: Option<&Process>,
    report: &Retention,
    line: Option<&str>,
) -> io::Result<()> {
    let program = process.and_then(|process| process.program.as_deref()).unwrap_or("process");
    let pid = report.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    writeln!(out, "What keeps the memory of {program}{pid}, {}:", report.reason.in_words())?;
    let all: u64 = report.held.iter().map(|row| row.bytes).sum();
    let rows = report.held.iter().filter(|row| row.bytes > all / SMALLEST_PART).take(ROWS);
    let mut is_any = false;
    for row in rows {
        is_any = true;
        let memory = if row.memory == "host" { String::new() } else { format!(" of {}", row.memory) };
        writeln!(out, "  {:>11}{memory}  {}", format_bytes(row.bytes), row.kept_by)?;
        if let (Some(file), Some(line)) = (&row.file, row.line) {
            let function = row.function.as_deref().unwrap_or_default();
            writeln!(out, "  {:>11}  allocated at {file}:{line} {function}", "")?;
        }
    }
    if !is_any {
        match line {
            Some(line) => writeln!(
                out,
                "  no sampled object was allocated by {line}; it may hold little memory, or not be a Python object"
            )?,
            None => writeln!(out, "  no Python object holds a notable part of it")?,
        }
    }
    if let Some(note) = &report.note {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}
