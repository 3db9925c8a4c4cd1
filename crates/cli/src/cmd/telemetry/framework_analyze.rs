//! `analyze --input` of `tfmemprof` and `jaxmemprof`: the results of their `monitor` and `track`, or any telemetry, in 0.4.3's words.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;
use stormlog_analyze::report::{score, text};
use stormlog_analyze::{Analysis, AnalysisOptions, Recording, analyze};
use stormlog_model::{Defaults, Interner, Record, Severity, event_from_record};
use stormlog_store::json;
use stormlog_story::judge;

use crate::cmd::atomic_write;
use crate::cmd::record::framework::Framework;
use crate::cmd::telemetry::analyze_plots::Plots;
use crate::cmd::telemetry::recordings;
use crate::exit::{CtrlC, Exit};

/// The picture's name in 0.4.3.
pub(crate) const PLOT: &str = "memory_timeline.png";

pub(crate) struct Options {
    pub(crate) framework: Framework,
    pub(crate) input: PathBuf,
    pub(crate) detect_leaks: bool,
    pub(crate) optimize: bool,
    /// The picture to draw.
    pub(crate) plot: Option<PathBuf>,
    /// The directory that the picture goes to.
    pub(crate) output: Option<PathBuf>,
    pub(crate) report: Option<PathBuf>,
}

const MIB: f64 = 1_048_576.0;

/// The numbers of the basic block.
struct Basics {
    peak: f64,
    average: f64,
    duration: f64,
    rises: usize,
    falls: usize,
    alerts: u64,
    /// Why there are no figures of a device.
    unavailable: Option<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    let (name, framework) = (options.input.display(), options.framework);
    // 0.4.3's JAX side has its complaints on standard error.
    let complain = |out: &mut io::StdoutLock<'_>, sentence: String| match framework {
        Framework::Tensorflow => writeln!(out, "Error: {sentence}"),
        Framework::Jax => writeln!(io::stderr(), "Error: {sentence}"),
    };
    if !options.input.exists() {
        complain(&mut out, format!("Input file {name} not found"))?;
        return Ok(Exit::InvalidInput);
    }
    match framework {
        Framework::Tensorflow => writeln!(out, "Analyzing results from {name}...")?,
        Framework::Jax => writeln!(out, "Analyzing JAX tracking results: {name}\n{}", "=".repeat(50))?,
    }
    let results = match json::read_value(&options.input) {
        Ok(Value::Object(map)) if map.contains_key("memory_usage") => Some(map),
        _ => None,
    };
    let (analysis, basics, plots) = match results {
        Some(results) => match of_results(&results, framework, options.plot.is_some()) {
            Ok(found) => found,
            Err(sentence) => {
                complain(&mut out, sentence)?;
                return Ok(Exit::InvalidInput);
            }
        },
        None => {
            let loaded = recordings::load(std::slice::from_ref(&options.input), &CtrlC::watch())?;
            if let Some(problem) = loaded.problems().next() {
                complain(&mut out, format!("Failed to load results from {name}: {problem}"))?;
                return Ok(Exit::InvalidInput);
            }
            let plots = options.plot.is_some().then(|| Plots::of(&loaded.recording));
            let analysis = judge(loaded);
            let basics = of_analysis(&analysis);
            (analysis, basics, plots)
        }
    };
    match framework {
        Framework::Tensorflow => write_basics(&mut out, &basics)?,
        Framework::Jax => write_jax_basics(&mut out, &basics)?,
    }
    if options.detect_leaks {
        write_leaks(&mut out, &analysis, framework)?;
    }
    if options.optimize {
        write_scores(&mut out, &analysis, framework)?;
    }
    if let (Some(plots), Some(name)) = (plots, &options.plot) {
        let path = options.output.as_ref().map_or_else(|| name.clone(), |folder| folder.join(name));
        if let Some(folder) = &options.output {
            std::fs::create_dir_all(folder)?;
        }
        let is_drawn = plots.write_timeline(&path)?;
        match (is_drawn, framework) {
            (false, _) => writeln!(out, "\nNothing to plot: no samples.")?,
            (true, Framework::Tensorflow) => writeln!(out, "\nTimeline plot saved as {}", path.display())?,
            (true, Framework::Jax) => writeln!(out, "Memory timeline plot saved to {}", path.display())?,
        }
    }
    if let Some(path) = &options.report {
        atomic_write::write(path, text(&analysis))?;
        match framework {
            Framework::Tensorflow => writeln!(out, "\nReport saved to {}", path.display())?,
            Framework::Jax => writeln!(out, "Analysis report saved to {}", path.display())?,
        }
    }
    Ok(Exit::Ok)
}

