//! What can be typed after `info`, `monitor` and `track`: the flags of 0.4.3, and `--pid` and `--json`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::Value;
use stormlog_record::bundle::Retention;
use stormlog_store::Format;
use stormlog_store::sink::SinkConfig;

use crate::cmd::{info, monitor, track};

/// Shows the host, the limits that hold here, memory pressure, and every GPU; what cannot be known is "unknown".
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Only this GPU
    #[arg(long, value_name = "DEVICE")]
    device: Option<i64>,
    /// More of each GPU: utilization, temperature, power, processes
    #[arg(long)]
    detailed: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Info> for info::Options {
    fn from(typed: Info) -> Self {
        info::Options { device: typed.device, detailed: typed.detailed, json: typed.json, tensorflow: false }
    }
}

/// What to watch.
#[derive(Debug, Args)]
pub(crate) struct Whom {
    /// Watch this process and its children, and the GPUs beside them
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Machine-readable outcome on standard output, nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileFormat {
    Csv,
    Json,
}

impl From<FileFormat> for Format {
    fn from(typed: FileFormat) -> Self {
        match typed {
            FileFormat::Csv => Format::Csv,
            FileFormat::Json => Format::Json,
        }
    }
}

/// Watches every GPU at once (this command itself where there is none), or the process of --pid. Exit status 5 when there
/// is no such process, 3 when it ended while it was watched.
#[derive(Debug, Args)]
pub(crate) struct Monitor {
    #[command(flatten)]
    whom: Whom,
    /// Only this GPU; -1 is the host alone
    #[arg(long, value_name = "DEVICE", allow_negative_numbers = true)]
    device: Option<i64>,
    /// Seconds to monitor
    #[arg(long, default_value = "10", value_name = "SECONDS", allow_negative_numbers = true)]
    duration: f64,
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Write the events to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The file's format
    #[arg(long, value_enum, default_value = "csv")]
    format: FileFormat,
}

impl From<Monitor> for monitor::Options {
    fn from(typed: Monitor) -> Self {
        monitor::Options {
            pid: typed.whom.pid,
            device: typed.device,
            duration: typed.duration,
            interval: typed.interval,
            output: typed.output,
            format: typed.format.into(),
            json: typed.whom.json,
        }
    }
}

/// Watches every GPU at once (this command itself where there is none), or the process of --pid; warns, and keeps what
/// it saw. Ctrl-C ends it with everything saved. Exit status 5 when there is no such process, 3 when it ended while it
/// was watched.
#[derive(Debug, Args)]
pub(crate) struct Track {
    #[command(flatten)]
    whom: Whom,
    /// Only this GPU; -1 is the host alone
    #[arg(long, value_name = "DEVICE", allow_negative_numbers = true)]
    device: Option<i64>,
    /// Seconds to track; without it until Ctrl-C
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Write the events to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The file's format
    #[arg(long, value_enum, default_value = "csv")]
    format: FileFormat,
    /// Accepted for 0.4.3's sake: only a program itself can clean up its memory
    #[arg(long)]
    watchdog: bool,
    /// Warn from this share of the memory on, in percent
    #[arg(long, default_value = "80", value_name = "PERCENT")]
    warning_threshold: f64,
    /// Critical from this share on, in percent
    #[arg(long, default_value = "95", value_name = "PERCENT")]
    critical_threshold: f64,
    #[command(flatten)]
    identity: Identity,
    /// Write a bundle when the process of --pid is killed
    #[arg(long)]
    oom_flight_recorder: bool,
    /// Where bundles are written
    #[arg(long, default_value = "oom_dumps", value_name = "DIR")]
    oom_dump_dir: PathBuf,
    /// Events in a bundle; without it as many as are kept in memory
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    oom_buffer_size: Option<i64>,
    /// Bundles that may stay; 0 is any number
    #[arg(long, default_value_t = 5, value_name = "N")]
    oom_max_dumps: u64,
    /// Megabytes of bundles that may stay; 0 is any number
    #[arg(long, default_value_t = 256, value_name = "MB")]
    oom_max_total_mb: u64,
    #[command(flatten)]
    sink: SinkFlags,
    #[command(flatten)]
    exports: Exports,
}

impl From<Track> for track::Options {
    fn from(typed: Track) -> Self {
        let oom = typed.oom_flight_recorder.then(|| track::Oom {
            directory: typed.oom_dump_dir,
            buffer_size: track::buffer_size(typed.oom_buffer_size),
            retention: Retention {
                max_bundles: typed.oom_max_dumps,
                max_total_bytes: typed.oom_max_total_mb.saturating_mul(1 << 20),
            },
        });
        track::Options {
            pid: typed.whom.pid,
            device: typed.device,
            duration: typed.duration,
            interval: typed.interval,
            output: typed.output,
            format: typed.format.into(),
            watchdog: typed.watchdog,
            warning_threshold: typed.warning_threshold,
            critical_threshold: typed.critical_threshold,
            identity: typed.identity.values(),
            oom,
            sink: typed.sink.config(),
            export: typed.exports.asked(),
            json: typed.whom.json,
        }
    }
}

/// Who it is in a distributed job; what is not given is taken from the environment.
#[derive(Debug, Args)]
pub(crate) struct Identity {
    /// The job's name (default: from the environment)
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,
    /// Rank over the whole job (default: from the environment)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    rank: Option<i64>,
    /// Rank on this machine (default: from the environment)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    local_rank: Option<i64>,
    /// Number of ranks (default: from the environment)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    world_size: Option<i64>,
}

impl Identity {
    pub(crate) fn values(self) -> [Value; 4] {
        [self.job_id.into(), self.rank.into(), self.local_rank.into(), self.world_size.into()]
    }
}

/// The append-only sink.
#[derive(Debug, Args)]
pub(crate) struct SinkFlags {
    /// Also write append-only segments into this directory
    #[arg(long, value_name = "DIR")]
    telemetry_sink_dir: Option<PathBuf>,
    /// Longest time between two flushes
    #[arg(long, default_value = "2.0", value_name = "SECONDS")]
    telemetry_flush_seconds: f64,
    /// Size of a segment
    #[arg(long, default_value_t = 64, value_name = "MB")]
    telemetry_rollover_mb: u64,
    /// Segments that may stay
    #[arg(long, default_value_t = 8, value_name = "N")]
    telemetry_retention_files: u64,
    /// Size of all segments that may stay
    #[arg(long, default_value_t = 512, value_name = "MB")]
    telemetry_retention_total_mb: u64,
}

impl SinkFlags {
    pub(crate) fn config(self) -> Option<SinkConfig> {
        let mut config = SinkConfig::new(self.telemetry_sink_dir?);
        config.flush_every_seconds = self.telemetry_flush_seconds;
        config.rollover_max_bytes = self.telemetry_rollover_mb.saturating_mul(1 << 20);
        config.retention_max_files = self.telemetry_retention_files;
        config.retention_max_total_bytes = self.telemetry_retention_total_mb.saturating_mul(1 << 20);
        Some(config)
    }
}

/// The flags of 0.4.3's exports. Hidden: asked for, they are refused with what to do instead.
#[derive(Debug, Args)]
pub(crate) struct Exports {
    #[arg(long, hide = true)]
    wandb: bool,
    #[arg(long, hide = true)]
    wandb_project: Option<String>,
    #[arg(long, hide = true)]
    wandb_entity: Option<String>,
    #[arg(long, hide = true, value_parser = ["online", "offline"])]
    wandb_mode: Option<String>,
    #[arg(long, hide = true)]
    wandb_run_id: Option<String>,
    #[arg(long, hide = true)]
    wandb_name: Option<String>,
    #[arg(long, hide = true)]
    wandb_group: Option<String>,
    #[arg(long, hide = true)]
    wandb_job_type: Option<String>,
    #[arg(long, hide = true)]
    wandb_log_artifacts: bool,
    #[arg(long, hide = true)]
    wandb_log_attribution: bool,
    #[arg(long, hide = true)]
    mlflow: bool,
    #[arg(long, hide = true)]
    mlflow_tracking_uri: Option<String>,
    #[arg(long, hide = true)]
    mlflow_experiment: Option<String>,
    #[arg(long, hide = true)]
    mlflow_run_id: Option<String>,
    #[arg(long, hide = true)]
    mlflow_run_name: Option<String>,
    #[arg(long, hide = true)]
    mlflow_group: Option<String>,
    #[arg(long, hide = true)]
    mlflow_job_type: Option<String>,
    #[arg(long, hide = true)]
    mlflow_log_artifacts: bool,
    #[arg(long, hide = true)]
    mlflow_log_attribution: bool,
}

impl Exports {
    /// The export asked for. Without the main flag the others mean nothing, as in 0.4.3.
    pub(crate) fn asked(&self) -> Option<&'static str> {
        [(self.wandb, "--wandb"), (self.mlflow, "--mlflow")]
            .into_iter()
            .find_map(|(asked, flag)| asked.then_some(flag))
    }
}
