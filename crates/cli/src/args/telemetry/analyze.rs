//! What can be typed after `analyze`, `diagnose`, `compare` and `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stormlog_analyze::gate::{parse_rate, parse_share};

use crate::Program;
use crate::args::any_size;
use crate::args::record::watch::Exports;
use crate::cmd::crash::diagnose;
use crate::cmd::telemetry::{analyze, check, compare, tf_analyze};

/// Point it at a file, a session, a run or a directory of all of it. Exit codes: 0 nothing wrong, 3 findings, 5 an input is
/// missing or damaged (what could be read is reported all the same).
#[derive(Debug, Args)]
pub(crate) struct Analyze {
    /// Files, sinks, bundles, recordings or directories of them; allocator snapshots
    #[arg(required_unless_present = "input", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Print the report envelope; the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// How to write it; else by the extension of --output, or text
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Write it to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw memory over time and the ranks of a job, as PNG and SVG
    #[arg(long)]
    visualization: bool,
    /// Where the pictures go
    #[arg(long, default_value = "plots", value_name = "DIR")]
    plot_dir: PathBuf,
    /// The input, as `tfmemprof analyze` names it
    #[arg(long, hide = true, value_name = "FILE")]
    input: Option<PathBuf>,
    #[arg(long, hide = true)]
    detect_leaks: bool,
    #[arg(long, hide = true)]
    optimize: bool,
    #[arg(long, hide = true)]
    visualize: bool,
    #[arg(long, hide = true, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    Json,
    Txt,
    Text,
    Md,
    Html,
}

/// Which of the two analyses was asked for.
pub(crate) enum Asked {
    General(analyze::Options),
    Tensorflow(tf_analyze::Options),
}

impl Analyze {
    pub(crate) fn asked(self, program: Program) -> Asked {
        if let Some(input) = self.input {
            return Asked::Tensorflow(tf_analyze::Options {
                input,
                detect_leaks: self.detect_leaks,
                optimize: self.optimize,
                visualize: self.visualize || self.visualization,
                report: self.report,
            });
        }
        let format = self.format.map(|name| match name {
            FormatName::Json => analyze::Format::Json,
            FormatName::Txt | FormatName::Text => analyze::Format::Text,
            FormatName::Md => analyze::Format::Markdown,
            FormatName::Html => analyze::Format::Html,
        });
        Asked::General(analyze::Options {
            // `gpumemprof analyze --json` is ours, not 0.4.3's: the envelope.
            program: if self.json { Program::Stormlog } else { program },
            paths: self.paths,
            session_id: self.session_id,
            format: format.or(self.json.then_some(analyze::Format::Json)),
            output: self.output,
            plot_dir: (self.visualization || self.visualize).then_some(self.plot_dir),
            argv: argv(),
        })
    }
}

fn argv() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Exit codes: 0 no risk, 3 a risk was found, 2 the command line is wrong, 1 the bundle could not be written whole.
#[derive(Debug, Args)]
pub(crate) struct Diagnose {
    /// The directory to write; where it exists, a new one in it (default: the current directory)
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Look at this process and its children
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// The GPU: a number, cuda:N or /GPU:N (default: the first)
    #[arg(long, value_parser = device, allow_hyphen_values = true, value_name = "DEVICE")]
    device: Option<i64>,
    /// Seconds to watch memory; 0 takes one look
    #[arg(long, default_value = "5.0", allow_negative_numbers = true, value_name = "SECONDS")]
    duration: f64,
    /// Seconds between two samples
    #[arg(long, default_value = "0.5", allow_negative_numbers = true, value_name = "SECONDS")]
    interval: f64,
    #[arg(long, hide = true)]
    native_history: bool,
    #[arg(long, hide = true, default_value_t = 100_000, allow_negative_numbers = true)]
    native_history_max_entries: i64,
    #[command(flatten)]
    exports: Exports,
}

impl Diagnose {
    pub(crate) fn options(self, program: Program) -> diagnose::Options {
        diagnose::Options {
            program,
            output: self.output,
            pid: self.pid,
            device: self.device,
            duration: self.duration,
            interval: self.interval,
            native_history: self.native_history,
            native_history_max_entries: self.native_history_max_entries,
            export: self.exports.asked(),
            // Under an interpreter its own words come first.
            argv: argv().into_iter().skip_while(|word| word != "diagnose").collect(),
        }
    }
}

/// `0`, `cuda:0`, `/GPU:0`; a CPU is -1.
fn device(text: &str) -> Result<i64, String> {
    let lower = text.trim().to_lowercase();
    if lower.contains("cpu") {
        return Ok(-1);
    }
    let number = lower.rsplit(':').next().unwrap_or(&lower);
    let number = if matches!(number, "cuda" | "gpu" | "/gpu") { "0" } else { number };
    number.parse().map_err(|_| format!("{text:?} is no device: give a number, cuda:N or /GPU:N"))
}

/// Compares what two runs took: peaks, growth, phases, findings, settings.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The run before
    a: PathBuf,
    /// The run after
    b: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Compare> for compare::Options {
    fn from(typed: Compare) -> Self {
        compare::Options { a: typed.a, b: typed.b, json: typed.json }
    }
}

/// A gate for CI. Goes by what the allocator handed out (or RSS without one); what it held is reported only. Exit codes: 0
/// within budget, 4 over it, 5 the input is missing or damaged.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The run
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Compare with this baseline
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Make this run the baseline
    #[arg(long, requires = "baseline")]
    update_baseline: bool,
    /// The most memory at once, e.g. 12GiB
    #[arg(long, value_parser = any_size, value_name = "SIZE")]
    max_peak: Option<u64>,
    /// The most growth of the floor, e.g. 1MiB/min
    #[arg(long, value_parser = rate, value_name = "RATE")]
    max_growth: Option<f64>,
    /// How much more than the baseline's peak, e.g. 2%
    #[arg(long, value_parser = share, value_name = "PERCENT", requires = "baseline")]
    max_allocated_peak_increase: Option<f64>,
    /// Write a JUnit file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print the report envelope
    #[arg(long)]
    json: bool,
}

impl From<Check> for check::Options {
    fn from(typed: Check) -> Self {
        check::Options {
            paths: typed.paths,
            baseline: typed.baseline,
            update_baseline: typed.update_baseline,
            max_peak: typed.max_peak,
            max_growth: typed.max_growth,
            max_increase: typed.max_allocated_peak_increase,
            junit: typed.junit,
            markdown: typed.markdown,
            json: typed.json,
            argv: argv(),
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    parse_rate(text).ok_or_else(|| "expected a rate such as 1MiB/min".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| "expected a share such as 2% or 0.02".to_owned())
}
