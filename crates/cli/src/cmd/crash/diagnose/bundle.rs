//! The directory: made once, a file at a time, the manifest last. A file that cannot be written makes the bundle incomplete and
//! says so in its report and its manifest, as in 0.4.3.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use stormlog_model::{SessionStatus, SessionSummary};

use super::Options;
use super::summary::{FRAGMENTATION, HIGH_UTILIZATION, Summary};
use crate::Program;
use crate::cmd::telemetry::analyze;
use crate::cmd::whole_file;
use crate::exit::{Exit, Wrong};

const REPORT: &str = "report.json";
const MANIFEST: &str = "manifest.json";
/// How many bundles of one second there may be.
const MOST_OF_A_SECOND: u32 = 10_000;

pub(crate) struct Bundle {
    pub(crate) directory: PathBuf,
    pub(crate) error: Option<String>,
    files: Vec<&'static str>,
    program: Program,
    argv: Vec<String>,
}

impl Bundle {
    /// The directory asked for, where there is none yet; else a new one in it, or in the current one.
    pub(crate) fn create(options: &Options) -> anyhow::Result<Self> {
        let argv = stormlog_model::scrub::command(&options.argv);
        let directory = directory(options)?;
        Ok(Bundle { directory, error: None, files: Vec::new(), program: options.program, argv })
    }

