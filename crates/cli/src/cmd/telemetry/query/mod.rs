//! `stormlog query`: rows out of whatever recordings are at some paths, with 0.4.3's targets, filters and columns.

mod attachments;
mod catalog;
mod correlate;
mod events;
mod evidence;
mod issues;
mod ooms;
mod rows;
mod runs;
mod sessions;
mod summary;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::exit::{CtrlC, Exit, Wrong};
use crate::place;
use catalog::Catalog;

pub(crate) use attachments::AttachmentFilter;
pub(crate) use correlate::{CorrelateFilter, KINDS};
pub(crate) use events::EventFilter;
pub(crate) use issues::IssueFilter;
pub(crate) use ooms::OomFilter;
pub(crate) use runs::RunFilter;
pub(crate) use sessions::SessionFilter;
pub(crate) use summary::METRICS;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Json,
    Table,
    Csv,
}

/// What is asked for.
pub(crate) enum Target {
    Runs(RunFilter),
    Attachments(AttachmentFilter),
    Sessions(SessionFilter),
    Events(EventFilter),
    Ooms(OomFilter),
    Issues(IssueFilter),
    Summary { metric: String, group_by: String },
    Correlate(CorrelateFilter),
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
        return Err(Wrong(format!("--csv is not supported for {what} queries")).into());
    }
    let ctrl_c = CtrlC::watch();
    let mut catalog = match options.paths.as_slice() {
        [] => Catalog::open(&[place::or_runs(None)?]),
        given => Catalog::open(given),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    match &options.target {
        Target::Runs(filter) => {
            let rows = runs::rows(&mut catalog, filter, &ctrl_c)?;
            rows::emit(&mut out, &rows, options.mode, &runs::COLUMNS)?;
        }
        Target::Attachments(filter) => {
            let rows = attachments::rows(&mut catalog, filter, &ctrl_c)?;
            rows::emit(&mut out, &rows, options.mode, &attachments::COLUMNS)?;
        }
        Target::Sessions(filter) => {
            let rows = sessions::rows(&mut catalog, filter, &ctrl_c)?;
            rows::emit(&mut out, &rows, options.mode, &sessions::COLUMNS)?;
        }
        Target::Events(filter) => {
            let found = events::find(&mut catalog, filter, &ctrl_c)?;
            let each = || found.iter().map(|row| row.to_record());
            rows::emit_with(&mut out, &each, options.mode, &events::COLUMNS)?;
        }
        Target::Ooms(filter) => {
            rows::emit(&mut out, &ooms::rows(&catalog, filter), options.mode, &ooms::COLUMNS)?;
        }
        Target::Issues(filter) => {
            let rows = issues::rows(&mut catalog, filter, &ctrl_c)?;
            rows::emit(&mut out, &rows, options.mode, &issues::COLUMNS)?;
        }
        Target::Summary { metric, group_by } => {
            let rows = summary::rows(&mut catalog, metric, group_by, &ctrl_c)?;
            rows::emit(&mut out, &rows, options.mode, &summary::COLUMNS)?;
        }
        Target::Correlate(filter) => {
            correlate::run(&mut out, &mut catalog, filter, options.mode, &ctrl_c)?;
        }
    }
    out.flush()?;
    for skipped in &catalog.skipped {
        writeln!(io::stderr(), "Skipped: {skipped}")?;
    }
    for problem in &catalog.problems {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    Ok(if catalog.problems.is_empty() { Exit::Ok } else { Exit::InvalidInput })
}
