//! What can be typed, a folder a domain. Each struct turns into the plain options of its command; nothing behind knows clap.

pub(crate) mod crash;
pub(crate) mod groups;
pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod monitoring;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod telemetry;

use clap::{Parser, Subcommand};

use record::{attach, live, run, runs, top, watch};
use telemetry::{analyze, files, query};

/// Memory profiler and flight recorder for machine-learning programs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open the terminal UI: machine, runs, processes, ranks, findings, crashes
    Tui(screen::Tui),
    /// Run a program and keep the evidence of how it ends
    Run(run::Run),
    /// List the runs of a directory, or remove old ones
    Runs(runs::Runs),
    /// Record the heap of a running process, or watch its memory
    Attach(attach::Attach),
    /// End a recording that `attach` began
    Detach(attach::Detach),
    /// List, show and export the bundles that programs left when they died
    Oom(crash::Oom),
    /// Explain what keeps the memory of a process: variable, cache, closure, cycle
    Why(crash::Why),
    /// Find leaks, growth and other trouble in a recording, with evidence and advice
    Analyze(Box<analyze::Analyze>),
    /// Write everything about a run as one page: answer, lanes, flame graph, findings
    Report(report::Report),
    /// Serve the memory of runs as metrics for Prometheus, and their reports as pages
    Serve(serve::Serve),
    /// Collect a diagnostic bundle for a bug report
    Diagnose(Box<analyze::Diagnose>),
    /// List runs, sessions, events, bundles, issues and figures of recordings
    Query(Box<query::Query>),
    /// Query recordings with SQL (needs: pip install 'stormlog[sql]')
    Sql(query::Sql),
    /// Compare the memory of two runs
    Compare(analyze::Compare),
    /// Fail if a run exceeds its memory budget (for CI)
    Check(Box<analyze::Check>),
    /// Convert telemetry between formats and schema versions
    Convert(files::Convert),
    /// Check telemetry and report every problem with file, line and field
    Validate(files::Validate),
    /// List the sessions at a path: state, identity, span, events
    Sessions(files::Sessions),
    /// Explain a PyTorch allocator snapshot: peak, holders, failure, advice
    Snapshot(snapshot::Snapshot),
    /// Predict the memory of a snapshot under other allocator settings
    Replay(snapshot::Replay),
    /// Write the trace of a snapshot as one interactive page
    Timeline(snapshot::Timeline),
    /// Print statistics of a heap capture: totals, peak, largest allocators
    Stats(heap::Stats),
    /// List the heap captures of a run: process, program, peak, size
    Captures(heap::Captures),
    /// Print which functions held the memory at the peak
    Summary(Box<heap::Summary>),
    /// Watch a running program: heap, resident memory and the lines that hold it
    Live(live::Live),
    /// Show the ranks of a job and the runs of a machine, nearest to its limit first
    Top(top::Top),
    /// Write a heap capture as a flame graph, or as a file for another tool
    Flamegraph(Box<heap::Flamegraph>),
    /// Print a heap capture as a tree of stacks, the largest first
    Tree(Box<heap::Tree>),
    /// Write a heap capture line by line: own, total, allocations
    Table(Box<heap::Table>),
    /// Print what stayed in a heap capture, growing lines first
    Leaks(heap::Leaks),
    /// Compare what two heap captures or snapshots held
    Diff(heap::Diff),
    /// Convert a heap capture to gprof2dot, csv, parquet, speedscope, ...
    Transform(Box<heap::Transform>),
    /// Find device memory that a program never frees (needs compute-sanitizer)
    Sanitize(heap::Sanitize),
    /// Print every record of a heap capture as a line of text
    Parse(heap::Parse),
    /// Show the host, its limits and pressure, and every GPU
    Info(watch::Info),
    /// Watch memory live, for a while
    Monitor(watch::Monitor),
    /// Track memory with alerts, and record it
    Track(Box<watch::Track>),
    /// Print alert rules for Prometheus, as a file or as a Kubernetes resource
    Rules(monitoring::Rules),
    /// Print a Grafana dashboard
    Dashboard(monitoring::Dashboard),
    /// Complete the heap captures of a run whose program has ended (used by `run`)
    #[command(hide = true)]
    FinishCaptures(run::FinishCaptures),
    /// Deliver alerts that come on standard input (used by `run`)
    #[command(hide = true)]
    DeliverAlerts,
}

/// A size above zero: a limit of nothing is a slip.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    match any_size(text) {
        Ok(0) => Err(NO_SIZE.to_owned()),
        known => known,
    }
}

/// A size, also zero: a budget may well be nothing.
pub(crate) fn any_size(text: &str) -> Result<u64, String> {
    stormlog_model::parse_bytes(text).ok_or_else(|| NO_SIZE.to_owned())
}

const NO_SIZE: &str = "expected a size such as 512MiB or 24GiB";
