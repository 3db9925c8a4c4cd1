//! `stormlog query`: a question to the catalog, its rows as a table, as JSON or as CSV, and the exit code. The answers are
//! `stormlog_catalog::query`'s.

mod columns;
mod rows;

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_catalog::query::{
    AttachmentFilter, BundleFilter, CorrelationFilter, EventFilter, IssueFilter, QueryError, RunFilter,
    SessionFilter, Store, WarningKind,
};
use stormlog_catalog::run::finish_abandoned;
use stormlog_model::Record;
use stormlog_store::json::write::sort_keys;

use crate::default_path;
use crate::exit::{CtrlC, Exit, Interrupted, MissingInput, UsageError};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Json,
    Table,
    Csv,
}

/// What is requested.
pub(crate) enum Target {
    Runs(RunFilter),
    Attachments(AttachmentFilter),
    Sessions(SessionFilter),
    Events(EventFilter),
    Ooms(BundleFilter),
    Issues(IssueFilter),
    Summary { metric: String, group_by: String },
    Correlate(CorrelationFilter),
}

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) mode: Mode,
    pub(crate) target: Target,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let unsupported = match &options.target {
        Target::Issues(_) => Some("issue"),
        Target::Summary { .. } => Some("summary"),
        Target::Correlate(_) => Some("correlation"),
        _ => None,
    };
    if let Some(what) = unsupported.filter(|_| options.mode == Mode::Csv) {
        return Err(UsageError(format!("--csv is not supported for {what} queries")).into());
    }
    let ctrl_c = CtrlC::watch();
    let paths =
        if options.paths.is_empty() { vec![default_path::or_runs(None)?] } else { options.paths.clone() };
    for path in &paths {
        // Where this user may not write, the sessions are judged without it.
        drop(finish_abandoned(path));
    }
    let go_on = Box::new(move || ctrl_c.check().is_ok());
    let mut store = Store::open(&paths, stormlog_catalog::query::Options { go_on, retain_events: false });
    let mut out = io::BufWriter::new(io::stdout().lock());
    answer(&mut store, options, &mut out)?;
    out.flush()?;
    let mut exit = Exit::Ok;
    for warning in &store.catalog().warnings {
        let word = match warning.kind {
            WarningKind::Skipped => "Skipped",
            WarningKind::Ambiguous => "Warning",
            WarningKind::Damage | WarningKind::Empty => {
                exit = Exit::InvalidInput;
                "Error"
            }
        };
        writeln!(io::stderr(), "{word}: {}", warning.sentence)?;
    }
    Ok(exit)
}

fn answer(store: &mut Store, options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let mode = options.mode;
    match &options.target {
        Target::Runs(filter) => {
            let found = store.runs(filter).map_err(failed)?;
            rows::emit(out, &|| found.iter().map(|row| row.to_record()), mode, &columns::RUNS)?;
        }
        Target::Attachments(filter) => {
            let found = store.attachments(filter).map_err(failed)?;
            rows::emit(out, &|| found.iter().map(|row| row.to_record()), mode, &columns::ATTACHMENTS)?;
        }
        Target::Sessions(filter) => {
            let found = store.sessions(filter).map_err(failed)?;
            rows::emit(out, &|| found.iter().map(|row| row.to_record()), mode, &columns::SESSIONS)?;
        }
        Target::Events(filter) => {
            let found = store.events(filter).map_err(failed)?;
            rows::emit(out, &|| found.records(), mode, &columns::EVENTS)?;
        }
        Target::Ooms(filter) => {
            let found = store.bundles(filter).map_err(failed)?;
            rows::emit(out, &|| found.iter().map(|row| row.to_record()), mode, &columns::OOMS)?;
        }
        Target::Issues(filter) => {
            let found = store.issues(filter, &[]).map_err(failed)?;
            let row = |issue: &stormlog_catalog::query::Issue| {
                let mut row = issue.to_record();
                // A table has no room for every place; JSON has them all.
                row.retain(|key, _| mode == Mode::Json || columns::ISSUES.contains(&key.as_str()));
                row
            };
            rows::emit(out, &|| found.iter().map(row), mode, &columns::ISSUES)?;
        }
        Target::Summary { metric, group_by } => {
            let found = store.summarize(metric, Some(group_by)).map_err(failed)?;
            rows::emit(out, &|| found.iter().map(|row| row.to_record()), mode, &columns::SUMMARY)?;
        }
        Target::Correlate(filter) => {
            let found = store.correlate(filter).map_err(failed)?;
            let evidence: Vec<Record> = found.evidence.iter().map(|row| row.to_record()).collect();
            if mode != Mode::Json {
                rows::emit(out, &|| evidence.iter().cloned(), mode, &columns::EVIDENCE)?;
                return Ok(());
            }
            let shown = store.catalog().warnings.iter().filter(|warning| warning.kind != WarningKind::Empty);
            let warnings: Vec<Value> = shown.map(|warning| warning.message.as_str().into()).collect();
            let mut answer = json!({"anchor": found.anchor, "evidence": evidence, "warnings": warnings});
            sort_keys(&mut answer);
            out.write_all(crate::cmd::telemetry::analyze::indented(&answer).as_bytes())?;
        }
    }
    Ok(())
}

/// The error with the exit code that fits it.
fn failed(error: QueryError) -> anyhow::Error {
    match error {
        QueryError::Interrupted => Interrupted.into(),
        QueryError::UnknownRecord(_) => MissingInput(error.to_string()).into(),
        other => UsageError(other.to_string()).into(),
    }
}
