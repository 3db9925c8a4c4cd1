//! What can be typed after `snapshot`, `replay` and `timeline`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stormlog_torch::{AllocatorSettings, ExportFormat};

use crate::args::size;
use crate::cmd::snapshot::{replay, report, timeline};

/// Reads what torch.cuda.memory._dump_snapshot wrote (pickle or JSON, plain, gzip or zstd). Nothing in the file is run.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// The snapshot; of a bundle or a run directory the newest one
    file: PathBuf,
    /// Explain the out-of-memory error: request, what was free, why it did not help
    #[arg(long)]
    oom: bool,
    /// How many holders to list
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// The device's memory, to account for all of it (the file does not say it)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    device_total: Option<u64>,
    /// Do not try other allocator settings
    #[arg(long)]
    no_advice: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

impl From<Snapshot> for report::Options {
    fn from(typed: Snapshot) -> Self {
        report::Options {
            file: typed.file,
            oom: typed.oom,
            json: typed.json,
            report: stormlog_torch::ReportOptions {
                top: typed.top,
                device_total: typed.device_total,
                advise: !typed.no_advice && !typed.oom,
            },
        }
    }
}

/// Replays the recorded requests through a model of the allocator. First the recorded settings, to prove the model address
/// by address; then others.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The snapshot; of a bundle or a run directory the newest one
    file: PathBuf,
    /// Settings to try, as for PYTORCH_ALLOC_CONF; may be given again
    #[arg(long, value_parser = settings, value_name = "KEY:VALUE[,…]")]
    set: Vec<AllocatorSettings>,
    /// Try every setting worth trying, the best first
    #[arg(long)]
    search: bool,
    /// Would it fit into this much memory? (e.g. 24GiB)
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

/// Every block over the trace, the segments at any event, spans, stacks, search: one page that needs nothing else.
#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// The snapshot; of a bundle or a run directory the newest one
    file: PathBuf,
    /// Where to write it
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// A page, or every block as a file for other tools
    #[arg(long, value_enum, default_value_t = TimelineFormat::Html)]
    format: TimelineFormat,
    /// Write over a file that is there
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
