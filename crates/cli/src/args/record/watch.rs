//! What can be typed after `info`, `monitor` and `track`: the flags of 0.4.3, and `--pid` and `--json`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use stormlog_postmortem::bundle::Retention;
use stormlog_store::Format;
use stormlog_store::sink::SinkConfig;

use crate::Program;
use crate::cmd::machine::{info, monitor};
use crate::cmd::record::flight::{self, Oom};
use crate::cmd::record::track;
use crate::cmd::record::track_export::Export;
use crate::cmd::record::watch::MAX_EVENTS;

/// Show the host, its limits and pressure, and every GPU
///
/// Values that cannot be read are printed as "unknown".
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Only this GPU
    #[arg(long, value_name = "DEVICE")]
    device: Option<i64>,
    /// Show utilization, temperature, power and processes of each GPU
    #[arg(long)]
    detailed: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Info> for info::Options {
    fn from(typed: Info) -> Self {
        info::Options {
            device: typed.device,
            detailed: typed.detailed,
            json: typed.json,
            page: info::Page::General,
        }
    }
}

// What to watch.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Watch this process and its children, and the GPUs beside them
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Print only the outcome, as JSON, on standard output
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

/// Sample memory for some seconds and print a summary
///
/// Samples every GPU (without a GPU, this command itself), or the process of --pid. Exits 5 if there is no
/// such process, 3 if it ended during the sampling.
#[derive(Debug, Args)]
pub(crate) struct Monitor {
    #[command(flatten)]
    target: TargetArgs,
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
            pid: typed.target.pid,
            device: typed.device,
            duration: typed.duration,
            interval: typed.interval,
            output: typed.output,
            format: typed.format.into(),
            json: typed.target.json,
        }
    }
}

/// Track memory with alerts and record it
///
/// Samples every GPU (without a GPU, this command itself), or the process of --pid; raises alerts and keeps
/// the events. Ctrl-C ends it and saves everything. Exits 5 if there is no such process, 3 if it ended during
/// the sampling.
#[derive(Debug, Args)]
pub(crate) struct Track {
    #[command(flatten)]
    target: TargetArgs,
    /// Only this GPU; -1 is the host alone
    #[arg(long, value_name = "DEVICE", allow_negative_numbers = true)]
    device: Option<i64>,
    /// Seconds to track (default: until Ctrl-C)
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Seconds between two samples
    #[arg(long, default_value_t = track::INTERVAL, value_name = "SECONDS", allow_negative_numbers = true)]
    interval: f64,
    /// Write the events to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The file's format
    #[arg(long, value_enum, default_value = "csv")]
    format: FileFormat,
    /// Accepted for compatibility with 0.4.3; cleans nothing
    #[arg(long)]
    watchdog: bool,
    /// Warn from this percentage of the memory
    #[arg(long, default_value_t = track::WARNING_PERCENT, value_name = "PERCENT")]
    warning_threshold: f64,
    /// Critical alert from this percentage of the memory
    #[arg(long, default_value_t = track::CRITICAL_PERCENT, value_name = "PERCENT")]
    critical_threshold: f64,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    oom: OomFlags,
    #[command(flatten)]
    sink: SinkFlags,
    #[command(flatten)]
    exports: Exports,
}

impl Track {
    pub(crate) fn options(self, program: Program) -> track::Options {
        let typed = self;
        track::Options {
            pid: typed.target.pid,
            device: typed.device,
            duration: typed.duration,
            interval: typed.interval,
            output: typed.output,
            format: typed.format.into(),
            watchdog: typed.watchdog,
            warning_threshold: typed.warning_threshold,
            critical_threshold: typed.critical_threshold,
            identity: typed.identity.values(),
            oom: typed.oom.config(MAX_EVENTS),
            sink: typed.sink.config(),
            program,
            export: typed.exports.asked(),
            json: typed.target.json,
            quiet: false,
        }
    }
}

// The flight recorder.
#[derive(Debug, Args)]
pub(crate) struct OomFlags {
    /// Write a bundle when the process of --pid is killed
    #[arg(long)]
    oom_flight_recorder: bool,
    /// Directory for bundles
    #[arg(long, default_value = "oom_dumps", value_name = "DIR")]
    oom_dump_dir: PathBuf,
    /// Events in a bundle (default: as many as are kept in memory)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    oom_buffer_size: Option<i64>,
    /// Largest number of bundles to keep; 0 is unlimited
    #[arg(long, default_value_t = 5, value_name = "N")]
    oom_max_dumps: u64,
    /// Largest total size of bundles to keep; 0 is unlimited
    #[arg(long, default_value_t = 256, value_name = "MB")]
    oom_max_total_mb: u64,
}

