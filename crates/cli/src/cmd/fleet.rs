//! `stormlog fleet`: the report over a lake or over many runs.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_fleet::{FleetError, Scope, page, parse_since, read_report, text};

use crate::cmd::heap::Output;
use crate::exit::{Exit, MissingInput, UsageError};

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) job: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) json: bool,
    pub(crate) html: Option<PathBuf>,
    pub(crate) force: bool,
    pub(crate) threads: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let now_us = i64::try_from(stormlog_store::wall_ns() / 1000).unwrap_or(i64::MAX);
    let moment = |text: &String| {
        let wrong = || {
            UsageError(format!("--since {text}: not a day, a time or an age; write 2026-11-01, 12h or 7d"))
        };
        parse_since(text, now_us).ok_or_else(wrong)
    };
    let since_us = options.since.as_ref().map(moment).transpose()?;
    let output = options.html.clone().map(|path| Output { path: Some(path), force: options.force });
    if let Some(output) = &output {
        output.check(&options.paths[0], "fleet.html")?;
    }
    let scope = Scope { job: options.job.clone(), since_us, readers: options.threads };
    let report = read_report(&options.paths, &scope).map_err(|error| match error {
        FleetError::Store(error) => anyhow::Error::from(error),
        other => MissingInput(other.to_string()).into(),
    })?;
    if let Some(job) = options.job.as_ref().filter(|_| report.jobs.is_empty()) {
        return Err(MissingInput(format!(
            "no rows of job {job} there; `stormlog fleet` without --job lists all jobs"
        ))
        .into());
    }
    if let Some(output) = output {
        output.write(&options.paths[0], "fleet.html", page(&report).as_bytes())?;
    }
    if options.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    } else if options.html.is_none() {
        io::stdout().lock().write_all(text(&report).as_bytes())?;
    }
    Ok(Exit::Ok)
}
