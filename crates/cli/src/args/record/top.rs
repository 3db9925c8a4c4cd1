//! What can be typed for the ranks of a job and the runs of a machine.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::record::top;

/// Shows the ranks of a job and the runs of a machine while they are recorded: what is nearest to its limit first, then what grows. Reads run
/// directories like any other reader; the programs do not notice. `?` lists the keys, `q` leaves.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Directories of runs, or runs (default: $STORMLOG_DIR or stormlog-runs)
    #[arg(value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// Print one look as plain text; so it is done where there is no terminal
    #[arg(long)]
    once: bool,
    /// Print one look as JSON
    #[arg(long)]
    json: bool,
}

impl From<Top> for top::Options {
    fn from(typed: Top) -> Self {
        let Top { paths, once, json } = typed;
        top::Options { paths, once, json }
    }
}
