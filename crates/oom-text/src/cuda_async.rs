//! The report of TensorFlow's and XLA's `cudaMallocAsync` allocator (`TF_GPU_ALLOCATOR=cuda_malloc_async`, `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`):
//! the request, what CUDA reports as free, the counters, and how many allocations of which size are in use.
//!
//! The driver maps free memory together, so free memory in pieces is not a cause here: either the limit leaves too little, or the device does.

use crate::bfc::{MAX_SIZES, stat};
use crate::failure::{Failure, Framework, SizeCount};
use crate::failure_list::FailureList;
use crate::line::{Line, after, name, number};

const FILE: &str = "gpu_cudamallocasync_allocator.cc:";

/// What the names of these allocators start with: `gpu_async_0`.
pub(crate) const NAME: &str = "gpu_async_";

/// Follows one report.
#[derive(Default)]
pub(crate) struct Reader {
    section: ReportSection,
    /// Free on the device, which all its processes share.
    device_free: Option<u64>,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum ReportSection {
    #[default]
    Outside,
    Head,
    Stats,
    Histogram,
}

impl Reader {
    /// Whether the line belongs to a report.
    pub fn line(&mut self, line: &Line<'_>, failures: &mut FailureList) -> bool {
        let message =
            after(line.raw, FILE).and_then(|rest| rest.split_once("] ")).map(|(_, text)| text.trim());
        if let Some(failure) = message.and_then(|text| began(line, text)) {
            *self = Reader { section: ReportSection::Head, device_free: None };
            failures.begin(failure);
            return true;
        }
        if self.section == ReportSection::Outside {
            return false;
        }
        let Some(failure) = failures.last() else { return false };
        match message {
            Some(text) => self.message(text, failure),
            None => self.continuation(line.raw, failure),
        }
    }

    /// A line of the log.
    fn message(&mut self, text: &str, failure: &mut Failure) -> bool {
        if let Some(first) = text.strip_prefix("Stats:") {
            self.section = ReportSection::Stats;
            stat(first, failure);
        } else if text.starts_with("Histogram of current allocation") {
            self.section = ReportSection::Histogram;
        } else if self.section == ReportSection::Histogram {
            let count = text.split_once(", ").and_then(|(size, chunks)| {
                Some(SizeCount { size: size.parse().ok()?, chunks: chunks.parse().ok()? })
            });
            failure.in_use_sizes.extend(count.filter(|_| failure.in_use_sizes.len() < MAX_SIZES));
        }
        self.settle(failure);
        true
    }

    /// A line that belongs to the one before: the free memory, a counter.
    fn continuation(&mut self, text: &str, failure: &mut Failure) -> bool {
        if self.section == ReportSection::Head {
            let Some((free, total)) =
                after(text, "Free memory/Total memory:").and_then(|text| text.split_once('/'))
            else {
                return false;
            };
            self.device_free = number(free);
            // Until the counters follow: those of the device.
            failure.stats.limit = number(total);
            failure.stats.in_use =
                number(total).zip(self.device_free).map(|(total, free)| total.saturating_sub(free));
            return true;
        }
        let is_stat = self.section == ReportSection::Stats && stat(text, failure);
        self.settle(failure);
        is_stat
    }

    /// What the limit still allowed is what the pool could have grown by, unless the device reports that it had that much.
    fn settle(&self, failure: &mut Failure) {
        let (Some(limit), Some(in_use)) = (failure.stats.limit, failure.stats.in_use) else { return };
        let has_enough =
            failure.requested.is_some_and(|wanted| self.device_free.is_some_and(|free| free >= wanted));
        if self.section == ReportSection::Stats && !has_enough {
            failure.pool.limit = Some(limit);
            failure.pool.taken = Some(in_use);
            failure.pool.growable = Some(limit.saturating_sub(in_use));
        }
    }
}

/// `gpu_async_0 cuMemAllocAsync failed to allocate 2147483648 bytes: CUDA error: out of memory …`.
fn began(line: &Line<'_>, text: &str) -> Option<Failure> {
    let (allocator, rest) = text.split_once(" cuMemAllocAsync failed to allocate ")?;
    Some(Failure {
        line: line.number,
        framework: line.raw.contains("tensorflow/").then_some(Framework::TensorFlow),
        allocator: name(allocator),
        requested: Some(number(rest)?),
        ..Failure::default()
    })
}
