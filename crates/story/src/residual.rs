//! What each layer of a memory explains of the layer around it, and what is left: RSS = heap + files + stacks + allocator slack + unknown; device used
//! = reserved + context + libraries + other processes + unknown. A part that was not read is `None`, and then what is left is unknown too.

use serde::Serialize;
use stormlog_model::memory::Memory;

/// A memory and its parts, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Residual {
    /// Which memory.
    pub memory: Memory,
    /// All of it: resident bytes of the process, or used bytes of the device.
    pub total_bytes: u64,
    /// The parts, in the order of the sum.
    pub parts: Vec<Part>,
    /// What no part explains; `None` where a part that would explain more was not read.
    pub unknown_bytes: Option<u64>,
}

/// One part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// `heap`, `files`, `stacks`, `allocator slack`; `reserved`, `context`, `libraries`, `other processes`.
    pub name: &'static str,
    /// `None` where it was not read.
    pub bytes: Option<u64>,
}
