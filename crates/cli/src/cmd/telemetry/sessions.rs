//! `stormlog sessions`: what was recorded at a path, newest proof first.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use stormlog_catalog::run::SessionProcesses;
use stormlog_catalog::sessions::{FoundSession, FoundSessions, find_sessions};
use stormlog_model::format_bytes;
use stormlog_model::text::{inert_lines, nanoseconds_in_words};

use crate::default_path;
use crate::exit::{CtrlC, Exit};
use crate::table::{self, Table};

pub(crate) struct Options {
    pub(crate) path: Option<PathBuf>,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let path = default_path::or_runs(options.path.as_deref())?;
    let ctrl_c = CtrlC::watch();
    let finished = stormlog_catalog::run::finish_abandoned(&path);
    let mut found = find_sessions(&path, &|| ctrl_c.check().is_ok())?;
    let ended = finished.iter().flat_map(|run| &run.sessions);
    for session in ended {
        let is_it = |found: &&mut FoundSession| found.summary.session_id == session.summary.session_id;
        if let Some(found) = found.sessions.iter_mut().find(is_it) {
            found.summary = session.summary.clone();
        }
    }
    ctrl_c.check()?;
    let mut out = io::stdout().lock();
    if options.json {
        let processes = SessionProcesses::at(&path);
        let rows: Vec<_> = found.sessions.iter().map(|session| row_json(session, &processes)).collect();
        writeln!(out, "{:#}", serde_json::Value::Array(rows))?;
    } else {
        print_table(&mut out, &found)?;
    }
    for skipped in &found.skipped {
        writeln!(io::stderr(), "Skipped: {skipped}")?;
    }
    for damage in &found.damaged {
        writeln!(io::stderr(), "Error: {damage}")?;
    }
    Ok(if found.damaged.is_empty() { Exit::Ok } else { Exit::InvalidInput })
}

fn row_json(session: &FoundSession, processes: &SessionProcesses) -> serde_json::Value {
    let mut row = session.summary.to_record();
    let mut put = |key: &str, value: serde_json::Value| row.insert(key.to_owned(), value);
    put("event_count", session.event_count.into());
    put("first_event_ns", session.span_ns.map(|(first, _)| first).into());
    put("last_event_ns", session.span_ns.map(|(_, last)| last).into());
    put("peak_allocated_bytes", session.peaks.allocated.into());
    put("peak_reserved_bytes", session.peaks.reserved.into());
    put("peak_device_used_bytes", session.peaks.device_used.into());
    put("path", session.path.display().to_string().into());
    put("source_kind", session.kind.into());
    put("sources", session.sources.iter().map(|path| json!(path.display().to_string())).collect());
    put("notes", session.notes.clone().into());
    put("process", processes.of(session).to_value());
    serde_json::Value::Object(row)
}

fn print_table(out: &mut impl Write, found: &FoundSessions) -> io::Result<()> {
    if found.sessions.is_empty() {
        // A damaged input says so itself.
        return if found.damaged.is_empty() { writeln!(out, "No sessions.") } else { Ok(()) };
    }
    let is_counted = found.sessions.iter().any(|session| session.summary.attempt.is_some());
    let rank = if is_counted { "RANK, ATTEMPT" } else { "RANK" };
    let header = ["SESSION", "STATE", rank, "HOST", "PID", "STARTED", "SPAN", "EVENTS", "PEAK USED", "FROM"];
    let mut table = Table::new(&header, &[2, 4, 7, 8]);
    for session in &found.sessions {
        let summary = &session.summary;
        let span = session
            .span_ns
            .map_or_else(|| "-".into(), |(first, last)| nanoseconds_in_words(last.saturating_sub(first)));
        let peak = session.peaks.device_used.or(session.peaks.allocated);
        table.row([
            summary.session_id.clone(),
            summary.status.as_str().to_owned(),
            match summary.attempt {
                Some(attempt) => format!("{}/{}, {attempt}", summary.rank, summary.world_size),
                None => format!("{}/{}", summary.rank, summary.world_size),
            },
            summary.host.clone(),
            if summary.pid < 0 { "-".into() } else { summary.pid.to_string() },
            table::moment(summary.started_at_ns),
            span,
            session.event_count.to_string(),
            peak.map_or_else(|| "-".into(), format_bytes),
            session.path.display().to_string(),
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{}", inert_lines(&line))?;
    }
    for session in &found.sessions {
        for note in &session.notes {
            writeln!(out, "note: {}", inert_lines(&format!("{}: {note}", session.summary.session_id)))?;
        }
    }
    Ok(())
}
