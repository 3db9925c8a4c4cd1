//! What can be typed after `trigger`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stormlog_catalog::request::Kind;

use crate::cmd::record::trigger;

/// Ask every recorded process for a snapshot or heap recording at the same step
///
/// Leaves a request for every recorded process below a directory, also for those on other machines that share
/// it, and waits for the answers. Only requests from the process's user or root are accepted. Steps are those
/// of PyTorch's optimizers, or calls of stormlog.step().
#[derive(Debug, Args)]
pub(crate) struct Trigger {
    /// The directory of the ranks' runs
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Record the memory at that moment: components, holders, the allocator of each GPU
    #[arg(long, conflicts_with = "heap", required_unless_present = "heap")]
    snapshot: bool,
    /// Record every allocation of one step (of 10 s without --at-step), by line
    ///
    /// Where the heap is recorded already, as `stormlog run` does by itself, its lines at that moment are the answer.
    #[arg(long)]
    heap: bool,
    /// Record at the end of this step
    ///
    /// A rank that is past it records at the end of its next step.
    #[arg(long, value_name = "N")]
    at_step: Option<u64>,
    /// Seconds to wait for the answers
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// Seconds to wait.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=604_800.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.1 and 604800".to_owned()),
    }
}

impl From<Trigger> for trigger::Options {
    fn from(typed: Trigger) -> Self {
        trigger::Options {
            directory: typed.directory,
            kind: if typed.heap { Kind::Heap } else { Kind::Snapshot },
            at_step: typed.at_step,
            timeout: typed.timeout,
            json: typed.json,
        }
    }
}
