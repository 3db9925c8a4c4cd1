//! What can be typed after `info`, `monitor` and `track` of `tfmemprof` and `jaxmemprof`, where it differs from the other names.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::args::record::watch::{Exports, Identity, OomFlags, SinkFlags, TargetArgs};
use crate::cmd::machine::info::{self, Page};
use crate::cmd::record::framework::{self, Framework};
use crate::cmd::record::watch::MAX_EVENTS;

/// A command that differs.
pub(crate) enum FrameworkCommand {
    Info(info::Options),
    Watch(Box<framework::Options>),
}

/// Replaces the commands that differ.
pub(crate) fn adapt(command: Command, framework: Framework) -> Command {
    let command = command.arg(clap::arg!(-v --verbose "Print more detail"));
    let command = replaced::<Info>(command, "info");
    match framework {
        Framework::Tensorflow => replaced::<TfTrack>(replaced::<TfMonitor>(command, "monitor"), "track"),
        Framework::Jax => replaced::<JaxTrack>(replaced::<JaxMonitor>(command, "monitor"), "track"),
    }
}

fn replaced<A: Args>(command: Command, name: &'static str) -> Command {
    let about = command.find_subcommand(name).and_then(Command::get_about).cloned().unwrap_or_default();
    command.mut_subcommand(name, |_| A::augment_args(Command::new(name)).about(about))
}

/// The command typed, if it is one of them.
pub(crate) fn read(
    matches: &ArgMatches,
    framework: Framework,
) -> Option<Result<FrameworkCommand, clap::Error>> {
    let (name, matches) = matches.subcommand()?;
    match (name, framework) {
        ("info", _) => Some(Info::from_arg_matches(matches).map(|typed| {
            let page = Page::Framework(framework);
            FrameworkCommand::Info(info::Options { device: None, detailed: false, json: typed.json, page })
        })),
        ("monitor", Framework::Tensorflow) => Some(watch::<TfMonitor>(matches)),
        ("track", Framework::Tensorflow) => Some(watch::<TfTrack>(matches)),
        ("monitor", Framework::Jax) => Some(watch::<JaxMonitor>(matches)),
        ("track", Framework::Jax) => Some(watch::<JaxTrack>(matches)),
        _ => None,
    }
}

fn watch<A: Args + Into<framework::Options>>(matches: &ArgMatches) -> Result<FrameworkCommand, clap::Error> {
    A::from_arg_matches(matches).map(|typed| FrameworkCommand::Watch(Box::new(typed.into())))
}

#[derive(Debug, Args)]
struct Info {
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

// What every `monitor` here has.
#[derive(Debug, Args)]
struct Monitor {
    #[command(flatten)]
    target: TargetArgs,
    /// Seconds between two samples
    #[arg(long, default_value = "1.0", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Seconds to monitor (default: until Ctrl-C)
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Warn above this many megabytes
    #[arg(long, value_name = "MB")]
    threshold: Option<f64>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    oom: OomFlags,
}

impl Monitor {
    fn options(self, framework: Framework, device: String, max_history: usize) -> framework::Options {
        framework::Options {
            framework,
            is_tracking: false,
            pid: self.target.pid,
            device,
            interval: self.interval,
            duration: self.duration,
            threshold_mb: self.threshold,
            max_history,
            profile: false,
            output: self.output,
            identity: Default::default(),
            oom: self.oom.config(max_history),
            sink: None,
            export: None,
            json: self.target.json,
        }
    }
}

// What every `track` here has.
#[derive(Debug, Args)]
struct Track {
    #[command(flatten)]
    target: TargetArgs,
    /// Seconds between two samples
    #[arg(long, default_value = "1.0", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Seconds to track (default: until Ctrl-C)
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Warn above this many megabytes
    #[arg(long, default_value = "4000", value_name = "MB")]
    threshold: f64,
    #[command(flatten)]
    identity: Identity,
    /// Write the results to this file
    #[arg(long, value_name = "FILE", required = true)]
    output: PathBuf,
    #[command(flatten)]
    oom: OomFlags,
    #[command(flatten)]
    sink: SinkFlags,
    #[command(flatten)]
    exports: Exports,
}

impl Track {
    fn options(self, framework: Framework, device: String, max_history: usize) -> framework::Options {
        framework::Options {
            framework,
            is_tracking: true,
            pid: self.target.pid,
            device,
            interval: self.interval,
            duration: self.duration,
            threshold_mb: Some(self.threshold),
            max_history,
            profile: false,
            output: Some(self.output),
            identity: self.identity.values(),
            oom: self.oom.config(max_history),
            sink: self.sink.config(),
            export: self.exports.asked(),
            json: self.target.json,
        }
    }
}

#[derive(Debug, Args)]
struct TfMonitor {
    /// The device: /GPU:N, or /CPU:0
    #[arg(long, default_value = "/GPU:0")]
    device: String,
    // Last: its headings would apply to the options that follow.
    #[command(flatten)]
    common: Monitor,
}

impl From<TfMonitor> for framework::Options {
    fn from(typed: TfMonitor) -> Self {
        typed.common.options(Framework::Tensorflow, typed.device, MAX_EVENTS)
    }
}

#[derive(Debug, Args)]
struct TfTrack {
    /// The device: /GPU:N, or /CPU:0
    #[arg(long, default_value = "/GPU:0")]
    device: String,
    // Last: its headings would apply to the options that follow.
    #[command(flatten)]
    common: Track,
}

impl From<TfTrack> for framework::Options {
    fn from(typed: TfTrack) -> Self {
        typed.common.options(Framework::Tensorflow, typed.device, MAX_EVENTS)
    }
}

// What only `jaxmemprof` has.
#[derive(Debug, Args)]
struct Jax {
    /// The device: a number, gpu or cpu
    #[arg(long, default_value = "0", allow_hyphen_values = true)]
    device: String,
    /// Samples and events that are kept in memory
    #[arg(long, default_value_t = MAX_EVENTS as u64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_HISTORY))]
    max_history: u64,
}

/// Bounds the memory that the history takes.
const MOST_HISTORY: u64 = 10_000_000;

#[derive(Debug, Args)]
struct JaxMonitor {
    #[command(flatten)]
    own: Jax,
    #[command(flatten)]
    common: Monitor,
}

impl From<JaxMonitor> for framework::Options {
    fn from(typed: JaxMonitor) -> Self {
        let Jax { device, max_history } = typed.own;
        typed.common.options(Framework::Jax, device, max_history as usize)
    }
}

#[derive(Debug, Args)]
struct JaxTrack {
    #[command(flatten)]
    own: Jax,
    /// Take a memory profile of the process of --pid at the end
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    common: Track,
}

impl From<JaxTrack> for framework::Options {
    fn from(typed: JaxTrack) -> Self {
        let Jax { device, max_history } = typed.own;
        let options = typed.common.options(Framework::Jax, device, max_history as usize);
        framework::Options { profile: typed.profile, ..options }
    }
}
