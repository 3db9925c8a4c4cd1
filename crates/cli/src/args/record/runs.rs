//! What can be typed after `runs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::keep::Kept;
use crate::cmd::record::retention;

#[derive(Debug, Args)]
pub(crate) struct Runs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List the runs of a directory with state, age and size, oldest first
    List {
        /// A directory of runs (default: stormlog-runs)
        path: Option<PathBuf>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// Remove old runs of this user that have ended
    Prune {
        /// A directory of runs (default: stormlog-runs)
        path: Option<PathBuf>,
        #[command(flatten)]
        kept: Kept,
        /// List what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
        /// Machine-readable output: the runs that were removed
        #[arg(long)]
        json: bool,
    },
}

impl From<Runs> for retention::Options {
    fn from(typed: Runs) -> Self {
        match typed.command {
            RunsCommand::List { path, json } => retention::Options::List { path, json },
            RunsCommand::Prune { path, kept, dry_run, json } => {
                retention::Options::Prune { path, keep: kept.into(), is_dry: dry_run, json }
            }
        }
    }
}
