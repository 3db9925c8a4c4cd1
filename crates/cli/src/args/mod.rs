//! What can be typed, a folder a domain. Each struct turns into the plain options of its command; nothing behind knows clap.

pub(crate) mod crash;
pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod record;
pub(crate) mod snapshot;
pub(crate) mod telemetry;

use clap::{Parser, Subcommand};

use record::{attach, live, run, watch};
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
    /// Run a program and keep the evidence of how it ends
    Run(run::Run),
    /// Record the heap of a process that runs already
    Attach(attach::Attach),
    /// End a recording that `attach` began
    Detach(attach::Detach),
    /// List, show and export the bundles programs left when they died
    Oom(crash::Oom),
    /// Say what is wrong with a recording, how sure, why, and what to do
    Analyze(Box<analyze::Analyze>),
    /// Put what is needed to look into memory trouble into one directory to send along
    Diagnose(Box<analyze::Diagnose>),
    /// Rows out of recordings: runs, sessions, events, bundles, issues, numbers
    Query(Box<query::Query>),
    /// SQL over recordings (with the Python package: pip install 'stormlog[sql]')
    Sql(query::Sql),
    /// Compare what two runs took
    Compare(analyze::Compare),
    /// Hold a run against its memory budget: a gate for CI
    Check(Box<analyze::Check>),
    /// Convert telemetry of any age and format
    Convert(files::Convert),
    /// Check telemetry and report every problem with file, line and field
    Validate(files::Validate),
    /// List the sessions at a path: state, identity, span, events
    Sessions(files::Sessions),
    /// A PyTorch allocator snapshot on one page: peak, who held it, why it failed, what to change
    Snapshot(snapshot::Snapshot),
    /// What a snapshot's requests would have taken under other allocator settings
    Replay(snapshot::Replay),
    /// The whole trace of a snapshot as one interactive page
    Timeline(snapshot::Timeline),
    /// The figures of a heap capture: totals, peak, largest allocators, sizes, threads
    Stats(heap::Stats),
    /// The heap captures of a run: process, program, peak, size
    Captures(heap::Captures),
    /// Who held the memory of a heap capture at its peak, by function
    Summary(Box<heap::Summary>),
    /// Watch a program while it runs: heap and resident memory, and which lines hold it
    Live(live::Live),
    /// A heap capture as a flame graph: one interactive page, or a file for another tool
    Flamegraph(Box<heap::Flamegraph>),
    /// A heap capture as a tree of stacks, the biggest first
    Tree(Box<heap::Tree>),
    /// A heap capture line by line: own, total, allocations
    Table(Box<heap::Table>),
    /// What stayed in a heap capture, those that keep growing first
    Leaks(heap::Leaks),
    /// What two heap captures held, compared
    Diff(heap::Diff),
    /// A heap capture as a file of another tool: gprof2dot, csv, parquet, speedscope...
    Transform(Box<heap::Transform>),
    /// Every record of a heap capture as a line of text
    Parse(heap::Parse),
    /// Show the host, its limits and pressure, and every GPU
    Info(watch::Info),
    /// Watch memory live, for a while
    Monitor(watch::Monitor),
    /// Track memory with alerts, and keep what was seen
    Track(Box<watch::Track>),
    /// Complete the heap captures of a run whose program has ended (used by `run`)
    #[command(hide = true)]
    FinishCaptures(run::FinishCaptures),
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