impl OomFlags {
    /// `None` where the recorder is off.
    pub(crate) fn config(self, max_events: usize) -> Option<Oom> {
        self.oom_flight_recorder.then(|| Oom {
            directory: self.oom_dump_dir,
            buffer_size: flight::buffer_size(self.oom_buffer_size, max_events),
            retention: Retention {
                max_bundles: self.oom_max_dumps,
                max_total_bytes: self.oom_max_total_mb.saturating_mul(1 << 20),
            },
        })
    }
}

// Who it is in a distributed job; what is not given is taken from the environment.
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

// The append-only sink.
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
    /// Largest number of segments to keep
    #[arg(long, default_value_t = 8, value_name = "N")]
    telemetry_retention_files: u64,
    /// Largest total size of segments to keep
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

// Services that a session is sent to, with the flags of 0.4.3. Without the main flag the others mean nothing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Exports (stormlog[wandb], stormlog[mlflow])")]
pub(crate) struct Exports {
    /// Send the session to Weights & Biases
    #[arg(long)]
    wandb: bool,
    /// W&B project (default: stormlog)
    #[arg(long, value_name = "NAME")]
    wandb_project: Option<String>,
    /// W&B entity or team
    #[arg(long, value_name = "NAME")]
    wandb_entity: Option<String>,
    /// Send at once, or keep the run for a later sync
    #[arg(long, value_parser = ["online", "offline"])]
    wandb_mode: Option<String>,
    /// Existing run to continue
    #[arg(long, value_name = "ID")]
    wandb_run_id: Option<String>,
    /// The run's name
    #[arg(long, value_name = "NAME")]
    wandb_name: Option<String>,
    /// The run's group (default: the job)
    #[arg(long, value_name = "NAME")]
    wandb_group: Option<String>,
    /// The run's job type (default: the command)
    #[arg(long, value_name = "NAME")]
    wandb_job_type: Option<String>,
    /// Upload the files that were written
    #[arg(long)]
    wandb_log_artifacts: bool,
    /// Log the holders of GPU memory, if a bundle has them
    #[arg(long)]
    wandb_log_attribution: bool,
    /// Send the session to MLflow
    #[arg(long)]
    mlflow: bool,
    /// MLflow server or store (default: MLFLOW_TRACKING_URI)
    #[arg(long, value_name = "URI")]
    mlflow_tracking_uri: Option<String>,
    /// MLflow experiment (default: stormlog)
    #[arg(long, value_name = "NAME")]
    mlflow_experiment: Option<String>,
    /// Existing run to continue
    #[arg(long, value_name = "ID")]
    mlflow_run_id: Option<String>,
    /// The run's name
    #[arg(long, value_name = "NAME")]
    mlflow_run_name: Option<String>,
    /// The run's group (default: the job)
    #[arg(long, value_name = "NAME")]
    mlflow_group: Option<String>,
    /// The run's job type (default: the command)
    #[arg(long, value_name = "NAME")]
    mlflow_job_type: Option<String>,
    /// Upload the files that were written
    #[arg(long)]
    mlflow_log_artifacts: bool,
    /// Log the holders of GPU memory, if a bundle has them
    #[arg(long)]
    mlflow_log_attribution: bool,
}

impl Exports {
    /// What was requested.
    pub(crate) fn asked(self) -> Option<Export> {
        let wandb = json!({
            "project": self.wandb_project, "entity": self.wandb_entity, "mode": self.wandb_mode,
            "run_id": self.wandb_run_id, "run_name": self.wandb_name, "group": self.wandb_group,
            "job_type": self.wandb_job_type, "log_artifacts": self.wandb_log_artifacts,
            "log_attribution": self.wandb_log_attribution,
        });
        let mlflow = json!({
            "tracking_uri": self.mlflow_tracking_uri, "experiment": self.mlflow_experiment,
            "run_id": self.mlflow_run_id, "run_name": self.mlflow_run_name, "group": self.mlflow_group,
            "job_type": self.mlflow_job_type, "log_artifacts": self.mlflow_log_artifacts,
            "log_attribution": self.mlflow_log_attribution,
        });
        let asked = [(self.wandb, "wandb", wandb), (self.mlflow, "mlflow", mlflow)];
        let settings = asked.into_iter().filter(|(is_asked, ..)| *is_asked);
        Export::of(settings.map(|(_, name, settings)| (name.to_owned(), settings)).collect())
    }
}
