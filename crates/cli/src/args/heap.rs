//! What can be typed for the views of a heap capture.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stormlog_heap::GroupBy;
use stormlog_heap_report::{Ask, HeapQuery, parse_time, rows::By};
use stormlog_model::memory::Selection;
use stormlog_torch::SnapshotMoment;

use crate::cmd::heap::{
    CaptureSelection, captures, diff, flamegraph, leaks, parse, sanitize, stats, summary, table, transform,
    tree,
};

// Which memory of the program.
#[derive(Debug, Args)]
pub(crate) struct OfMemory {
    /// host, a GPU such as cuda:0, its driver's view such as cuda:0/driver, or all
    #[arg(long, value_name = "MEMORY")]
    memory: Option<Selection>,
}

// The capture, and the part of its memory to show.
#[derive(Debug, Args)]
pub(crate) struct View {
    /// A capture, or the directory of a session or run
    capture: PathBuf,
    /// Process to read if a run has several captures (default: the main process)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    of: OfMemory,
    /// Memory that was live when the heap was largest (the default)
    #[arg(long, group = "question")]
    peak: bool,
    /// Memory that was live when the program's own code finished (before teardown)
    #[arg(long, group = "question")]
    leaks: bool,
    /// Memory freed within N further allocations of its thread (default: 1)
    #[arg(long, group = "question", value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    temporary: Option<u32>,
    /// Memory that was live at this time after the start: 90, 1.5m, 1:30, 250ms
    #[arg(long, group = "question", value_name = "TIME", value_parser = time)]
    at: Option<u64>,
    /// Memory that was live when the program died
    #[arg(long, group = "question")]
    at_death: bool,
    /// Memory allocated between two times and live at the second: 10..90
    #[arg(long, group = "question", value_name = "FROM..TO", value_parser = times)]
    span: Option<(u64, u64)>,
    /// Show the frames of C, C++ and Rust where they were recorded (the default)
    #[arg(long, conflicts_with = "python")]
    native: bool,
    /// Show Python frames only
    #[arg(long)]
    python: bool,
    /// Memray's name for --temporary
    #[arg(long, hide = true, group = "question")]
    temporary_allocations: bool,
    /// Memray's name for --temporary
    #[arg(long, hide = true, group = "question", value_name = "N")]
    temporary_allocation_threshold: Option<u32>,
}

impl From<View> for CaptureSelection {
    fn from(typed: View) -> Self {
        let temporary = typed
            .temporary
            .or(typed.temporary_allocation_threshold)
            .or(typed.temporary_allocations.then_some(1));
        let query = match (temporary, typed.at, typed.span) {
            (Some(threshold), ..) => HeapQuery::Temporary(threshold),
            (_, Some(time), _) => HeapQuery::At(time),
            (.., Some((from, to))) => HeapQuery::Span(from, to),
            _ if typed.leaks => HeapQuery::Leaks,
            _ if typed.at_death => HeapQuery::AtDeath,
            _ => HeapQuery::Peak,
        };
        let ask = Ask { query, memory: typed.of.memory };
        CaptureSelection { capture: typed.capture, pid: typed.pid, ask, python_only: typed.python }
    }
}

fn time(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| "expected a time such as 90, 1.5m, 1:30 or 250ms".to_owned())
}

fn times(text: &str) -> Result<(u64, u64), String> {
    let wrong = || "expected two times such as 10..90, the first before the second".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (time(from)?, time(to)?);
    if from < to { Ok((from, to)) } else { Err(wrong()) }
}

// Where a view that is a file goes.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// The file to write; `-` is standard output (default: next to the capture)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, short)]
    force: bool,
}

impl From<Output> for crate::cmd::heap::Output {
    fn from(typed: Output) -> Self {
        crate::cmd::heap::Output { path: typed.output, force: typed.force }
    }
}

/// Write a heap capture as a flame graph, or as a file for another tool
///
/// The page is one file that opens in any browser without a network: zoom, search, invert, threads, and a
/// plot of memory over time to select a span on.
#[derive(Debug, Args)]
pub(crate) struct Flamegraph {
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    output: Output,
    /// html, or a file for another tool
    #[arg(long, value_enum, default_value_t = Shape::Html, value_name = "FORMAT")]
    format: Shape,
    /// Print the stacks as JSON; short for `--format json --output -`
    #[arg(long, conflicts_with_all = ["format", "output"])]
    json: bool,
    /// Start inverted, innermost frames at the root
    #[arg(long)]
    inverted: bool,
    /// Draw each thread as a separate graph below the root
    #[arg(long)]
    split_threads: bool,
    /// Allow selecting a span on the plot even for a long recording
    #[arg(long, conflicts_with = "no_temporal")]
    temporal: bool,
    /// Leave out spans: faster, and a smaller file
    #[arg(long)]
    no_temporal: bool,
    /// Number of points of the plot of memory over time
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=10_000))]
    max_memory_records: u16,
    /// Leave source lines out of the page
    #[arg(long)]
    no_source: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    Html,
    Svg,
    Speedscope,
    Collapsed,
    Pprof,
    Firefox,
    Json,
}

