//! What can be typed. Each struct turns into the plain options of its command; nothing behind knows clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::cmd::{convert, limited, oom, run, sessions, validate};

/// Memory profiler and flight recorder for machine-learning programs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and keep the evidence of how it ends
    Run(Run),
    /// List, show and export the bundles programs left when they died
    Oom(Oom),
    /// Convert telemetry of any age and format
    Convert(Convert),
    /// Check telemetry and report every problem with file, line and field
    Validate(Validate),
    /// List the sessions at a path: state, identity, span, events
    Sessions(Sessions),
    /// Run a program under a limit of its address space (used by `run --limit`)
    #[command(hide = true)]
    Limited(Limited),
}

/// Runs the program unchanged, its children included, and watches the memory of each from outside. Streams, signals and
/// exit status are the program's own; what was recorded lies in one directory a run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_parser = interval, value_name = "SECONDS")]
    interval: Duration,
    /// Where run directories are made
    #[arg(long, env = "STORMLOG_DIR", default_value = "stormlog-runs", value_name = "DIR")]
    dir: PathBuf,
    /// Say nothing at the end
    #[arg(long, short)]
    quiet: bool,
    /// Limit the program's address space, so that it gets a MemoryError it can report (e.g. 16GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    limit: Option<u64>,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Do not ask Python programs for the exception they die of
    #[arg(long)]
    no_exceptions: bool,
    /// The program and its arguments; a .py file is run with Python
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl From<Run> for run::Options {
    fn from(typed: Run) -> Self {
        run::Options {
            command: typed.command,
            interval: typed.interval,
            root: typed.dir,
            quiet: typed.quiet,
            limit: typed.limit,
            json: typed.json,
            report_exceptions: !typed.no_exceptions,
        }
    }
}

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
        /// A bundle, a run, or any directory
        path: PathBuf,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// One page: what ended it, its memory at the end, the last events, what to try
    Show {
        /// A bundle, or a directory whose newest bundle is meant
        bundle: PathBuf,
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

#[derive(Debug, Args)]
pub(crate) struct Limited {
    #[arg(value_parser = size)]
    bytes: u64,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl From<Limited> for limited::Options {
    fn from(typed: Limited) -> Self {
        limited::Options { bytes: typed.bytes, command: typed.command }
    }
}

fn size(text: &str) -> Result<u64, String> {
    match stormlog_event::parse_bytes(text) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("expected a size such as 512MiB or 16GiB".to_owned()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.001 and 3600".to_owned()),
    }
}

/// Reads JSON, JSONL, CSV, Parquet, sink directories, OOM and diagnose bundles, rings and logs; writes JSON, JSONL,
/// CSV or Parquet by the extension of OUT.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// A file, or a directory such as a sink, a bundle or a run
    input: PathBuf,
    /// The file to write; `-` is standard output (then --to is needed)
    output: PathBuf,
    /// Schema version to write
    #[arg(long, value_parser = ["2", "3", "4"], default_value = "4", value_name = "VERSION")]
    schema: String,
    /// Output format, when the extension does not say: json, jsonl, csv or parquet
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Keep the good records of a damaged input and count what was dropped
    #[arg(long)]
    lenient: bool,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
}

impl From<Convert> for convert::Options {
    fn from(typed: Convert) -> Self {
        convert::Options {
            input: typed.input,
            output: typed.output,
            schema: typed.schema.parse().unwrap_or(4),
            to: typed.to,
            session_id: typed.session_id,
            lenient: typed.lenient,
            json: typed.json,
        }
    }
}

/// Judges records by the letter of their schema; records without a schema by whether they can be understood.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// A file or directory
    input: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Stop listing after this many problems (they are still counted); 0 lists all
    #[arg(long, default_value_t = 100, value_name = "N")]
    max_problems: usize,
}

impl From<Validate> for validate::Options {
    fn from(typed: Validate) -> Self {
        validate::Options { input: typed.input, json: typed.json, max_problems: typed.max_problems }
    }
}

/// Finds sessions in files, sinks, bundles and run directories.
#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// A file or directory
    path: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Sessions> for sessions::Options {
    fn from(typed: Sessions) -> Self {
        sessions::Options { path: typed.path, json: typed.json }
    }
}
