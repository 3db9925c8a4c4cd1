//! What can be typed after `oom`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cmd::crash::oom;

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
