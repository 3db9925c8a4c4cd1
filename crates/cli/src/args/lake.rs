//! What can be typed after `publish`, `compact` and `lake`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cmd::lake;

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// Run directories, directories of them, or recordings without a run
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// The lake: a local or mounted directory; created if missing
    #[arg(long, value_name = "LAKE")]
    to: PathBuf,
    /// Write a Delta log beside the files; later publications continue it
    #[arg(long)]
    delta: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Publish> for lake::Options {
    fn from(Publish { paths, to, delta, json }: Publish) -> Self {
        lake::Options { lake: to, action: lake::Action::Publish { paths, is_delta: delta }, json }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The lake
    lake: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Compact> for lake::Options {
    fn from(Compact { lake, json }: Compact) -> Self {
        lake::Options { lake, action: lake::Action::Compact, json }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Lake {
    #[command(subcommand)]
    command: LakeCommand,
}

#[derive(Debug, Subcommand)]
enum LakeCommand {
    /// Print the tables of a lake: files, rows, jobs, days, size
    Info {
        /// The lake
        lake: PathBuf,
        /// Machine-readable output, with the columns of each table
        #[arg(long)]
        json: bool,
        /// With --json: the files of each table as they are visible now
        #[arg(long, requires = "json")]
        files: bool,
    },
    /// Remove old days from a lake; they are not published again
    Expire {
        /// The lake
        lake: PathBuf,
        /// Age of the days that are removed: 30d, 12w
        #[arg(long, value_name = "AGE", value_parser = days)]
        older_than: u32,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
}

impl From<Lake> for lake::Options {
    fn from(typed: Lake) -> Self {
        match typed.command {
            LakeCommand::Info { lake, json, files } => {
                lake::Options { lake, action: lake::Action::Info { lists_files: files }, json }
            }
            LakeCommand::Expire { lake, older_than, json } => {
                lake::Options { lake, action: lake::Action::Expire { days: older_than }, json }
            }
        }
    }
}

/// `30d` or `12w`, as days.
fn days(text: &str) -> Result<u32, String> {
    let wrong = || "expected a number of days or weeks such as 30d or 12w".to_owned();
    let (number, unit) = match text.strip_suffix('w') {
        Some(number) => (number, 7),
        None => (text.strip_suffix('d').unwrap_or(text), 1),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|days| *days > 0).ok_or_else(wrong)
}
