//! What can be typed after `tfmemprof info`, `monitor` and `track`, where it differs from the other names.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::args::record::watch::{Exports, Identity, SinkFlags, Whom};
use crate::cmd::machine::info;
use crate::cmd::record::tensorflow;

/// A command of `tfmemprof` that differs.
pub(crate) enum TfCommand {
    Info(info::Options),
    Watch(Box<tensorflow::Options>),
}

/// Replaces the commands that differ.
pub(crate) fn adapt(command: Command) -> Command {
    let about = |command: &Command, name: &str| {
        command.find_subcommand(name).and_then(Command::get_about).cloned().unwrap_or_default()
    };
    let (info, monitor, track) =
        (about(&command, "info"), about(&command, "monitor"), about(&command, "track"));
    command
        .arg(clap::arg!(-v --verbose "Say more"))
        .mut_subcommand("info", |_| TfInfo::augment_args(Command::new("info")).about(info))
        .mut_subcommand("monitor", |_| TfMonitor::augment_args(Command::new("monitor")).about(monitor))
        .mut_subcommand("track", |_| TfTrack::augment_args(Command::new("track")).about(track))
}

/// The command typed, if it is one of them.
pub(crate) fn read(matches: &ArgMatches) -> Option<Result<TfCommand, clap::Error>> {
    let (name, matches) = matches.subcommand()?;
    match name {
        "info" => Some(TfInfo::from_arg_matches(matches).map(|typed| {
            let options = info::Options { device: None, detailed: false, json: typed.json, tensorflow: true };
            TfCommand::Info(options)
        })),
        "monitor" => {
            Some(TfMonitor::from_arg_matches(matches).map(|typed| TfCommand::Watch(Box::new(typed.into()))))
        }
        "track" => {
            Some(TfTrack::from_arg_matches(matches).map(|typed| TfCommand::Watch(Box::new(typed.into()))))
        }
        _ => None,
    }
}

#[derive(Debug, Args)]
struct TfInfo {
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TfMonitor {
    #[command(flatten)]
    whom: Whom,
    /// Seconds between two samples
    #[arg(long, default_value = "1.0", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Seconds to monitor; without it until Ctrl-C
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Warn above this many megabytes
    #[arg(long, value_name = "MB")]
    threshold: Option<f64>,
    /// The device: /GPU:N, or /CPU:0
    #[arg(long, default_value = "/GPU:0")]
    device: String,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl From<TfMonitor> for tensorflow::Options {
    fn from(typed: TfMonitor) -> Self {
        tensorflow::Options {
            is_tracking: false,
            pid: typed.whom.pid,
            device: typed.device,
            interval: typed.interval,
            duration: typed.duration,
            threshold_mb: typed.threshold,
            output: typed.output,
            identity: Default::default(),
            sink: None,
            export: None,
            json: typed.whom.json,
        }
    }
}

#[derive(Debug, Args)]
struct TfTrack {
    #[command(flatten)]
    whom: Whom,
    /// Seconds between two samples
    #[arg(long, default_value = "1.0", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Seconds to track; without it until Ctrl-C
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Warn above this many megabytes
    #[arg(long, default_value = "4000", value_name = "MB")]
    threshold: f64,
    /// The device: /GPU:N, or /CPU:0
    #[arg(long, default_value = "/GPU:0")]
    device: String,
    #[command(flatten)]
    identity: Identity,
    /// Write the results to this file
    #[arg(long, value_name = "FILE", required = true)]
    output: PathBuf,
    #[command(flatten)]
    sink: SinkFlags,
    #[command(flatten)]
    exports: Exports,
}

impl From<TfTrack> for tensorflow::Options {
    fn from(typed: TfTrack) -> Self {
        tensorflow::Options {
            is_tracking: true,
            pid: typed.whom.pid,
            device: typed.device,
            interval: typed.interval,
            duration: typed.duration,
            threshold_mb: Some(typed.threshold),
            output: Some(typed.output),
            identity: typed.identity.values(),
            sink: typed.sink.config(),
            export: typed.exports.asked(),
            json: typed.whom.json,
        }
    }
}
