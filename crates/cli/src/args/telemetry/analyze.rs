//! What can be typed after `analyze`, `diagnose`, `compare` and `check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stormlog_analyze::gate::{parse_rate, parse_share};

use crate::Program;
use crate::args::any_size;
use crate::args::machine::device;
use crate::args::record::watch::Exports;
use crate::cmd::crash::diagnose;
use crate::cmd::record::framework::Framework;
use crate::cmd::telemetry::{analyze, check, compare, framework_analyze};

/// Find leaks, growth and other problems in a recording, with evidence and advice
///
/// Reads a file, a session, a run or a directory of them. Exits 0 if nothing is wrong, 3 for findings, 5 if
/// an input is missing or damaged (what could be read is still reported).
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
    /// Format of the report (default: by the extension of --output, or text)
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw memory over time and the ranks of a job, as PNG and SVG
    #[arg(long)]
    visualization: bool,
    /// Directory for the pictures
    #[arg(long, default_value = "plots", value_name = "DIR")]
    plot_dir: PathBuf,
    /// The input, as `tfmemprof analyze` and `jaxmemprof analyze` name it
    #[arg(long, value_name = "FILE", help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    input: Option<PathBuf>,
    /// Look for leaks in the results of --input
    #[arg(long, help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    detect_leaks: bool,
    /// Score the results of --input and recommend changes
    #[arg(long, help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    optimize: bool,
    /// Draw the results of --input
    #[arg(long, help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    visualize: bool,
    /// File for the report about --input
    #[arg(long, value_name = "FILE", help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    report: Option<PathBuf>,
    /// File for the picture of --input
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = framework_analyze::PLOT, help_heading = "As in tfmemprof and jaxmemprof 0.4.3")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    Json,
    Txt,
    Text,
    Md,
    Html,
}

/// Which of the two analyses was requested.
pub(crate) enum AnalyzeMode {
    General(analyze::Options),
    Framework(framework_analyze::Options),
}

impl Analyze {
    pub(crate) fn mode(self, program: Program) -> AnalyzeMode {
        if let Some(input) = self.input {
            let is_drawn = self.visualize || self.visualization;
            let framework = program.framework().unwrap_or(Framework::Tensorflow);
            return AnalyzeMode::Framework(framework_analyze::Options {
                framework,
                input,
                detect_leaks: self.detect_leaks,
                optimize: self.optimize,
                plot: self.plot.or(is_drawn.then(|| framework_analyze::PLOT.into())),
                output: self.output.filter(|_| framework == Framework::Jax),
                report: self.report,
            });
        }
        let format = self.format.map(|name| match name {
            FormatName::Json => analyze::Format::Json,
            FormatName::Txt | FormatName::Text => analyze::Format::Text,
            FormatName::Md => analyze::Format::Markdown,
            FormatName::Html => analyze::Format::Html,
        });
        AnalyzeMode::General(analyze::Options {
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

/// Collect a diagnostic bundle for a bug report
///
/// Exits 0 for no risk, 3 if a risk was found, 2 for a wrong command line, 1 if the bundle could not be
/// written completely.
#[derive(Debug, Args)]
pub(crate) struct Diagnose {
    /// Directory to write; if it exists, a new one in it (default: .)
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Diagnose this process and its children
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// GPU: a number, cuda:N or /GPU:N (default: the first)
    #[arg(long, value_parser = device::number, allow_hyphen_values = true, value_name = "DEVICE")]
    device: Option<i64>,
    /// Seconds to sample memory; 0 takes one sample
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

/// Compare the memory of two runs
///
/// Compares peaks, growth, phases, findings and settings.
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

/// Fail if a run exceeds its memory budget (for CI)
///
/// Compares what the allocator handed out (RSS where there is no allocator) with the budget; reserved memory
/// is only reported. Exits 0 within budget, 4 over it, 5 if the input is missing or damaged.
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
    /// Allowed peak, e.g. 12GiB
    #[arg(long, value_parser = any_size, value_name = "SIZE")]
    max_peak: Option<u64>,
    /// Allowed growth of the floor, e.g. 1MiB/min
    #[arg(long, value_parser = rate, value_name = "RATE")]
    max_growth: Option<f64>,
    /// Allowed increase over the baseline's peak, e.g. 2%
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
