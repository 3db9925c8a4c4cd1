//! What can be typed after `convert`, `validate` and `sessions`.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::telemetry::{convert, sessions, validate};

/// Convert telemetry between formats and schema versions
///
/// Reads JSON, JSONL, CSV, Parquet, sink directories, OOM and diagnose bundles, rings and logs; writes JSON,
/// JSONL, CSV or Parquet by the extension of OUT. Traces over time, heap captures included, are written for
/// Perfetto (.pftrace), Chrome (.trace.json) and TensorBoard (a name with tfevents).
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// A file, or a directory such as a sink, a bundle or a run
    input: PathBuf,
    /// The file to write; `-` is standard output (then --to is needed)
    output: PathBuf,
    /// Schema version to write
    #[arg(long, value_parser = ["2", "3", "4"], default_value = "4", value_name = "VERSION")]
    schema: String,
    /// Output format, if the file name does not imply it
    ///
    /// One of json, jsonl, csv, parquet, perfetto, chrome, tensorboard.
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Write 0 for unknown counters that schemas 2 and 3 require, and count them
    #[arg(long)]
    unknown_as_zero: bool,
    /// Prefix an apostrophe to CSV cells that a spreadsheet would run as a formula
    #[arg(long)]
    safe_csv: bool,
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
            unknown_as_zero: typed.unknown_as_zero,
            safe_csv: typed.safe_csv,
            lenient: typed.lenient,
            json: typed.json,
        }
    }
}

/// Check telemetry and report every problem with file, line and field
///
/// Records with a schema are checked against it; of the others only that they can be
/// understood.
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

/// List the sessions at a path: state, identity, span, events
///
/// Finds sessions in files, sinks, bundles and run directories.
#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// A file or directory (default: stormlog-runs)
    path: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Sessions> for sessions::Options {
    fn from(typed: Sessions) -> Self {
        sessions::Options { path: typed.path, json: typed.json }
    }
}