/// `memory_usage` in megabytes (of JAX in bytes) and `timestamps` in seconds, two lists of one length.
fn of_results(
    results: &Record,
    framework: Framework,
    is_drawn: bool,
) -> Result<(Analysis, Basics, Option<Plots>), String> {
    let list = |key: &str| match results.get(key) {
        Some(Value::Array(items)) => items.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>(),
        None | Some(Value::Null) => Some(Vec::new()),
        Some(_) => None,
    };
    let usage = list("memory_usage").ok_or("Invalid input: 'memory_usage' must be a list of numbers")?;
    let mut times = list("timestamps").ok_or("Invalid input: 'timestamps' must be a list of numbers")?;
    if !results.contains_key("timestamps") {
        times = (0..usage.len()).map(|index| index as f64).collect();
    }
    if usage.len() != times.len() {
        return Err("Invalid input: 'memory_usage' and 'timestamps' must have equal length".to_owned());
    }
    let (megabyte, session) = match framework {
        Framework::Tensorflow => (1.0, "tfmemprof-results"),
        Framework::Jax => (MIB, "jaxmemprof-results"),
    };
    let mut recording = Recording::default();
    let mut interner = Interner::default();
    for (used, seconds) in usage.iter().zip(&times) {
        let mut record = Record::new();
        record.insert("timestamp".to_owned(), (*seconds).into());
        record.insert("memory_mb".to_owned(), (*used / megabyte).into());
        let defaults = Defaults { session_id: Some(session), ..Defaults::default() };
        let event = event_from_record(&record, &defaults, &mut interner)
            .map_err(|problem| format!("Invalid input: {problem}"))?;
        recording.observe(&event);
    }
    let number = |key: &str| results.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let steps = |rises: bool| {
        usage.windows(2).filter(|pair| if rises { pair[1] > pair[0] } else { pair[1] < pair[0] }).count()
    };
    let basics = Basics {
        peak: number("peak_memory") * MIB,
        average: number("average_memory") * MIB,
        duration: number("duration"),
        rises: steps(true),
        falls: steps(false),
        alerts: results.get("alerts").and_then(Value::as_u64).unwrap_or(0),
        unavailable: (results.get("device_memory_available") == Some(&Value::Bool(false))).then(|| {
            let reason = results.get("device_memory_unavailable_reason").and_then(Value::as_str);
            reason.unwrap_or("not exposed by backend").to_owned()
        }),
    };
    let plots = is_drawn.then(|| Plots::of(&recording));
    Ok((analyze(recording, Vec::new(), &AnalysisOptions::default()), basics, plots))
}

fn of_analysis(analysis: &Analysis) -> Basics {
    let spans = analysis.sessions.iter().map(|session| session.span_ns.1.saturating_sub(session.span_ns.0));
    let peak = analysis.peak(0).or(analysis.peak(2)).unwrap_or(0) as f64;
    Basics {
        peak,
        average: f64::NAN,
        duration: spans.max().unwrap_or(0) as f64 / 1e9,
        rises: 0,
        falls: 0,
        alerts: 0,
        unavailable: None,
    }
}

fn write_basics(out: &mut impl Write, basics: &Basics) -> io::Result<()> {
    writeln!(out, "\nBasic Analysis:\n{}", "-".repeat(15))?;
    writeln!(out, "Peak Memory: {}", memory(basics.peak))?;
    if basics.average.is_finite() {
        writeln!(out, "Average Memory: {}", memory(basics.average))?;
    }
    writeln!(out, "Duration: {:.2} seconds", basics.duration)?;
    if basics.average.is_finite() {
        writeln!(out, "Memory Allocations: {}\nMemory Deallocations: {}", basics.rises, basics.falls)?;
    }
    Ok(())
}

/// What is unknown of a device is known of the process: 0.4.3 has no figures then.
fn write_jax_basics(out: &mut impl Write, basics: &Basics) -> io::Result<()> {
    let what = match &basics.unavailable {
        None => "Memory",
        Some(reason) => {
            writeln!(out, "Device Memory: unavailable\nReason: {reason}")?;
            "Process RSS"
        }
    };
    writeln!(out, "Peak {what}: {:.2} MB", basics.peak / MIB)?;
    if basics.average.is_finite() {
        writeln!(out, "Average {what}: {:.2} MB", basics.average / MIB)?;
    }
    writeln!(out, "Duration: {:.2} seconds\nAlerts Triggered: {}", basics.duration, basics.alerts)
}

fn write_leaks(out: &mut impl Write, analysis: &Analysis, framework: Framework) -> io::Result<()> {
    let leaks: Vec<_> = analysis.findings.iter().filter(|finding| finding.kind == "leak").collect();
    if framework == Framework::Jax {
        writeln!(out, "Potential memory leaks: {}", leaks.len())?;
        return leaks.iter().try_for_each(|leak| writeln!(out, "  - {}: {}", leak.id, leak.title));
    }
    writeln!(out, "\nMemory Leak Analysis:\n{}", "-".repeat(22))?;
    if leaks.is_empty() {
        return writeln!(out, "No memory leaks detected");
    }
    writeln!(out, "Potential memory leaks detected:")?;
    for leak in leaks {
        let severity = if leak.severity == Severity::Critical { "high" } else { "medium" };
        writeln!(out, "  - {}: {} (Severity: {severity})", leak.id, leak.title)?;
    }
    Ok(())
}

fn write_scores(out: &mut impl Write, analysis: &Analysis, framework: Framework) -> io::Result<()> {
    let score = f64::from(score(&analysis.findings).score) / 10.0;
    match framework {
        Framework::Tensorflow => {
            writeln!(out, "\nOptimization Analysis:\n{}", "-".repeat(22))?;
            writeln!(out, "Overall Score: {score:.1}/10")?;
        }
        Framework::Jax => writeln!(out, "Optimization score: {score:.1}/10")?,
    }
    for sentence in analysis.findings.iter().flat_map(|finding| &finding.advice).take(5) {
        writeln!(out, "  - {sentence}")?;
    }
    Ok(())
}

/// 0.4.3's `format_memory` of the TensorFlow side.
fn memory(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 1024.0 {
            return format!("{value:.2} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2} PB")
}
