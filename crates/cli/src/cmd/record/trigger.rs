//! `stormlog trigger`: asks every recorded process at a path for the same, at the same step, and waits for their answers.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stormlog_catalog::request::{Kind, RequestProgress, Target, asked_of, targets, that_may_step};
use stormlog_model::text::inert_lines;

use crate::exit::{CtrlC, Exit, MissingInput};
use crate::table::Table;

const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Options {
    pub(crate) directory: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) at_step: Option<u64>,
    pub(crate) timeout: Duration,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let found = targets(&options.directory)?;
    let found = if options.at_step.is_some() { that_may_step(found) } else { found };
    if found.is_empty() {
        return Err(MissingInput(format!(
            "{}: no running process is recorded here; start the ranks with `stormlog run --dir DIR`",
            options.directory.display()
        ))
        .into());
    }
    let mut rows: Vec<RequestProgress> = found.into_iter().map(|target| asked(options, target)).collect();
    let (begun, stop) = (Instant::now(), CtrlC::watch());
    while rows.iter().any(RequestProgress::is_open)
        && begun.elapsed() < options.timeout
        && stop.check().is_ok()
    {
        std::thread::sleep(LOOK);
        rows.iter_mut().for_each(RequestProgress::look);
    }
    rows.iter().for_each(RequestProgress::withdraw);
    let done = rows.iter().filter(|row| row.is_done()).count();
    let mut out = io::stdout().lock();
    if options.json {
        let values: Vec<Value> = rows.iter().map(RequestProgress::to_value).collect();
        writeln!(out, "{:#}", json!({"asked": rows.len(), "recorded": done, "processes": values}))?;
    } else {
        let mut table = Table::new(&["rank", "host", "pid", "state", "step", "result"], &[0, 2]);
        for row in &rows {
            table.row([
                row.target.rank.to_string(),
                inert_lines(row.target.host.as_deref().unwrap_or("-")).to_string(),
                row.target.pid.to_string(),
                row.state().to_owned(),
                row.step(),
                inert_lines(&result(row)).to_string(),
            ]);
        }
        write!(out, "{table}")?;
        writeln!(out, "{done} of {} processes recorded", rows.len())?;
    }
    stop.check()?;
    Ok(if done == rows.len() { Exit::Ok } else { Exit::Error })
}

fn asked(options: &Options, target: Target) -> RequestProgress {
    let mut request = asked_of(&target, options.kind, "stormlog trigger");
    request.at_step = options.at_step;
    request.expires_at_ns = Some(request.asked_at_ns.saturating_add(options.timeout.as_nanos() as i64));
    RequestProgress::ask(target, request)
}

/// The directory of the result, or why there is none.
fn result(row: &RequestProgress) -> String {
    row.path().map(|path| path.display().to_string()).or_else(|| row.reason()).unwrap_or_default()
}
