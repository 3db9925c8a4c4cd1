//! What can be typed. Each struct turns into the plain options of its command; nothing behind knows clap.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cmd::{convert, sessions, validate};

/// Memory profiler and flight recorder for machine-learning programs.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Convert telemetry of any age and format
    Convert(Convert),
    /// Check telemetry and report every problem with file, line and field
    Validate(Validate),
    /// List the sessions at a path: state, identity, span, events
    Sessions(Sessions),
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
