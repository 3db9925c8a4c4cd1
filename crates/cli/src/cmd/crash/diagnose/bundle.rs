//! The bundle while the command writes it: a file at a time, the manifest last. A file that cannot be written makes the bundle
//! incomplete, and report and manifest say so. What they hold is `catalog::diagnose`'s.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use stormlog_catalog::diagnose::{
    DirectoryError, FRAGMENTATION, Facts, HIGH_UTILIZATION, MANIFEST, REPORT, Summary, Tool, manifest,
    new_directory, report,
};
use stormlog_model::{Record, SessionStatus, SessionSummary};

use super::Options;
use crate::Program;
use crate::cmd::atomic_write;
use crate::cmd::telemetry::analyze;
use crate::exit::{Exit, UsageError};

const THRESHOLDS: [(&str, f64); 2] =
    [("high_utilization", HIGH_UTILIZATION), ("fragmentation_warning", FRAGMENTATION)];

pub(crate) struct Bundle {
    pub(crate) directory: PathBuf,
    pub(crate) error: Option<String>,
    files: Vec<String>,
    program: Program,
    argv: Vec<String>,
}

impl Bundle {
    pub(crate) fn create(options: &Options) -> anyhow::Result<Self> {
        let argv = stormlog_model::scrub::command(&options.argv);
        let prefix = match options.program {
            Program::Tfmemprof => "stormlog-tensorflow-diagnose",
            Program::Jaxmemprof => "stormlog-jax-diagnose",
            _ => "stormlog-diagnose",
        };
        let directory = new_directory(options.output.as_deref(), prefix).map_err(|error| match error {
            error @ DirectoryError::NotADirectory(_) => anyhow::Error::from(UsageError(error.to_string())),
            error => error.into(),
        })?;
        Ok(Bundle { directory, error: None, files: Vec::new(), program: options.program, argv })
    }

    /// Writes a file; after the first that fails the rest is still tried, for what is there helps.
    pub(crate) fn write(&mut self, name: &str, value: &Value) {
        match atomic_write::write(&self.directory.join(name), analyze::indented(value)) {
            Ok(()) => self.files.push(name.to_owned()),
            Err(error) => {
                self.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    /// Writes the report and the manifest.
    pub(crate) fn finish(&mut self, summary: &Summary, mut session: SessionSummary) -> Exit {
        let has_risk = summary.raised().next().is_some();
        let verdict = |error: &Option<String>| match (error, has_risk) {
            (Some(_), _) => (Exit::Error, "error"),
            (None, true) => (Exit::Findings, "findings"),
            (None, false) => (Exit::Ok, "pass"),
        };
        let first = self.report(summary, &session.session_id, verdict(&self.error));
        self.write(REPORT, &first);
        let exit = verdict(&self.error);
        if exit.0 == Exit::Error {
            session.status = SessionStatus::Incomplete;
            let incomplete = self.report(summary, &session.session_id, exit);
            let again = atomic_write::write(&self.directory.join(REPORT), analyze::indented(&incomplete));
            if again.is_err() && self.files.iter().any(|file| file == REPORT) {
                // A report that claims success must not stay beside a failure.
                let _ = fs::remove_file(self.directory.join(REPORT));
                self.files.retain(|file| file != REPORT);
            }
        }
        self.files.push(MANIFEST.to_owned());
        let manifest = self.manifest(exit.0, has_risk, &session);
        match atomic_write::write(&self.directory.join(MANIFEST), analyze::indented(&Value::Object(manifest)))
        {
            Ok(()) => exit.0,
            Err(error) => {
                self.error.get_or_insert_with(|| format!("{error:#}"));
                Exit::Error
            }
        }
    }

    fn manifest(&self, exit: Exit, has_risk: bool, session: &SessionSummary) -> Record {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut manifest = manifest(&self.files, (exit.code(), has_risk), session, &now);
        let line = format!("{} {}", self.program.name(), self.argv.join(" "));
        manifest.insert("command_line".to_owned(), line.into());
        if self.program.framework().is_none() {
            manifest.insert("native_history_enabled".to_owned(), false.into());
        }
        if let Some(error) = &self.error {
            manifest.insert("error".to_owned(), error.as_str().into());
        }
        manifest
    }

    fn report(&self, summary: &Summary, session_id: &str, (exit, word): (Exit, &str)) -> Value {
        let summary = match summary.to_value() {
            Value::Object(summary) => summary,
            _ => Record::new(),
        };
        let written = self.files.iter().filter(|name| *name != REPORT).cloned();
        let files: Vec<String> = written.chain([REPORT, MANIFEST].map(str::to_owned)).collect();
        report(&Facts {
            tool: Tool {
                name: self.program.name(),
                version: env!("CARGO_PKG_VERSION"),
                argv: Some(&self.argv),
            },
            summary: &summary,
            thresholds: &THRESHOLDS,
            session_id,
            files: &files,
            exit: (exit.code(), word),
            error: self.error.as_deref().filter(|_| exit == Exit::Error),
            generated_at_utc: &analyze::now(),
        })
    }
}
