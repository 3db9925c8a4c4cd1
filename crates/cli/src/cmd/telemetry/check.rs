//! `stormlog check`: does a run keep within its memory budget? A gate for CI: exit 4 when it does not.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;
use stormlog_analyze::gate::{self, Budget};
use stormlog_analyze::report::{Envelope, Verdict};
use stormlog_analyze::{Measures, summary_metrics};
use stormlog_model::{Record, format_bytes};
use stormlog_store::{StoreError, json};
use stormlog_story::judge;

use crate::cmd::atomic_write;
use crate::cmd::telemetry::analyze::{exit_of, indented, now};
use crate::cmd::telemetry::recordings;
use crate::exit::{CtrlC, Exit, UsageError};

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) baseline: Option<PathBuf>,
    pub(crate) update_baseline: bool,
    pub(crate) max_peak: Option<u64>,
    pub(crate) max_growth: Option<f64>,
    pub(crate) max_increase: Option<f64>,
    pub(crate) junit: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) argv: Vec<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let has_budget = options.max_peak.is_some() || options.max_growth.is_some() || options.baseline.is_some();
    if !has_budget {
        let message = "nothing to check: give --baseline, --max-peak or --max-growth";
        return Err(UsageError(message.to_owned()).into());
    }
    let baseline = match (&options.baseline, options.update_baseline) {
        (Some(path), false) => Some(read_baseline(path)?),
        _ => None,
    };
    let mut loaded = recordings::load(&options.paths, &CtrlC::watch())?;
    for problem in loaded.problems() {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    let artifacts = std::mem::take(&mut loaded.artifacts);
    let analysis = judge(loaded);
    if analysis.is_damaged() || analysis.event_count == 0 {
        // A gate that saw half of a run has seen nothing.
        writeln!(io::stderr(), "Error: the input is damaged or empty; nothing was checked")?;
        return Ok(Exit::InvalidInput);
    }
    let measures = Measures::of(&analysis);
    if let (Some(path), true) = (&options.baseline, options.update_baseline) {
        atomic_write::write(path, indented(&Value::Object(measures.to_baseline())))?;
        let peak = measures.gated_peak().map_or_else(|| "unknown".to_owned(), format_bytes);
        writeln!(io::stderr(), "Baseline written to {}: peak {peak}", path.display())?;
    }
    let budget = Budget {
        max_peak: options.max_peak,
        max_growth: options.max_growth,
        baseline,
        max_increase: options.max_increase,
    };
    let checks = gate::check(&measures, &budget);
    let verdict = if gate::has_passed(&checks) { Verdict::Pass } else { Verdict::GateFailed };
    for (path, page) in [(&options.junit, gate::junit(&checks)), (&options.markdown, gate::markdown(&checks))]
    {
        if let Some(path) = path {
            atomic_write::write(path, page)?;
        }
    }
    let mut out = io::stdout().lock();
    if options.json {
        let findings: Vec<_> = checks.iter().filter_map(gate::Check::finding).collect();
        let envelope = Envelope {
            report_kind: "check",
            tool_name: "stormlog".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: options.argv.clone(),
            generated_at_utc: now(),
            verdict,
            summary: gate::summary(&checks),
            session_id: None,
            artifacts,
        };
        let rows = checks.iter().map(|check| Value::Object(check.to_record()));
        let payload = Record::from_iter([
            ("checks".to_owned(), rows.collect()),
            ("measures".to_owned(), Value::Object(measures.to_baseline())),
        ]);
        let report = envelope.report(&findings, summary_metrics(&analysis), payload);
        out.write_all(indented(&Value::Object(report)).as_bytes())?;
    } else {
        out.write_all(gate::table(&checks).as_bytes())?;
        // A call that only writes a baseline reports that, and needs no check.
        if !(options.update_baseline && checks.is_empty()) {
            writeln!(out, "{}", gate::summary(&checks))?;
        }
    }
    Ok(exit_of(verdict))
}

fn read_baseline(path: &std::path::Path) -> anyhow::Result<Measures> {
    let unusable = |message: String| StoreError::Unrecognised { path: path.to_owned(), message };
    if !path.exists() {
        let message = "there is no baseline yet; create one from a good run with --update-baseline";
        return Err(unusable(message.to_owned()).into());
    }
    match json::read_value(path)? {
        Value::Object(record) => {
            Ok(Measures::from_baseline(&record).map_err(|error| unusable(error.to_string()))?)
        }
        _ => Err(unusable("not a memory baseline: expected an object".to_owned()).into()),
    }
}
