//! What can be typed after `report`.

use std::path::PathBuf;

use clap::Args;

use super::heap;
use crate::cmd::report::Options;

/// Write everything about a run as one page: answer, lanes, flame graph, findings
///
/// The page opens in any browser without a network: answer, memory over time, what held it at every moment,
/// findings, processes and environment. Press ? on it for its keys.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Runs, sessions, captures, recordings or directories of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Show what changed since this run, as curves and in the flame graph
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Serve the page on 127.0.0.1 instead, for captures too large for a file
    #[arg(long, conflicts_with_all = ["output", "force"])]
    serve: bool,
    #[command(flatten)]
    output: heap::Output,
}

impl From<Report> for Options {
    fn from(typed: Report) -> Self {
        Options {
            paths: typed.paths,
            against: typed.against,
            output: typed.output.into(),
            serve: typed.serve,
        }
    }
}
