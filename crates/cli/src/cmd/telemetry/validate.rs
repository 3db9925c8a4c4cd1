//! `stormlog validate`: every problem with file, line and field.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_store::{ReadOptions, Source, SourcePosition, StoreError};

use crate::exit::{CtrlC, Exit};
use crate::progress::Progress;

pub(crate) struct Options {
    pub(crate) input: PathBuf,
    pub(crate) json: bool,
    pub(crate) max_problems: usize,
}

#[derive(Default)]
struct Report {
    valid: u64,
    invalid: u64,
    problems: Vec<Value>,
    lines: Vec<String>,
    unlisted: u64,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let ctrl_c = CtrlC::watch();
    let limit = if options.max_problems == 0 { usize::MAX } else { options.max_problems };
    let read = ReadOptions { strict: true, ..ReadOptions::default() };
    let mut report = Report::default();
    let mut progress = Progress::new("records");
    match Source::find(&options.input) {
        Ok(sources) => {
            for source in sources {
                let events = match source.events(&read) {
                    Ok(events) => events,
                    Err(error) => {
                        report.take(&error, limit);
                        continue;
                    }
                };
                for event in events {
                    ctrl_c.check()?;
                    progress.step();
                    match event {
                        Ok(_) => report.valid += 1,
                        Err(error) => report.take(&error, limit),
                    }
                }
            }
        }
        Err(error) if options.json => report.take(&error, limit),
        Err(error) => return Err(error.into()),
    }
    drop(progress);
    report.print(options)?;
    Ok(if report.invalid == 0 { Exit::Ok } else { Exit::InvalidInput })
}

impl Report {
    fn take(&mut self, error: &StoreError, limit: usize) {
        self.invalid += 1;
        match error {
            StoreError::Record { position, problems } => {
                for problem in problems {
                    self.add(position, problem.field.as_deref(), &problem.message, limit);
                }
            }
            StoreError::Malformed { position, message } => self.add(position, None, message, limit),
            StoreError::TooLarge { position, .. } => {
                let message = error.to_string();
                let message = message.strip_prefix(&format!("{position}: ")).unwrap_or(&message);
                self.add(position, None, message, limit);
            }
            StoreError::Io { path, source } => {
                self.add(&SourcePosition::file(path), None, &source.to_string(), limit);
            }
            other => {
                let message = other.to_string();
                let path = match other {
                    StoreError::Missing { path }
                    | StoreError::NotAFile { path, .. }
                    | StoreError::Unrecognised { path, .. } => path.clone(),
                    _ => PathBuf::new(),
                };
                let message = message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&message);
                self.add(&SourcePosition::file(path), None, message, limit);
            }
        }
    }

    fn add(&mut self, position: &SourcePosition, field: Option<&str>, message: &str, limit: usize) {
        if self.problems.len() >= limit {
            self.unlisted += 1;
            return;
        }
        self.lines.push(format!("{position}: {message}"));
        self.problems.push(json!({
            "file": position.file.display().to_string(), "line": position.line, "field": field, "message": message,
        }));
    }

    fn print(&self, options: &Options) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if options.json {
            let report = json!({
                "valid": self.valid, "invalid": self.invalid, "problems": self.problems, "unlisted": self.unlisted,
            });
            return writeln!(out, "{report:#}");
        }
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        if self.unlisted > 0 {
            writeln!(out, "… and {} more problems (--max-problems 0 lists all)", self.unlisted)?;
        }
        let verdict = if self.invalid == 0 { "valid" } else { "INVALID" };
        writeln!(out, "{verdict}: {} good records, {} bad", self.valid, self.invalid)
    }
}
