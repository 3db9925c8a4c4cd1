//! Options of one pass over a capture. They are set before the first record, because no record is read twice.

use stormlog_model::memory::Memory;

use crate::locate::Locate;

/// What to keep while the records of a capture are read.
#[derive(Debug, Clone)]
pub struct HeapReadOptions {
    /// Keep the heap as it was at this time (microseconds since the start).
    pub at_us: Option<u64>,
    /// Keep what was allocated from the first to the second time and lived at the second.
    pub span_us: Option<(u64, u64)>,
    /// A block is temporary when it is freed after at most this many other allocations of its thread.
    pub temporary_threshold: u32,
    /// Most points of the curve of memory over time.
    pub curve_points: usize,
    /// Tell when blocks came and went by these changes of the heap ([`Point::max_change`](crate::Point), ascending). Temporary allocations are not
    /// looked for then.
    pub moments: Vec<u64>,
    /// The same for the memories of devices, each with its own changes.
    pub device_moments: Vec<(Memory, Vec<u64>)>,
    /// Keep the living blocks of this device and this many of its last allocations, one by one ([`Heap::device_blocks`](crate::Heap::device_blocks)).
    pub device_blocks: Option<(Memory, usize)>,
    /// Keep what sites held at a bounded number of moments, for records that are folded ([`Heap::folded_lives`](crate::Heap::folded_lives)).
    pub keeps_history: bool,
    /// Find the lines of these addresses ([`Heap::located`](crate::Heap::located)).
    pub locate: Option<Locate>,
}

impl Default for HeapReadOptions {
    fn default() -> Self {
        HeapReadOptions {
            at_us: None,
            span_us: None,
            temporary_threshold: 1,
            curve_points: 1000,
            moments: Vec::new(),
            device_moments: Vec::new(),
            device_blocks: None,
            keeps_history: false,
            locate: None,
        }
    }
}
