//! What can be typed after `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_catalog::run::layout::{RUNS_DIRECTORY, RUNS_VARIABLE};
use stormlog_postmortem::BundlePolicy;
use stormlog_supervise::{HeapOptions, TorchHistory};

use super::heap;
use super::keep::Kept;
use super::notify::Notify;
use crate::args::size;
use crate::cmd::record::{run, run_finish};

/// Runs the program unchanged, its children included, and watches the memory of each from outside. Streams, signals and
/// exit status are the program's own; what was recorded lies in one directory a run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_parser = interval, value_name = "SECONDS")]
    interval: Duration,
    /// Where run directories are made
    #[arg(long, env = RUNS_VARIABLE, default_value = RUNS_DIRECTORY, value_name = "DIR")]
    dir: PathBuf,
    /// Suppress the summary
    #[arg(long, short)]
    quiet: bool,
    /// Limit the program's address space, so that it gets a MemoryError it can report (e.g. 16GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    limit: Option<u64>,
    /// Kill the program when this command is killed (SIGKILL); by default it outlives it
    #[arg(long)]
    die_with_supervisor: bool,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Open the run's directory to its group (default: private)
    #[arg(long)]
    share: bool,
    /// Do not record the environment
    #[arg(long)]
    no_env: bool,
    /// Do not ask Python programs for the exception they die of
    #[arg(long)]
    no_exceptions: bool,
    /// Do not look what keeps the memory of Python programs when it runs out, or when they end large
    #[arg(long)]
    no_why: bool,
    /// Do not record the GPU memory of programs that import torch
    #[arg(long)]
    no_torch: bool,
    /// Also report which library takes GPU memory beside PyTorch (NCCL, cuBLAS, ...), from the driver's events; needs CUPTI,
    /// skipped with a warning if another profiler already subscribes
    #[arg(long, conflicts_with = "no_torch")]
    cuda_driver: bool,
    /// PyTorch's own allocator history: none (off), its requests for `stormlog replay` (segments), or those with PyTorch's stacks too, which
    /// cost the most (stacks) [default: off]
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "no_torch")]
    torch_history: Option<History>,
    /// Which ends leave a bundle: want of memory (oom); that, uncaught exceptions and fatal signals (crash); every end but exit 0 (always)
    #[arg(long, value_enum, default_value = "crash", value_name = "ENDS")]
    bundle: Bundle,
    /// Watch it on a screen while it runs, as `stormlog live` does; records the heap too. What the program prints to the terminal goes to
    /// output.log in the run's directory, and its end is shown afterwards; it cannot read keys, but Ctrl-C and Ctrl-Z reach it. `q` leaves
    /// the screen, and the program continues
    #[arg(long)]
    live: bool,
    /// Leave out the host heap; by default a sample of it is recorded, in at most 64 MiB of disk a process
    #[arg(long, help_heading = "Heap recording", conflicts_with_all = ["heap", "native", "trace_python_allocators", "sample", "aggregate"])]
    no_heap: bool,
    #[command(flatten)]
    heap: heap::Record,
    /// Wait until the captures are compressed; otherwise a background process of low priority does that after the command has returned
    #[arg(long, help_heading = "Heap recording")]
    wait: bool,
    #[command(flatten)]
    notify: Notify,
    #[command(flatten)]
    kept: Kept,
    /// The program and its arguments; a .py file is run with Python
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    /// What is recorded of the program's memory: all of the heap where a flag asks for it, a bounded sample of it otherwise.
    fn recording(&self) -> Option<HeapOptions> {
        let (skip_gpu, bounded) = (self.heap.no_gpu, HeapOptions::sampled_and_bounded());
        match self.no_heap {
            true if skip_gpu => None,
            true => Some(HeapOptions {
                skip_host: true,
                max_size: self.heap.options().max_size.or(bounded.max_size),
                ..bounded
            }),
            false if self.heap.is_wanted() || self.live => Some(self.heap.options()),
            false => Some(HeapOptions { skip_gpu, ..bounded }),
        }
    }
}

impl From<Run> for run::Options {
    fn from(typed: Run) -> Self {
        let heap = typed.recording();
        let heap_is_default = !typed.heap.is_wanted() && !typed.live;
        run::Options {
            command: typed.command,
            interval: typed.interval,
            keep: typed.kept.into(),
            notify: typed.notify.into(),
            root: typed.dir,
            quiet: typed.quiet,
            limit: typed.limit,
            die_with_supervisor: typed.die_with_supervisor,
            json: typed.json,
            is_shared: typed.share,
            records_environment: !typed.no_env,
            report_exceptions: !typed.no_exceptions,
            report_why: !typed.no_why,
            heap_output: typed.heap.output.clone(),
            force: typed.heap.force,
            heap,
            heap_is_default,
            wait: typed.wait,
            live: typed.live,
            bundle_policy: typed.bundle.into(),
            record_torch: !typed.no_torch,
            follow_cuda_driver: typed.cuda_driver,
            torch_history: typed.torch_history.map(Into::into),
        }
    }
}

/// Values of `--torch-history`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum History {
    Off,
    Segments,
    Stacks,
}

impl From<History> for TorchHistory {
    fn from(typed: History) -> Self {
        match typed {
            History::Off => TorchHistory::Off,
            History::Segments => TorchHistory::Segments,
            History::Stacks => TorchHistory::Stacks,
        }
    }
}

/// Values of `--bundle`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bundle {
    Oom,
    Crash,
    Always,
}

impl From<Bundle> for BundlePolicy {
    fn from(typed: Bundle) -> Self {
        match typed {
            Bundle::Oom => BundlePolicy::Oom,
            Bundle::Crash => BundlePolicy::Crash,
            Bundle::Always => BundlePolicy::Always,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FinishCaptures {
    #[arg(long)]
    aggregate: bool,
    #[arg(long)]
    max_size: Option<u64>,
    #[arg(long, default_value_t)]
    sample: u64,
    run: PathBuf,
}

impl From<FinishCaptures> for run_finish::Options {
    fn from(typed: FinishCaptures) -> Self {
        let FinishCaptures { aggregate, max_size, sample: sample_bytes, run } = typed;
        run_finish::Options { run, aggregate, max_size, sample_bytes }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.001 and 3600".to_owned()),
    }
}
