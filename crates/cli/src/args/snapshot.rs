//! What can be typed after `snapshot`, `replay` and `timeline`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_torch::{AllocatorSettings, ExportFormat};

use crate::args::record::attach::Method;
use crate::args::record::trigger::seconds;
use crate::args::size;
use crate::cmd::snapshot::{live, replay, report, timeline};

/// Show what holds a running process's memory, or explain an allocator snapshot
///
/// With --pid, asks a running process what holds its memory, by component and by line: the process itself
/// where it is recorded (`stormlog run`, stormlog.auto), from outside otherwise. With a file, reads what
/// torch.cuda.memory._dump_snapshot wrote (pickle or JSON; plain, gzip or zstd); no code in it is run.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// Snapshot, or bundle or run directory to take the newest one from
    #[arg(required_unless_present = "pid", conflicts_with = "pid")]
    file: Option<PathBuf>,
    /// The process
    #[arg(long, value_name = "PID", conflicts_with_all = ["oom", "device_total", "no_advice"], help_heading = "Running process")]
    pid: Option<u32>,
    /// Record its heap for this time, if it is not recorded already
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "pid", help_heading = "Running process")]
    heap: Option<Duration>,
    /// Also write the result to this directory
    ///
    /// Default: a directory in the run's, or stormlog-snapshot-PID.
    #[arg(short, long, value_name = "DIR", requires = "pid", help_heading = "Running process")]
    output: Option<PathBuf>,
    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, requires = "pid", help_heading = "Running process")]
    timeout: Duration,
    /// Method to attach to a process that is not recorded (with --heap; default: auto)
    #[arg(long, value_enum, requires = "heap", help_heading = "Running process")]
    method: Option<Method>,
    /// Explain the out-of-memory error: request, free memory, why it did not fit
    #[arg(long)]
    oom: bool,
    /// Number of holders to list
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Memory of the device, to account for all of it (not in the file)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    device_total: Option<u64>,
    /// Do not try other allocator settings
    #[arg(long)]
    no_advice: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// The two things `snapshot` does.
pub(crate) enum SnapshotMode {
    /// Of a process that runs.
    Process(live::Options),
    /// A file.
    File(report::Options),
}

impl Snapshot {
    pub(crate) fn asked(self) -> SnapshotMode {
        if let Some(pid) = self.pid {
            return SnapshotMode::Process(live::Options {
                pid,
                heap: self.heap,
                output: self.output,
                timeout: self.timeout,
                method: self.method.unwrap_or(Method::Auto).into(),
                json: self.json,
            });
        }
        SnapshotMode::File(report::Options {
            file: self.file.unwrap_or_default(),
            oom: self.oom,
            json: self.json,
            report: stormlog_torch::ReportOptions {
                top: self.top,
                device_total: self.device_total,
                advise: !self.no_advice && !self.oom,
            },
        })
    }
}

/// Predict the memory of a snapshot under other allocator settings
///
/// Replays the recorded requests through a model of the allocator: first with the recorded settings, which
/// checks the model address by address, then with others.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Snapshot, or bundle or run directory to take the newest one from
    file: PathBuf,
    /// Settings to try, as for PYTORCH_ALLOC_CONF; can be repeated
    #[arg(long, value_parser = settings, value_name = "KEY:VALUE[,…]")]
    set: Vec<AllocatorSettings>,
    /// Try every setting worth trying; print the best first
    #[arg(long)]
    search: bool,
    /// Predict whether it would fit into this memory (e.g. 24GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    limit: Option<u64>,
    /// The device
    #[arg(long, default_value_t = 0, value_name = "N")]
    device: usize,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Replay> for replay::Options {
    fn from(typed: Replay) -> Self {
        replay::Options {
            search: typed.search || typed.set.is_empty(),
            file: typed.file,
            settings: typed.set,
            limit: typed.limit,
            device: typed.device,
            json: typed.json,
        }
    }
}

/// Write the trace of a snapshot as one interactive page
///
/// Shows every block over the trace, the segments at any event, spans and stacks, with search. The page needs
/// no other file.
#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// Snapshot, or bundle or run directory to take the newest one from
    file: PathBuf,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A page, or every block as a file for other tools
    #[arg(long, value_enum, default_value_t = TimelineFormat::Html)]
    format: TimelineFormat,
    /// Overwrite an existing file
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TimelineFormat {
    Html,
    Perfetto,
    Json,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl From<Timeline> for timeline::Options {
    fn from(typed: Timeline) -> Self {
        timeline::Options {
            file: typed.file,
            output: typed.output,
            format: match typed.format {
                TimelineFormat::Html => timeline::Format::Html,
                TimelineFormat::Perfetto => timeline::Format::Other(ExportFormat::Perfetto),
                TimelineFormat::Json => timeline::Format::Other(ExportFormat::Json),
                #[cfg(feature = "parquet")]
                TimelineFormat::Parquet => timeline::Format::Other(ExportFormat::Parquet),
            },
            force: typed.force,
        }
    }
}

fn settings(text: &str) -> Result<AllocatorSettings, String> {
    AllocatorSettings::default().with(text).map_err(|error| error.to_string())
}
