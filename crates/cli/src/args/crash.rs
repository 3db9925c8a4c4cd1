//! What can be typed after `oom`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::record::attach::Method;
use crate::cmd::crash::{last, oom, why};

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
        /// Only the answer about the newest death there, for job scripts and `ExecStopPost=`; exit 0 and one sentence where there is none
        ///
        /// Inside a SLURM job or a systemd service a death of another job, or of an earlier start of the service, is named and not shown.
        #[arg(long)]
        last: bool,
        /// The job's output with SLURM's own lines about OOM kills, as evidence
        #[arg(long, value_name = "FILE", requires = "last")]
        log: Option<PathBuf>,
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
            OomCommand::Show { bundle: path, last: true, log, json } => {
                oom::Options::Last(last::Options { path, log, json })
            }
            OomCommand::Show { bundle, json, .. } => oom::Options::Show { bundle, json },
            OomCommand::Export { bundle, output } => oom::Options::Export { bundle, output },
        }
    }
}

/// What keeps the memory of a Python process, from the variable, module or class down. A process that runs is stopped for up to a second to look;
/// of one that has ended, what it reported when memory ran out or when it ended large is shown.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A process, a run, or a directory whose newest run is meant (default: stormlog-runs)
    #[arg(value_name = "PID|RUN")]
    subject: Option<PathBuf>,
    /// Only what this line allocated (e.g. train.py:31)
    #[arg(value_name = "FILE:LINE")]
    line: Option<String>,
    /// How to get into a process that runs
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Why> for why::Options {
    fn from(typed: Why) -> Self {
        why::Options { subject: typed.subject, line: typed.line, door: typed.method.into(), json: typed.json }
    }
}
