//! What can be typed after `oom`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::record::attach::Method;
use crate::cmd::crash::{last, oom, why};

/// List, show and export the bundles that programs left when they died
///
/// Works on bundles of any origin: Stormlog's own, those of 0.4.3, and older ones.
#[derive(Debug, Args)]
pub(crate) struct Oom {
    #[command(subcommand)]
    command: OomCommand,
}

#[derive(Debug, Subcommand)]
enum OomCommand {
    /// List the bundles at a path, newest first
    List {
        /// A bundle, a run, or any directory (default: stormlog-runs)
        path: Option<PathBuf>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// Print one page: what ended it, its last memory and events, what to try
    Show {
        /// Bundle, or directory to take the newest one from (default: stormlog-runs)
        bundle: Option<PathBuf>,
        /// Print only the summary of the most recent crash (for job scripts)
        ///
        /// Made for job scripts and `ExecStopPost=`: exits 0 and prints one sentence if there is no death.
        /// Inside a SLURM job or a systemd service, a death of another job or of an earlier start of the
        /// service is only mentioned, not printed.
        #[arg(long)]
        last: bool,
        /// The job's output with SLURM's own lines about OOM kills, as evidence
        #[arg(long, value_name = "FILE", requires = "last")]
        log: Option<PathBuf>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// Explain an allocator failure found in a log (TensorFlow, JAX)
    ///
    /// Reads the dump of the BFC allocator out of any text: a job's output, a notebook's, a saved exception.
    /// Prints the request, what was free, and whether it was too large or memory was fragmented. Exits 5 if
    /// the log has no dump. The dump with bins and chunks is in the log only with TF_CPP_MIN_LOG_LEVEL=0.
    Explain {
        /// The log
        log: PathBuf,
        /// Machine-readable output: every failure with its bins, chunks and counters
        #[arg(long)]
        json: bool,
    },
    /// Write a bundle as one JSON file, or its events as .jsonl, .csv or .parquet
    Export {
        /// Bundle, or directory to take the newest one from
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
            OomCommand::Explain { log, json } => oom::Options::Explain { log, json },
            OomCommand::Export { bundle, output } => oom::Options::Export { bundle, output },
        }
    }
}

/// Explain what keeps memory alive in a process: variable, cache, closure, cycle
///
/// Names the variable, module or class that keeps memory alive. A running process is stopped for up to a
/// second. For a process that has ended, prints what it reported when memory ran out or when it exited with a large heap.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Process, run, or directory to take the newest run from (default: stormlog-runs)
    #[arg(value_name = "PID|RUN")]
    subject: Option<PathBuf>,
    /// Only memory allocated by this line (e.g. train.py:31)
    #[arg(value_name = "FILE:LINE")]
    line: Option<String>,
    /// Method to attach to a running process
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Why> for why::Options {
    fn from(typed: Why) -> Self {
        why::Options {
            subject: typed.subject,
            line: typed.line,
            method: typed.method.into(),
            json: typed.json,
        }
    }
}
