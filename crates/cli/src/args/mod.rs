//! What can be typed, a folder a domain. Each struct turns into the plain options of its command; nothing behind knows clap.
//!
//! The help of a command is the comment of its struct: the first paragraph is its line in the list, the rest is shown by `--help`.

pub(crate) mod crash;
pub(crate) mod fleet;
pub(crate) mod groups;
pub(crate) mod heap;
#[cfg(feature = "parquet")]
pub(crate) mod lake;
pub(crate) mod machine;
pub(crate) mod monitoring;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod telemetry;

use clap::{Parser, Subcommand};

use record::{attach, live, run, runs, ship, top, trigger, watch};
use telemetry::{analyze, files, query};

/// Memory profiler and flight recorder for machine-learning programs
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Tui(screen::Tui),
    Run(run::Run),
    /// List the runs of a directory, or remove old ones
    Runs(runs::Runs),
    Ship(ship::Ship),
    Fetch(ship::Fetch),
    Attach(attach::Attach),
    /// End a recording that `attach` began
    Detach(attach::Detach),
    Trigger(trigger::Trigger),
    Oom(crash::Oom),
    Why(crash::Why),
    Analyze(Box<analyze::Analyze>),
    Report(report::Report),
    Fleet(fleet::Fleet),
    Serve(serve::Serve),
    Diagnose(Box<analyze::Diagnose>),
    Query(Box<query::Query>),
    Sql(query::Sql),
    /// Publish runs as Parquet tables for DuckDB, Spark, Trino, Polars, ...
    #[cfg(feature = "parquet")]
    Publish(lake::Publish),
    /// Merge the small files of a lake
    #[cfg(feature = "parquet")]
    Compact(lake::Compact),
    /// Print the contents of a lake, or remove old days from it
    #[cfg(feature = "parquet")]
    Lake(lake::Lake),
    Compare(analyze::Compare),
    Check(Box<analyze::Check>),
    Convert(files::Convert),
    Validate(files::Validate),
    Sessions(files::Sessions),
    Snapshot(snapshot::Snapshot),
    Replay(snapshot::Replay),
    Timeline(snapshot::Timeline),
    Stats(heap::Stats),
    Captures(heap::Captures),
    Summary(Box<heap::Summary>),
    Live(live::Live),
    Top(top::Top),
    Flamegraph(Box<heap::Flamegraph>),
    Tree(Box<heap::Tree>),
    Table(Box<heap::Table>),
    Leaks(heap::Leaks),
    Diff(heap::Diff),
    /// Convert a heap capture to gprof2dot, csv, parquet, speedscope, ...
    Transform(Box<heap::Transform>),
    Sanitize(heap::Sanitize),
    /// Print every record of a heap capture as a line of text
    Parse(heap::Parse),
    Info(watch::Info),
    Monitor(watch::Monitor),
    Track(Box<watch::Track>),
    Rules(monitoring::Rules),
    Dashboard(monitoring::Dashboard),
    /// Complete the heap captures of a run whose program has ended (used by `run`)
    #[command(hide = true)]
    FinishCaptures(run::FinishCaptures),
    /// Answer requests for processes that cannot answer themselves (used by `run`)
    #[command(hide = true)]
    AnswerRequests(run::AnswerRequests),
    /// Ship a run until its end (used by `run`)
    #[command(hide = true)]
    ShipRun(run::ShipRun),
    /// Deliver alerts read from standard input (used by `run`)
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