impl From<Flamegraph> for flamegraph::Options {
    fn from(typed: Flamegraph) -> Self {
        use crate::cmd::heap::export::Format;
        let mut output: crate::cmd::heap::Output = typed.output.into();
        let shape = if typed.json { Shape::Json } else { typed.format };
        if typed.json {
            output.path = Some("-".into());
        }
        let format = match shape {
            Shape::Html => None,
            Shape::Svg => Some(Format::Svg),
            Shape::Speedscope => Some(Format::Speedscope),
            Shape::Collapsed => Some(Format::Collapsed),
            Shape::Pprof => Some(Format::Pprof),
            Shape::Firefox => Some(Format::Firefox),
            Shape::Json => Some(Format::Json),
        };
        flamegraph::Options {
            selection: typed.view.into(),
            output,
            format,
            inverted: typed.inverted,
            split_threads: typed.split_threads,
            temporal: match (typed.temporal, typed.no_temporal) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            points: typed.max_memory_records.into(),
            source: !typed.no_source,
        }
    }
}

/// Print a heap capture as a tree of stacks, the largest first
///
/// Callers are above the functions they call.
#[derive(Debug, Args)]
pub(crate) struct Tree {
    #[command(flatten)]
    view: View,
    /// Number of the largest stacks to print
    #[arg(long, short, default_value_t = 200, value_name = "N")]
    biggest_allocs: usize,
    /// Machine-readable output: every stack
    #[arg(long)]
    json: bool,
}

impl From<Tree> for tree::Options {
    fn from(typed: Tree) -> Self {
        tree::Options { selection: typed.view.into(), biggest: typed.biggest_allocs, json: typed.json }
    }
}

/// Write a heap capture line by line: own, total, allocations
///
/// Prints one row for each line of code.
#[derive(Debug, Args)]
pub(crate) struct Table {
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    output: Output,
    /// Write a page that sorts and filters
    #[arg(long)]
    html: bool,
    /// Machine-readable output: every row
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// One row per line, function, or whole stack
    #[arg(long, value_enum, default_value_t = Unit::Line)]
    by: Unit,
    /// Column to sort by
    #[arg(long, value_enum, default_value_t = Sort::Own)]
    sort: Sort,
    /// Only rows with this in their function or file
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Number of rows to print; 0 prints all
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    top: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    Line,
    Function,
    Stack,
}

