//! `analyze`: what is wrong with a recording, how sure that is, why, and what to do.
//!
//! `stormlog analyze` looks at every session at its paths and its exit code says what it found. Under the older name
//! `gpumemprof` the command keeps 0.4.3's words and exit codes: one session, a short text, the report in `--output`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_analyze::report::{
    Envelope, Verdict, html, markdown, optimization_report, text, verdict_sentence,
};
use stormlog_analyze::summary_metrics;
use stormlog_render::plot::Figure;
use stormlog_store::json;
use stormlog_story::captures::CaptureReader;
use stormlog_story::{complete_analysis, judge};

use crate::Program;
use crate::cmd::atomic_write;
use crate::cmd::snapshot::analyze::Snapshots;
use crate::cmd::telemetry::analyze_plots::Plots;
use crate::cmd::telemetry::gpumemprof_analyze;
use crate::cmd::telemetry::recordings;
use crate::exit::{CtrlC, Exit};

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Markdown,
    Html,
}

pub(crate) struct Options {
    pub(crate) program: Program,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) session_id: Option<String>,
    /// What was requested; the default depends on where it goes and under which name.
    pub(crate) format: Option<Format>,
    pub(crate) output: Option<PathBuf>,
    /// Where pictures go, if they are wanted.
    pub(crate) plot_dir: Option<PathBuf>,
    pub(crate) argv: Vec<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let ctrl_c = CtrlC::watch();
    let (snapshots, others) = Snapshots::among(&options.paths);
    let captures = CaptureReader::default();
    let mut loaded = recordings::load_with(&others, &captures, &ctrl_c)?;
    let snapshots = Snapshots::read(&snapshots, others.is_empty(), &mut loaded);
    // 0.4.3 knew no snapshots: they have no older words.
    let is_older = options.program == Program::Gpumemprof && !snapshots.alone;
    let selected = match (&options.session_id, is_older) {
        (Some(id), _) => Some(id.clone()),
        (None, true) => gpumemprof_analyze::default_session(&loaded),
        (None, false) => None,
    };
    let discovered: Vec<String> = loaded.sessions.iter().map(|session| session.session_id.clone()).collect();
    if let Some(id) = &selected
        && !loaded.keep(id)
    {
        writeln!(io::stderr(), "Error: Requested session_id not found: {id}")?;
        return Ok(Exit::InvalidInput);
    }
    if is_older {
        return gpumemprof_analyze::run(options, loaded, selected.as_deref(), &discovered);
    }
    for problem in loaded.problems() {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    let artifacts = std::mem::take(&mut loaded.artifacts);
    let format = options.format.unwrap_or_else(|| format_of(options.output.as_deref()));
    let is_drawn = options.plot_dir.is_some() || matches!(format, Format::Html | Format::Markdown);
    let plots = is_drawn.then(|| Plots::of(&loaded.recording));
    let mut analysis = judge(loaded);
    snapshots.judge(&mut analysis);
    let story = complete_analysis(&mut analysis, &others, &captures);
    let verdict = Verdict::of(&analysis);
    let summary = match (verdict, analysis.event_count) {
        (Verdict::InvalidInput, 0) if analysis.captures + analysis.snapshots == 0 => {
            "no events could be read".to_owned()
        }
        (Verdict::InvalidInput, _) => format!("damaged input; {}", verdict_sentence(&analysis)),
        _ => verdict_sentence(&analysis),
    };
    let session_id = match analysis.sessions.as_slice() {
        [only] => Some(only.session_id.clone()),
        _ => selected.clone(),
    };
    let envelope = Envelope {
        report_kind: "analyze",
        tool_name: "stormlog".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        argv: options.argv.clone(),
        generated_at_utc: now(),
        verdict,
        summary,
        session_id,
        artifacts,
    };
    let charts: Vec<Figure> = plots.iter().flat_map(|plots| plots.figures(&analysis)).collect();
    let is_empty = analysis.event_count == 0 && analysis.captures + analysis.snapshots == 0;
    let page = match format {
        // Why there is nothing has been said on standard error.
        Format::Text if is_empty && analysis.is_damaged() && options.output.is_none() => String::new(),
        Format::Text if is_empty => format!("{}\n", envelope.summary),
        Format::Text => match snapshots.text()? {
            Some(pages) => pages,
            None => text(&analysis),
        },
        Format::Markdown => markdown(&analysis, &charts.iter().map(Figure::svg_address).collect::<Vec<_>>()),
        Format::Html => html(&analysis, &charts.iter().map(Figure::svg).collect::<Vec<_>>()),
        Format::Json => {
            let payload = snapshots.payload(optimization_report(&analysis, selected.as_deref()))?;
            let mut report = envelope.report(&analysis.findings, summary_metrics(&analysis), payload);
            if let Value::Object(story) = story.to_value() {
                report.extend(story);
            }
            indented(&Value::Object(report))
        }
    };
    match &options.output {
        Some(path) => {
            atomic_write::write(path, &page)?;
            writeln!(io::stderr(), "Analysis report saved to: {}", path.display())?;
        }
        None => io::stdout().lock().write_all(page.as_bytes())?,
    }
    if let (Some(plots), Some(folder)) = (plots, &options.plot_dir) {
        let written = plots.write(&analysis, folder)?;
        for path in &written {
            writeln!(io::stderr(), "Plot saved to: {}", path.display())?;
        }
        if written.is_empty() {
            writeln!(io::stderr(), "Nothing to plot: no samples over time.")?;
        }
    }
    Ok(exit_of(verdict))
}

pub(crate) fn exit_of(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Findings => Exit::Findings,
        Verdict::GateFailed => Exit::GateFailed,
        Verdict::InvalidInput => Exit::InvalidInput,
    }
}

/// By the extension of the file; text without one.
fn format_of(output: Option<&Path>) -> Format {
    match output.and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("json") => Format::Json,
        Some("md") => Format::Markdown,
        Some("html" | "htm") => Format::Html,
        _ => Format::Text,
    }
}

pub(crate) fn indented(value: &Value) -> String {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = json::write::write_indented(&mut out, value, 0);
    String::from_utf8(out).unwrap_or_default() + "\n"
}

pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
