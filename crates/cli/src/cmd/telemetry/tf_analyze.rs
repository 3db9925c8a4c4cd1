//! `tfmemprof analyze`: the results of `tfmemprof monitor` and `track`, or any telemetry, in 0.4.3's words.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_analyze::report::{score, text};
use stormlog_analyze::{Analysis, AnalysisOptions, Recording, analyze};
use stormlog_model::{Defaults, Interner, Record, Severity, event_from_record};
use stormlog_store::json;
use stormlog_story::judge;

use crate::cmd::telemetry::analyze_plots::Plots;
use crate::cmd::telemetry::recordings;
use crate::cmd::whole_file;
use crate::exit::{CtrlC, Exit};

pub(crate) struct Options {
    pub(crate) input: PathBuf,
    pub(crate) detect_leaks: bool,
    pub(crate) optimize: bool,
    pub(crate) visualize: bool,
    pub(crate) report: Option<PathBuf>,
}

/// The numbers of the basic block.
struct Basics {
    peak: f64,
    average: f64,
    duration: f64,
    rises: usize,
    falls: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    let name = options.input.display();
    if !options.input.exists() {
        writeln!(out, "Error: Input file {name} not found")?;
        return Ok(Exit::InvalidInput);
    }
    writeln!(out, "Analyzing results from {name}...")?;
    let results = match json::read_value(&options.input) {
        Ok(Value::Object(map)) if map.contains_key("memory_usage") => Some(map),
        _ => None,
    };
    let (analysis, basics, plots) = match results {
        Some(results) => match of_results(&results, options.visualize) {
            Ok(found) => found,
            Err(sentence) => {
                writeln!(out, "Error: {sentence}")?;
                return Ok(Exit::InvalidInput);
            }
        },
        None => {
            let loaded = recordings::load(std::slice::from_ref(&options.input), &CtrlC::watch())?;
            if let Some(problem) = loaded.problems().next() {
                writeln!(out, "Error: Failed to load results from {name}: {problem}")?;
                return Ok(Exit::InvalidInput);
            }
            let plots = options.visualize.then(|| Plots::of(&loaded.recording));
            let analysis = judge(loaded);
            let basics = of_analysis(&analysis);
            (analysis, basics, plots)
        }
    };
    write_basics(&mut out, &basics)?;
    if options.detect_leaks {
        write_leaks(&mut out, &analysis)?;
    }
    if options.optimize {
        write_scores(&mut out, &analysis)?;
    }
    if let Some(plots) = plots {
        // The name 0.4.3 gives it, where one stands.
        let is_drawn = plots.write_timeline(Path::new("memory_timeline.png"))?;
        let said = if is_drawn {
            "Timeline plot saved as memory_timeline.png"
        } else {
            "Nothing to plot: no samples."
        };
        writeln!(out, "\n{said}")?;
    }
    if let Some(path) = &options.report {
        whole_file::write(path, text(&analysis))?;
        writeln!(out, "\nReport saved to {}", path.display())?;
    }
    Ok(Exit::Ok)
}

/// `memory_usage` in megabytes and `timestamps` in seconds, two lists of one length.
fn of_results(results: &Record, is_drawn: bool) -> Result<(Analysis, Basics, Option<Plots>), String> {
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
    let mut recording = Recording::default();
    let mut interner = Interner::default();
    for (megabytes, seconds) in usage.iter().zip(&times) {
        let mut record = Record::new();
        record.insert("timestamp".to_owned(), (*seconds).into());
        record.insert("memory_mb".to_owned(), (*megabytes).into());
        let defaults = Defaults { session_id: Some("tfmemprof-results"), ..Defaults::default() };
        let event = event_from_record(&record, &defaults, &mut interner)
            .map_err(|problem| format!("Invalid input: {problem}"))?;
        recording.observe(&event);
    }
    let number = |key: &str| results.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let steps = |rises: bool| {
        usage.windows(2).filter(|pair| if rises { pair[1] > pair[0] } else { pair[1] < pair[0] }).count()
    };
    let basics = Basics {
        peak: number("peak_memory") * 1_048_576.0,
        average: number("average_memory") * 1_048_576.0,
        duration: number("duration"),
        rises: steps(true),
        falls: steps(false),
    };
    let plots = is_drawn.then(|| Plots::of(&recording));
    Ok((analyze(recording, Vec::new(), &AnalysisOptions::default()), basics, plots))
}

fn of_analysis(analysis: &Analysis) -> Basics {
    let spans = analysis.sessions.iter().map(|session| session.span_ns.1.saturating_sub(session.span_ns.0));
    let peak = analysis.peak(0).or(analysis.peak(2)).unwrap_or(0) as f64;
    Basics { peak, average: f64::NAN, duration: spans.max().unwrap_or(0) as f64 / 1e9, rises: 0, falls: 0 }
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

fn write_leaks(out: &mut impl Write, analysis: &Analysis) -> io::Result<()> {
    writeln!(out, "\nMemory Leak Analysis:\n{}", "-".repeat(22))?;
    let leaks: Vec<_> = analysis.findings.iter().filter(|finding| finding.kind == "leak").collect();
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

fn write_scores(out: &mut impl Write, analysis: &Analysis) -> io::Result<()> {
    let score = score(&analysis.findings);
    writeln!(out, "\nOptimization Analysis:\n{}", "-".repeat(22))?;
    writeln!(out, "Overall Score: {:.1}/10", f64::from(score.score) / 10.0)?;
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
