//! What can be typed for the ranks of a job and the runs of a machine.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::record::top;

/// Show the ranks of a job and the runs of a machine, nearest to its limit first
///
/// Lists what is nearest to its limit first, then what grows. Reads run directories only; the programs are
/// not affected. `?` lists the keys, `q` quits.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Directories of runs, or runs (default: $STORMLOG_DIR or stormlog-runs)
    #[arg(value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// Print one screen as plain text (the default without a terminal)
    #[arg(long)]
    once: bool,
    /// Print one screen as JSON
    #[arg(long)]
    json: bool,
}

impl From<Top> for top::Options {
    fn from(typed: Top) -> Self {
        let Top { paths, once, json } = typed;
        top::Options { paths, once, json }
    }
}
