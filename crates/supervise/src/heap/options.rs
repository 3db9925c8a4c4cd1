//! What is recorded of a program's memory, the options that the hook library gets for it, and how its captures are compacted.
//!
//! Must never emit an option that the hook library does not know: it would record nothing.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stormlog_capture::Options;
use stormlog_heap::Aggregate;

/// Mean bytes between samples where the user did not choose: a line that holds 8 MiB in small blocks is met by 16 samples (right to a quarter), a
/// block of 1 MiB or more almost always; the table of sampled blocks has room for 64 GiB of small ones.
const DEFAULT_SAMPLE: u64 = 512 << 10;
/// Bytes of disk for the capture of one process where the user did not choose.
const DEFAULT_MAX_SIZE: u64 = 64 << 20;

/// What to record of a program's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapOptions {
    /// Frames of C, C++ and Rust too.
    pub native: bool,
    /// Every request to CPython's own allocators.
    pub python_allocators: bool,
    /// Mean bytes between samples of the host heap; 0 records everything. Device memory is never sampled.
    pub sample_bytes: u64,
    /// Keep stacks, live blocks and peaks instead of every record.
    pub aggregate: bool,
    /// Fold the oldest records when a capture is larger than this.
    pub max_size: Option<u64>,
    /// Leave the host heap out.
    pub skip_host: bool,
    /// Leave the memory of GPUs out.
    pub skip_gpu: bool,
    /// Keep no capture of a process that had next to no heap; the recording was not asked for.
    pub drops_trivial: bool,
}

impl HeapOptions {
    /// What a run records unless asked for more or less: the host heap sampled, device memory exactly, in a bounded file.
    #[must_use]
    pub fn sampled_and_bounded() -> Self {
        HeapOptions {
            sample_bytes: DEFAULT_SAMPLE,
            max_size: Some(DEFAULT_MAX_SIZE),
            drops_trivial: true,
            ..Self::default()
        }
    }

    /// The specification that the hook library parses; `pattern` may hold `%p` for the process.
    #[must_use]
    pub fn hook_spec(&self, pattern: &Path) -> OsString {
        let mut spec = OsString::from("path=");
        spec.push(pattern);
        let flags = [
            (self.native, ";native=1"),
            (self.python_allocators, ";pyalloc=1"),
            (self.skip_host, ";host=0"),
            (self.skip_gpu, ";gpu=0"),
        ];
        flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, text)| spec.push(text));
        if self.sample_bytes > 0 {
            spec.push(format!(";sample={}", self.sample_bytes));
        }
        if let Some(max) = self.max_size.filter(|max| *max > 0) {
            spec.push(format!(";max={max}"));
        }
        spec
    }

    /// How captures are compacted, until `stop` is set.
    pub(crate) fn compaction(&self, stop: &Arc<AtomicBool>) -> Options {
        let folds = self.aggregate || self.max_size.is_some();
        Options {
            fold: folds.then(|| Box::new(Aggregate::default()) as Box<_>),
            aggregate: self.aggregate,
            max_size: self.max_size,
            stop: Arc::clone(stop),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_spec_of_a_plain_run_samples_and_bounds_and_leaves_nothing_out() {
        let spec = HeapOptions::sampled_and_bounded().hook_spec(Path::new("/run/heap-%p.bin"));
        assert_eq!(spec, "path=/run/heap-%p.bin;sample=524288;max=67108864");
    }

    #[test]
    fn hook_spec_without_the_host_heap_keeps_the_gpu() {
        let options = HeapOptions { skip_host: true, ..HeapOptions::default() };
        assert_eq!(options.hook_spec(Path::new("/a")), "path=/a;host=0");
    }
}
