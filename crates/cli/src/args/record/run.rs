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
use super::ship::RunShip;
use crate::args::size;
use crate::cmd::record::{run, run_finish};

/// Run a program and keep the evidence of how it ends
///
/// Runs the program unchanged and samples the memory of it and its children from outside. Streams, signals
/// and exit status are the program's own. Everything recorded is stored in one directory per run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Seconds between two samples
    #[arg(long, default_value = "0.1", value_parser = interval, value_name = "SECONDS")]
    interval: Duration,
    /// Directory for run directories
    #[arg(long, env = RUNS_VARIABLE, default_value = RUNS_DIRECTORY, value_name = "DIR")]
    dir: PathBuf,
    /// Suppress the summary
    #[arg(long, short)]
    quiet: bool,
    /// Limit the program's address space, so that it gets a MemoryError (e.g. 16GiB)
    #[arg(long, value_parser = size, value_name = "SIZE")]
    limit: Option<u64>,
    /// Kill the program when this command is killed (SIGKILL)
    ///
    /// By default the program continues without it.
    #[arg(long)]
    die_with_supervisor: bool,
    /// Print the outcome as JSON on standard error
    #[arg(long)]
    json: bool,
    /// Make the run directory readable by its group (default: private)
    #[arg(long)]
    share: bool,
    /// Do not record the environment
    #[arg(long)]
    no_env: bool,
    /// Do not record the exception that ends a Python program
    #[arg(long)]
    no_exceptions: bool,
    /// Do not search for what keeps memory alive in Python programs
    ///
    /// By default the search runs when memory runs out, or when a program exits with a large heap.
    #[arg(long)]
    no_why: bool,
    /// Do not record the GPU memory of programs that import torch
    #[arg(long)]
    no_torch: bool,
    /// Record which libraries take GPU memory beside PyTorch (NCCL, cuBLAS, ...)
    ///
    /// Reads the driver's events through CUPTI; skipped with a warning if another profiler already
    /// subscribes.
    #[arg(long, conflicts_with = "no_torch")]
    cuda_driver: bool,
    /// Record PyTorch's allocator history [default: off]
    ///
    /// segments: the requests, for `stormlog replay`; stacks: also PyTorch's stacks, which costs the most.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "no_torch")]
    torch_history: Option<History>,
    /// Take a snapshot of a Python process on this signal
    ///
    /// SIGUSR1, SIGUSR2 or a real-time signal. A handler of the program is never replaced.
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    snapshot_signal: Option<i32>,
    /// When to write a bundle
    ///
    /// oom: out of memory; crash: also uncaught exceptions and fatal signals; always: every end but exit 0.
    #[arg(long, value_enum, default_value = "crash", value_name = "ENDS")]
    bundle: Bundle,
    /// Show the memory of the program while it runs, as `stormlog live` does
    ///
    /// Records the heap too. The program's terminal output is written to output.log in the run's directory,
    /// and its last lines are printed at the end. The program cannot read keys, but Ctrl-C and Ctrl-Z reach
    /// it. `q` leaves the screen; the program continues.
    #[arg(long)]
    live: bool,
    /// Leave out the host heap
    ///
    /// By default a sample of it is recorded, in at most 64 MiB of disk per process.
    #[arg(long, help_heading = "Heap recording", conflicts_with_all = ["heap", "native", "trace_python_allocators", "sample", "aggregate"])]
    no_heap: bool,
    #[command(flatten)]
    heap: heap::Record,
    /// Wait until the captures are compressed
    ///
    /// By default a background process of low priority compresses them after the command has returned.
    #[arg(long, help_heading = "Heap recording")]
    wait: bool,
    #[command(flatten)]
    notify: Notify,
    #[command(flatten)]
    ship: RunShip,
    #[command(flatten)]
    kept: Kept,
    /// The program and its arguments; a .py file is run with Python
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        help_heading = "Arguments"
    )]
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
            ship: typed.ship.transfer(typed.share),
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
            snapshot_signal: typed.snapshot_signal,
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
pub(crate) struct ShipRun {
    pub(crate) run: PathBuf,
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

#[derive(Debug, Args)]
pub(crate) struct AnswerRequests {
    pub(crate) run: PathBuf,
}

impl From<FinishCaptures> for run_finish::Options {
    fn from(typed: FinishCaptures) -> Self {
        let FinishCaptures { aggregate, max_size, sample: sample_bytes, run } = typed;
        run_finish::Options { run, aggregate, max_size, sample_bytes }
    }
}

fn signal(text: &str) -> Result<i32, String> {
    stormlog_supervise::signal_number(text).ok_or_else(|| "expected a signal such as SIGUSR2".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.001 and 3600".to_owned()),
    }
}
