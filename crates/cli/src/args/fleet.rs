//! What can be typed after `fleet`.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::fleet::Options;

/// Summarize a fleet: jobs by peak, outlier ranks, deaths by cause
///
/// Lists jobs by peak and unused memory, ranks and machines unlike the others, missing ranks, restarts,
/// deaths by cause and by signature, and the peak of a job by version. docs/fleet.md explains every rule.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// A lake that `stormlog publish` wrote, or directories of runs
    #[arg(required = true, value_name = "LAKE|DIR")]
    paths: Vec<PathBuf>,
    /// Only this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only recordings since a day, a time or an age (2026-11-01, 12h, 7d)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as one page to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Overwrite OUT if it exists
    #[arg(short, long, requires = "html")]
    force: bool,
    /// Number of reader threads (default: one per core)
    #[arg(long, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
}

impl From<Fleet> for Options {
    fn from(typed: Fleet) -> Self {
        Options {
            paths: typed.paths,
            job: typed.job,
            since: typed.since,
            json: typed.json,
            html: typed.html,
            force: typed.force,
            threads: typed.threads.map_or(0, std::num::NonZeroUsize::get),
        }
    }
}