    /// Writes a file; after the first that fails the rest is still tried, for what is there helps.
    pub(crate) fn write(&mut self, name: &'static str, value: &Value) {
        match whole_file::write(&self.directory.join(name), analyze::indented(value)) {
            Ok(()) => self.files.push(name),
            Err(error) => {
                self.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    /// Writes the report and the manifest.
    pub(crate) fn finish(&mut self, summary: &Summary, mut session: SessionSummary) -> Exit {
        let has_risk = summary.raised().next().is_some();
        let verdict = |error: &Option<String>| match (error, has_risk) {
            (Some(_), _) => Exit::Error,
            (None, true) => Exit::Findings,
            (None, false) => Exit::Ok,
        };
        let report = self.report(summary, &session.session_id, verdict(&self.error));
        self.write(REPORT, &report);
        let exit = verdict(&self.error);
        if exit == Exit::Error {
            session.status = SessionStatus::Incomplete;
            let report = self.report(summary, &session.session_id, exit);
            let again = whole_file::write(&self.directory.join(REPORT), analyze::indented(&report));
            if again.is_err() && self.files.contains(&REPORT) {
                // A report that claims success must not stay beside a failure.
                let _ = fs::remove_file(self.directory.join(REPORT));
                self.files.retain(|file| *file != REPORT);
            }
        }
        self.files.push(MANIFEST);
        let manifest = self.manifest(exit, has_risk, &session);
        match whole_file::write(&self.directory.join(MANIFEST), analyze::indented(&manifest)) {
            Ok(()) => exit,
            Err(error) => {
                self.error.get_or_insert_with(|| format!("{error:#}"));
                Exit::Error
            }
        }
    }

    fn manifest(&self, exit: Exit, has_risk: bool, session: &SessionSummary) -> Value {
        let mut manifest = json!({
            "schema_version": 2, "version": 2,
            "created_iso": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "command_line": format!("{} {}", self.program.name(), self.argv.join(" ")),
            "files": self.files, "exit_code": exit.code(), "risk_detected": has_risk,
            "session_id": session.session_id, "session_status": session.status.as_str(),
            "session": session.to_record(),
        });
        if let Value::Object(manifest) = &mut manifest {
            if self.program != Program::Tfmemprof {
                manifest.insert("native_history_enabled".to_owned(), false.into());
            }
            if let Some(error) = &self.error {
                manifest.insert("error".to_owned(), error.as_str().into());
            }
        }
        manifest
    }

    fn report(&self, summary: &Summary, session_id: &str, exit: Exit) -> Value {
        let raised: Vec<&str> = match exit {
            Exit::Error => Vec::new(),
            _ => summary.raised().collect(),
        };
        let findings: Vec<Value> = raised.iter().map(|flag| finding(flag, summary, session_id)).collect();
        let kinds: Vec<&str> = findings.iter().filter_map(|found| found["kind"].as_str()).collect();
        let (status, sentence) = match (exit, kinds.as_slice()) {
            (Exit::Error, _) => {
                ("error", format!("Bundle incomplete: {}", self.error.as_deref().unwrap_or("unknown")))
            }
            (_, []) => ("pass", "No memory risk detected".to_owned()),
            (_, kinds) => ("findings", format!("Memory risk detected: {}", kinds.join(", "))),
        };
        let names = self.files.iter().copied().filter(|name| *name != REPORT).chain([REPORT, MANIFEST]);
        json!({
            "schema_version": 1, "format": "stormlog.report", "report_kind": "diagnose",
            "generated_at_utc": analyze::now(),
            "tool": {
                "name": self.program.name(), "command": "diagnose", "version": env!("CARGO_PKG_VERSION"),
                "argv": self.argv,
            },
            "verdict": {"status": status, "exit_code": exit.code(), "summary": sentence},
            "findings": findings,
            "metrics": summary.metrics(),
            "artifacts": names.map(artifact).collect::<Vec<_>>(),
            "recommendations": summary.suggestions(),
            "session_id": session_id, "run_id": null,
            "payload": summary.risk(),
        })
    }
}

fn directory(options: &Options) -> anyhow::Result<PathBuf> {
    let base = match &options.output {
        Some(output) => {
            let output = std::path::absolute(output)?;
            if let Some(there) = output.ancestors().find(|path| path.exists())
                && !there.is_dir()
            {
                let sentence = format!("Output path is not a directory: {}", there.display());
                return Err(Wrong(sentence).into());
            }
            if !output.is_dir() {
                fs::create_dir_all(&output).with_context(|| cannot_create(&output))?;
                return Ok(output);
            }
            output
        }
        None => std::env::current_dir()?,
    };
    let name = match options.program {
        Program::Tfmemprof => "stormlog-tensorflow-diagnose",
        _ => "stormlog-diagnose",
    };
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    for again in 0..MOST_OF_A_SECOND {
        let suffix = if again == 0 { String::new() } else { format!("-{again}") };
        let path = base.join(format!("{name}-{stamp}{suffix}"));
        match stormlog_files::Directory::create_below(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| cannot_create(&path)),
        }
    }
    anyhow::bail!("{} has too many bundles of this second", base.display())
}

fn cannot_create(path: &Path) -> String {
    format!("Cannot create output directory {}", path.display())
}

/// Kind, severity, title, and the number it is about.
fn finding(flag: &str, summary: &Summary, session_id: &str) -> Value {
    let (kind, severity, title, metric, threshold) = match flag {
        "oom_occurred" => {
            ("oom", "critical", "The allocator recorded out-of-memory events", "num_ooms", None)
        }
        "high_utilization" => (
            "high_utilization",
            "warning",
            "Device memory utilization is above the risk threshold",
            "utilization_ratio",
            Some(HIGH_UTILIZATION),
        ),
        _ => (
            "fragmentation",
            "warning",
            "Allocator fragmentation is above the warning threshold",
            "fragmentation_ratio",
            Some(FRAGMENTATION),
        ),
    };
    let mut metrics = json!({metric: summary.metrics()[metric]});
    if let Some(threshold) = threshold {
        metrics["threshold"] = threshold.into();
    }
    json!({
        "id": format!("diagnose.{flag}"), "kind": kind, "severity": severity, "title": title, "metrics": metrics,
        "evidence": [
            {"kind": "diagnose_summary", "path": "diagnostic_summary.json", "pointer": format!("/risk_flags/{flag}")},
            {"kind": "session", "session_id": session_id},
        ],
    })
}

fn artifact(name: &str) -> Value {
    let kind = match name {
        MANIFEST => "diagnose_manifest",
        "diagnostic_summary.json" => "diagnose_summary",
        "environment.json" => "environment",
        "telemetry_timeline.json" => "telemetry_timeline",
        _ => "report",
    };
    json!({"kind": kind, "path": name})
}
