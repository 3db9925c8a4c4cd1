//! The flags that say what of a program's heap is recorded, shared by `run` and `attach`.

use std::path::PathBuf;

use clap::Args;
use stormlog_supervise::HeapOptions;

use crate::args::size;

/// Sampling without a number: one allocation in this many bytes on average.
const DEFAULT_SAMPLE: &str = "512KiB";

#[derive(Debug, Args)]
#[command(next_help_heading = "Heap recording")]
pub(crate) struct Record {
    /// Record every allocation with the Python stack that made it
    #[arg(long)]
    heap: bool,
    /// Record the frames of C, C++ and Rust too
    #[arg(long)]
    native: bool,
    /// Record requests to Python's own allocators, not only to the system's
    #[arg(long)]
    trace_python_allocators: bool,
    /// Sample one allocation per BYTES on average; totals stay unbiased
    #[arg(long, value_parser = size, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_SAMPLE)]
    sample: Option<u64>,
    /// Keep stacks, live blocks and peaks instead of every record
    #[arg(long)]
    aggregate: bool,
    /// Merge the oldest records into totals when a capture exceeds this size
    #[arg(long, value_parser = size, value_name = "SIZE")]
    max_size: Option<u64>,
    /// Write the main process's capture to FILE
    ///
    /// If FILE is a directory, the captures of all processes are written into it.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(long, short, requires = "output")]
    pub(crate) force: bool,
    /// Leave out GPU memory
    ///
    /// By default GPU memory is recorded with the line of every allocation.
    #[arg(long)]
    pub(crate) no_gpu: bool,
    /// Record children too (the default)
    #[arg(long, hide = true)]
    follow_fork: bool,
}

impl Record {
    /// A flag about the heap asks for the heap: for all of it, unless it says otherwise.
    pub(crate) fn is_wanted(&self) -> bool {
        let asked = HeapOptions { skip_gpu: false, ..self.options() };
        self.heap || self.output.is_some() || asked != HeapOptions::default()
    }

    /// What was requested, whether or not the recording itself was.
    pub(crate) fn options(&self) -> HeapOptions {
        HeapOptions {
            native: self.native,
            python_allocators: self.trace_python_allocators,
            sample_bytes: self.sample.unwrap_or(0),
            aggregate: self.aggregate,
            max_size: self.max_size,
            skip_host: false,
            skip_gpu: self.no_gpu,
            drops_trivial: false,
        }
    }
}

impl From<Record> for Option<HeapOptions> {
    fn from(typed: Record) -> Self {
        typed.is_wanted().then(|| typed.options())
    }
}
