//! One failed allocation as a log reports it. What a log does not report is `None` or empty, never 0.

use serde::Serialize;

use crate::judge::{self, Free, Verdict};

/// A failed allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Failure {
    /// The line of the text at which its report begins, from 1.
    pub line: u64,
    /// The library that asked, where its texts show it.
    pub framework: Option<Framework>,
    /// The allocator's name, e.g. `GPU_0_bfc`.
    pub allocator: Option<String>,
    /// The device as the library calls it.
    pub device: Option<String>,
    /// The size that was requested, rounded up as the allocator rounds where it reports that.
    pub requested: Option<u64>,
    /// The operation or executable that asked.
    pub requester: Option<String>,
    /// The tensor it was for.
    pub tensor: Option<Tensor>,
    /// The allocator's caller continued with less memory: a performance warning, not a failure.
    pub is_harmless: bool,
    /// XLA asked while it compiled, to try algorithms: beside what the program itself needs.
    pub is_autotuning: bool,
    /// The allocator's bins.
    pub bins: Vec<Bin>,
    /// Chunks by address, as many as are kept.
    pub chunks: Vec<Chunk>,
    /// Chunks listed in the text but not kept in `chunks`; the totals count them.
    pub chunks_not_kept: u64,
    /// Chunks in use, over all that the text lists.
    pub in_use: Totals,
    /// Free chunks, over all that the text lists.
    pub free: Totals,
    /// How many chunks of which size are in use, largest size last.
    pub in_use_sizes: Vec<SizeCount>,
    /// What holds memory by name, largest first: operations, buffers.
    pub holders: Vec<Holder>,
    /// The memory the allocator has taken from the driver.
    pub pool: Pool,
    /// The allocator's counters.
    pub stats: Stats,
    /// What the compiler planned for the program that asked.
    pub program: Program,
    /// Hundredths of the pool without any memory in use, from the allocator's picture of itself.
    pub free_cells: Option<u32>,
    /// The library's own message.
    pub message: Option<String>,
}

/// The libraries whose reports are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// TensorFlow.
    TensorFlow,
    /// JAX, or another user of XLA's client.
    Jax,
}

/// What was to be stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tensor {
    /// Dimensions as printed, e.g. `4,2048,128,128`.
    pub shape: String,
    /// The element type as printed, e.g. `float`.
    pub dtype: String,
    /// The size that both give.
    pub bytes: Option<u64>,
}

/// Chunks of sizes from `size` up to the next bin's. Sizes but the first are as printed, rounded to a hundredth of their unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The smallest chunk of the bin.
    pub size: u64,
    /// Chunks, in use or free.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_in_use: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Bytes of the chunks in use.
    pub bytes_in_use: u64,
}

/// One piece of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Chunk {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// Whether it is in use.
    pub in_use: bool,
}

/// Chunks added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// How many.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The largest of them.
    pub largest: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, size: u64) {
        self.chunks = self.chunks.saturating_add(1);
        self.bytes = self.bytes.saturating_add(size);
        self.largest = self.largest.max(size);
    }
}

/// Chunks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// The size of each.
    pub size: u64,
    /// How many.
    pub chunks: u64,
}

impl SizeCount {
    /// Their bytes together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.size.saturating_mul(self.chunks)
    }
}

/// Memory with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its bytes.
    pub bytes: u64,
    /// The operation or buffer.
    pub name: String,
    /// Its shape, where the text has one.
    pub shape: Option<String>,
    /// The line of the program it belongs to, as `file:line`.
    pub source: Option<String>,
}

/// What the allocator has from the driver, and may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pool {
    /// Bytes taken from the driver.
    pub taken: Option<u64>,
    /// The most it may take.
    pub limit: Option<u64>,
    /// Bytes it may still take from the driver.
    pub growable: Option<u64>,
    /// Free in it, where the text has that figure itself.
    pub free: Option<u64>,
    /// The largest free piece that the request could have had, where the allocator reports it.
    pub largest_usable: Option<u64>,
    /// Separate regions it consists of; a chunk never spans two.
    pub regions: u64,
}

/// The memory of a compiled program, as XLA planned it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its arguments.
    pub arguments: Option<u64>,
    /// Constants in it.
    pub constants: Option<u64>,
    /// Its results.
    pub outputs: Option<u64>,
    /// Memory it needs only while it runs.
    pub temporaries: Option<u64>,
    /// All of it.
    pub total: Option<u64>,
    /// What of it is between buffers.
    pub fragmentation: Option<u64>,
}

/// The allocator's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The most it may give out.
    pub limit: Option<u64>,
    /// Given out now.
    pub in_use: Option<u64>,
    /// The most that was given out at once.
    pub max_in_use: Option<u64>,
    /// Allocations so far.
    pub allocations: Option<u64>,
    /// The largest of them.
    pub largest_allocation: Option<u64>,
    /// The largest free block.
    pub largest_free: Option<u64>,
}

impl Failure {
    /// What was free when it failed, as exactly as the text allows.
    #[must_use]
    pub fn free(&self) -> Free {
        judge::free(self)
    }

    /// Whether the request was too large, or the free memory in pieces too small.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        judge::verdict(self)
    }

    /// Whether it has the lines of several dumps: programs that write to one log at the same time. One dump lists each bin once.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        let mut bins = self.bins.iter().enumerate();
        bins.any(|(at, bin)| self.bins[..at].iter().any(|earlier| earlier.size == bin.size))
    }

    /// Sizes in use by the bytes they hold together, largest first.
    #[must_use]
    pub fn largest_sizes(&self) -> Vec<SizeCount> {
        let mut sizes = self.in_use_sizes.clone();
        sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes()));
        sizes
    }
}