impl From<Unit> for By {
    fn from(typed: Unit) -> Self {
        match typed {
            Unit::Line => By::Line,
            Unit::Function => By::Function,
            Unit::Stack => By::Stack,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Own,
    Total,
    Count,
    Function,
    File,
}

impl From<Sort> for table::Sort {
    fn from(typed: Sort) -> Self {
        match typed {
            Sort::Own => table::Sort::Own,
            Sort::Total => table::Sort::Total,
            Sort::Count => table::Sort::Count,
            Sort::Function => table::Sort::Function,
            Sort::File => table::Sort::File,
        }
    }
}

impl From<Table> for table::Options {
    fn from(typed: Table) -> Self {
        table::Options {
            selection: typed.view.into(),
            output: typed.output.into(),
            html: typed.html,
            json: typed.json,
            by: typed.by.into(),
            sort: typed.sort.into(),
            filter: typed.filter,
            top: if typed.top == 0 { usize::MAX } else { typed.top },
        }
    }
}

/// Print what was not freed in a heap capture, growing lines first
///
/// Lists what was allocated in a span (default: the whole run) and was still live at its end.
#[derive(Debug, Args)]
pub(crate) struct Leaks {
    /// A capture, or the directory of a session or run
    capture: PathBuf,
    /// Process to read if a run has several captures (default: the main process)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    of: OfMemory,
    /// Start of the span: 90, 1.5m, 1:30
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,
    /// End of the span
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Number of places to list
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    top: usize,
}

impl From<Leaks> for leaks::Options {
    fn from(typed: Leaks) -> Self {
        leaks::Options {
            capture: typed.capture,
            pid: typed.pid,
            memory: typed.of.memory,
            from: typed.from.unwrap_or(0),
            to: typed.to,
            json: typed.json,
            top: typed.top,
        }
    }
}

/// Compare what two heap captures or snapshots held
///
/// Prints bytes and allocations gained and lost from A to B. Code that only moved to other lines counts as
/// the same code.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Before: a capture, the directory of a session or run, or an allocator snapshot
    a: PathBuf,
    /// After
    b: PathBuf,
    #[command(flatten)]
    of: OfMemory,
    /// Compare lines, functions, or whole stacks
    #[arg(long, value_enum, default_value_t = Unit::Line)]
    by: Unit,
    /// Moment to compare: the peak, the end, an event or a marked span
    ///
    /// Allocator snapshots can also be compared after N events, or where a span that the program marked ends
    /// (NAME: the last one, NAME@3: the third) or starts (start:NAME).
    #[arg(long, default_value = "peak", value_name = "peak|end|N|NAME")]
    at: SnapshotMoment,
    /// Machine-readable output: every difference
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a flame graph of the difference, red for more and blue for less
    #[arg(long)]
    html: bool,
    #[command(flatten)]
    output: Output,
    /// Number of differences to print
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    top: usize,
}

impl From<Diff> for diff::Options {
    fn from(typed: Diff) -> Self {
        diff::Options {
            a: typed.a,
            b: typed.b,
            memory: typed.of.memory,
            by: typed.by.into(),
            at: typed.at,
            json: typed.json,
            html: typed.html,
            output: typed.output.into(),
            top: typed.top,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Transform {
    /// The other tool's format
    #[arg(value_enum)]
    format: Target,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    Gprof2dot,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
    Speedscope,
    Collapsed,
    Pprof,
    Firefox,
    Svg,
    Json,
}

impl From<Transform> for transform::Options {
    fn from(typed: Transform) -> Self {
        use crate::cmd::heap::export::Format;
        let format = match typed.format {
            Target::Gprof2dot => Format::Gprof2dot,
            Target::Csv => Format::Csv,
            #[cfg(feature = "parquet")]
            Target::Parquet => Format::Parquet,
            Target::Speedscope => Format::Speedscope,
            Target::Collapsed => Format::Collapsed,
            Target::Pprof => Format::Pprof,
            Target::Firefox => Format::Firefox,
            Target::Svg => Format::Svg,
            Target::Json => Format::Json,
        };
        transform::Options { selection: typed.view.into(), output: typed.output.into(), format }
    }
}

/// Find device memory that a program never frees (needs compute-sanitizer)
///
/// Runs the program under `compute-sanitizer --tool memcheck --leak-check full` and lists the device memory
/// it never freed, by the line that allocated it. Exits with the program's exit code.
#[derive(Debug, Args)]
pub(crate) struct Sanitize {
    /// Report to write; every view of a heap capture opens it
    #[arg(short, long, default_value = "sanitizer.txt", value_name = "FILE")]
    output: PathBuf,
    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

impl From<Sanitize> for sanitize::Options {
    fn from(typed: Sanitize) -> Self {
        sanitize::Options { output: typed.output, command: typed.command }
    }
}

/// Print statistics of a heap capture: totals, peak, largest allocators
///
/// Reads captures of `stormlog run --heap` and of Memray, also while they are written, and profiles of pprof,
/// heaptrack, massif, jemalloc, gperftools, PyTorch's profiler, heapprofd and compute-sanitizer.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// A capture, or the directory of a session or run
    capture: PathBuf,
    /// Process to read if a run has several captures (default: the main process)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    of: OfMemory,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// One row per responsible line, allocating line, module, or function
    #[arg(long, value_enum, default_value_t = Group::Line)]
    by: Group,
    /// Number of places to list
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    top: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    Line,
    OwnLine,
    Module,
    Function,
}

impl From<Group> for GroupBy {
    fn from(typed: Group) -> Self {
        match typed {
            Group::Line => GroupBy::Line,
            Group::OwnLine => GroupBy::OwnLine,
            Group::Module => GroupBy::Module,
            Group::Function => GroupBy::Function,
        }
    }
}

impl From<Stats> for stats::Options {
    fn from(typed: Stats) -> Self {
        stats::Options {
            capture: typed.capture,
            pid: typed.pid,
            memory: typed.of.memory,
            json: typed.json,
            by: typed.by.into(),
            top: typed.top,
        }
    }
}

/// List the heap captures of a run: process, program, peak, size
///
/// Prints one line for each recorded process and program, the main one first.
#[derive(Debug, Args)]
pub(crate) struct Captures {
    /// The directory of a run, a session, or several runs
    run: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Captures> for captures::Options {
    fn from(typed: Captures) -> Self {
        captures::Options { run: typed.run, json: typed.json }
    }
}

/// Print which functions held the memory at the peak
///
/// Own is what a function allocated itself; total includes everything it called.
#[derive(Debug, Args)]
pub(crate) struct Summary {
    #[command(flatten)]
    view: View,
    /// Machine-readable output: every function
    #[arg(long)]
    json: bool,
    /// Column to sort by
    #[arg(long, value_enum, default_value_t = Sort::Own)]
    sort: Sort,
    /// Number of functions to list; 0 lists all
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    top: usize,
}

impl From<Summary> for summary::Options {
    fn from(typed: Summary) -> Self {
        summary::Options {
            selection: typed.view.into(),
            json: typed.json,
            sort: typed.sort.into(),
            top: if typed.top == 0 { usize::MAX } else { typed.top },
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Parse {
    /// A capture, or the directory of a session or run
    capture: PathBuf,
    /// Process to read if a run has several captures (default: the main process)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print each record as one line of JSON
    #[arg(long)]
    json: bool,
}

impl From<Parse> for parse::Options {
    fn from(typed: Parse) -> Self {
        parse::Options { capture: typed.capture, pid: typed.pid, json: typed.json }
    }
}
