//! What can be typed. Each struct turns into the plain options of its command; nothing behind knows clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use stormlog_supervise::BundlePolicy;

use crate::analyze_args;
use crate::attach_args;
use crate::cmd::{convert, oom, run, run_finish, sessions, validate};
use crate::heap_args;
use crate::live_args;
use crate::place;
use crate::query_args;
use crate::snapshot_args;
use crate::view_args;
use crate::watch_args;

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
    Run(Run),
    /// Record the heap of a process that runs already
    Attach(attach_args::Attach),
    /// End a recording that `attach` began
    Detach(attach_args::Detach),
    /// List, show and export the bundles programs left when they died
    Oom(Oom),
    /// Say what is wrong with a recording, how sure, why, and what to do
    Analyze(Box<analyze_args::Analyze>),
    /// Put what is needed to look into memory trouble into one directory to send along
    Diagnose(Box<analyze_args::Diagnose>),
    /// Rows out of recordings: runs, sessions, events, bundles, issues, numbers
    Query(Box<query_args::Query>),
    /// SQL over recordings (with the Python package: pip install 'stormlog[sql]')
    Sql(query_args::Sql),
    /// Compare what two runs took
    Compare(analyze_args::Compare),
    /// Hold a run against its memory budget: a gate for CI
    Check(Box<analyze_args::Check>),
    /// Convert telemetry of any age and format
    Convert(Convert),
    /// Check telemetry and report every problem with file, line and field
    Validate(Validate),
    /// List the sessions at a path: state, identity, span, events
    Sessions(Sessions),
    /// A PyTorch allocator snapshot on one page: peak, who held it, why it failed, what to change
    Snapshot(snapshot_args::Snapshot),
    /// What a snapshot's requests would have taken under other allocator settings
    Replay(snapshot_args::Replay),
    /// The whole trace of a snapshot as one interactive page
    Timeline(snapshot_args::Timeline),
    /// The figures of a heap capture: totals, peak, largest allocators, sizes, threads
    Stats(view_args::Stats),
    /// The heap captures of a run: process, program, peak, size
    Captures(view_args::Captures),
    /// Who held the memory of a heap capture at its peak, by function
    Summary(Box<view_args::Summary>),
    /// Watch a program while it runs: heap and resident memory, and which lines hold it
    Live(live_args::Live),
    /// A heap capture as a flame graph: one interactive page, or a file for another tool
    Flamegraph(Box<view_args::Flamegraph>),
    /// A heap capture as a tree of stacks, the biggest first
    Tree(Box<view_args::Tree>),
    /// A heap capture line by line: own, total, allocations
    Table(Box<view_args::Table>),
    /// What stayed in a heap capture, those that keep growing first
    Leaks(view_args::Leaks),
    /// What two heap captures held, compared
    Diff(view_args::Diff),
    /// A heap capture as a file of another tool: gprof2dot, csv, parquet, speedscope...
    Transform(Box<view_args::Transform>),
    /// Every record of a heap capture as a line of text
    Parse(view_args::Parse),
    /// Show the host, its limits and pressure, and every GPU
    Info(watch_args::Info),
    /// Watch memory live, for a while
    Monitor(watch_args::Monitor),
    /// Track memory with alerts, and keep what was seen
    Track(Box<watch_args::Track>),
    /// Complete the heap captures of a run whose program has ended (used by `run`)
    #[command(hide = true)]
    FinishCaptures(FinishCaptures),
}

/// Runs the program unchanged, its children included, and watches the memory of each from outside. Streams, signals and
/// exit status are the program's own; what was recorded lies in one directory a run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_parser = interval, value_name = "SECONDS")]
    interval: Duration,
    /// Where run directories are made
    #[arg(long, env = place::VARIABLE, default_value = place::FOLDER, value_name = "DIR")]
    dir: PathBuf,
    /// Suppress the summary
    #[arg(long, short)]
    quiet: bool,
    /// Limit the program's address space, so that it gets a MemoryError it can report (e.g. 16GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    limit: Option<u64>,
    /// Kill the program when this command is killed (SIGKILL); by default it outlives it
    #[arg(long)]
    die_with_supervisor: bool,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Open the run's directory to its group (default: private)
    #[arg(long)]
    share: bool,
    /// Do not record the environment
    #[arg(long)]
    no_env: bool,
    /// Do not ask Python programs for the exception they die of
    #[arg(long)]
    no_exceptions: bool,
    /// Do not record the GPU memory of programs that import torch
    #[arg(long)]
    no_torch: bool,
    /// Also say which library takes GPU memory beside PyTorch (NCCL, cuBLAS, ...), by the driver's own events; needs CUPTI, and
    /// its only place for listeners: where Nsight or a profiler has that, the program says so and goes on
    #[arg(long, conflicts_with = "no_torch")]
    cuda_driver: bool,
    /// Which ends leave a bundle: want of memory (oom); that, uncaught exceptions and fatal signals (crash); every end but exit 0 (always)
    #[arg(long, value_enum, default_value = "crash", value_name = "ENDS")]
    bundle: Bundle,
    /// Watch it on a screen while it runs, as `stormlog live` does; records the heap too. What the program prints to the terminal goes to
    /// output.log in the run's directory, and its end is shown afterwards; it cannot read keys, but Ctrl-C and Ctrl-Z reach it. `q` leaves
    /// the screen, and the program goes on
    #[arg(long)]
    live: bool,
    /// With --live: do not record the heap
    #[arg(long, requires = "live")]
    no_heap: bool,
    #[command(flatten)]
    heap: heap_args::Record,
    /// Wait until the captures are compressed; otherwise a background process of low priority does that after the command has returned
    #[arg(long, help_heading = "Heap recording")]
    wait: bool,
    /// The program and its arguments; a .py file is run with Python
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl From<Run> for run::Options {
    fn from(typed: Run) -> Self {
        let wants_heap = typed.heap.is_wanted() || (typed.live && !typed.no_heap);
        run::Options {
            command: typed.command,
            interval: typed.interval,
            root: typed.dir,
            quiet: typed.quiet,
            limit: typed.limit,
            die_with_supervisor: typed.die_with_supervisor,
            json: typed.json,
            is_shared: typed.share,
            records_environment: !typed.no_env,
            report_exceptions: !typed.no_exceptions,
            heap_output: typed.heap.output.clone(),
            force: typed.heap.force,
            heap: wants_heap.then(|| typed.heap.options()),
            wait: typed.wait,
            live: typed.live,
            bundle_policy: typed.bundle.into(),
            record_torch: !typed.no_torch,
            follow_cuda_driver: typed.cuda_driver,
        }
    }
}

/// Values of `--bundle`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bundle {
    Oom,
    Crash,
    Always,
}

impl From<Bundle> for BundlePolicy {
    fn from(typed: Bundle) -> Self {
        match typed {
            Bundle::Oom => BundlePolicy::Oom,
            Bundle::Crash => BundlePolicy::Crash,
            Bundle::Always => BundlePolicy::Always,
        }
    }
}

/// Works on bundles of any origin: our own, Stormlog 0.4.3's, and older ones.
#[derive(Debug, Args)]
pub(crate) struct Oom {
    #[command(subcommand)]
    command: OomCommand,
}

#[derive(Debug, Subcommand)]
enum OomCommand {
    /// The bundles at a path, newest first
    List {
        /// A bundle, a run, or any directory (default: stormlog-runs)
        path: Option<PathBuf>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// One page: what ended it, its memory at the end, the last events, what to try
    Show {
        /// A bundle, or a directory whose newest bundle is meant (default: stormlog-runs)
        bundle: Option<PathBuf>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// Write a bundle as one JSON file, or its events as .jsonl, .csv or .parquet
    Export {
        /// A bundle, or a directory whose newest bundle is meant
        bundle: PathBuf,
        /// The file to write
        output: PathBuf,
    },
}

impl From<Oom> for oom::Options {
    fn from(typed: Oom) -> Self {
        match typed.command {
            OomCommand::List { path, json } => oom::Options::List { path, json },
            OomCommand::Show { bundle, json } => oom::Options::Show { bundle, json },
            OomCommand::Export { bundle, output } => oom::Options::Export { bundle, output },
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FinishCaptures {
    #[arg(long)]
    aggregate: bool,
    #[arg(long)]
    max_size: Option<u64>,
    run: PathBuf,
}

impl From<FinishCaptures> for run_finish::Options {
    fn from(typed: FinishCaptures) -> Self {
        run_finish::Options { run: typed.run, aggregate: typed.aggregate, max_size: typed.max_size }
    }
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

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.001 and 3600".to_owned()),
    }
}

/// Reads JSON, JSONL, CSV, Parquet, sink directories, OOM and diagnose bundles, rings and logs; writes JSON, JSONL,
/// CSV or Parquet by the extension of OUT.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// A file, or a directory such as a sink, a bundle or a run
    input: PathBuf,
    /// The file to write; `-` is standard output (then --to is needed)
    output: PathBuf,
    /// Schema version to write
    #[arg(long, value_parser = ["2", "3", "4"], default_value = "4", value_name = "VERSION")]
    schema: String,
    /// Output format, when the extension does not say: json, jsonl, csv or parquet
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Write 0 for unknown counters on which schemas 2 and 3 insist, and count them
    #[arg(long)]
    unknown_as_zero: bool,
    /// Mark texts in CSV that a spreadsheet would run as a formula with an apostrophe
    #[arg(long)]
    safe_csv: bool,
    /// Keep the good records of a damaged input and count what was dropped
    #[arg(long)]
    lenient: bool,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
}

impl From<Convert> for convert::Options {
    fn from(typed: Convert) -> Self {
        convert::Options {
            input: typed.input,
            output: typed.output,
            schema: typed.schema.parse().unwrap_or(4),
            to: typed.to,
            session_id: typed.session_id,
            unknown_as_zero: typed.unknown_as_zero,
            safe_csv: typed.safe_csv,
            lenient: typed.lenient,
            json: typed.json,
        }
    }
}

/// Judges records by the letter of their schema; records without a schema by whether they can be understood.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// A file or directory
    input: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Stop listing after this many problems (they are still counted); 0 lists all
    #[arg(long, default_value_t = 100, value_name = "N")]
    max_problems: usize,
}

impl From<Validate> for validate::Options {
    fn from(typed: Validate) -> Self {
        validate::Options { input: typed.input, json: typed.json, max_problems: typed.max_problems }
    }
}

/// Finds sessions in files, sinks, bundles and run directories.
#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// A file or directory (default: stormlog-runs)
    path: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Sessions> for sessions::Options {
    fn from(typed: Sessions) -> Self {
        sessions::Options { path: typed.path, json: typed.json }
    }
}
