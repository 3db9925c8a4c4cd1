//! What a heap capture means: read once, in true order, to totals, peak, leaks, temporary allocations and their stacks.
//!
//! ```text
//! Capture::open ─► Capture::read(HeapReadOptions) ─► Heap ─► stats(), profile(Mode), curve(), …
//! ```
//!
//! It must never touch the recorded process, and never trust a file.

#![forbid(unsafe_code)]

mod aggregate;
mod blocks;
mod by_line;
mod categories;
mod checkpoint;
mod checkpoint_ledger;
mod code_end;
mod curve;
mod define;
mod device_blocks;
mod device_stats;
mod devices;
mod error;
mod failure;
mod feed;
mod follow;
mod frames;
mod heap;
mod holders;
mod ids;
pub mod import;
mod interleave;
mod ledger;
mod level;
mod lifetimes;
mod locate;
mod locations;
mod mappings;
mod memories;
mod merge;
mod names;
mod own_code;
mod profile;
mod read_options;
mod sample;
mod site_history;
mod state;
mod stats;
mod step_clock;
mod stream;
mod thread_names;
mod tree;

use stormlog_model::memory::Selection;

pub use aggregate::Aggregate;
pub use categories::{CategoryAmount, category_of_node};
pub use curve::Point;
pub use device_blocks::{DeviceBlock, DeviceBlocks};
pub use device_stats::DeviceStats;
pub use error::HeapError;
pub use follow::Follow;
pub use frames::{Symbol, Symbolizer};
pub use heap::{Capture, Heap, Imported};
pub use locate::Locate;
pub use locations::GroupBy;
pub use memories::DeviceFigures;
pub use names::Names;
pub use profile::{AllocatorShare, Lifetime, Mode, Profile, ThreadShare};
pub use read_options::HeapReadOptions;
pub use stats::{
    AllocatorStats, DistinctFailure, FailedRequest, LocationTotals, SizeBucket, Stats, ThreadStats,
    allocator_name,
};
pub use tree::Module;

/// Reads any bytes as a capture of each kind and asks everything of it: for fuzzing. `scratch` is a directory to write them into.
pub fn fuzz(bytes: &[u8], scratch: &std::path::Path) {
    let path = scratch.join(stormlog_model::layout::CAPTURE_FILE);
    let live = stormlog_capture::live::Live::path_of(&path);
    for (written, other) in [(&path, &live), (&live, &path)] {
        let _ = std::fs::remove_file(other);
        if std::fs::write(written, bytes).is_err() {
            continue;
        }
        let options =
            HeapReadOptions { span_us: Some((0, 1 << 20)), at_us: Some(5), ..HeapReadOptions::default() };
        let Ok(mut heap) = Capture::open(&path).and_then(|capture| capture.read(options)) else { continue };
        let one = heap.memories().into_iter().map(Selection::One);
        for selection in one.chain([Selection::All]) {
            let _ = heap.select(selection);
            heap.stats(3, None);
            for mode in
                [Mode::Peak, Mode::Leaks, Mode::Failure, Mode::Temporary, Mode::At, Mode::Span, Mode::Total]
            {
                let _ = heap.profile(mode, None).held.by_line();
            }
        }
    }
    checkpoint::load(bytes, HeapReadOptions::default(), 0);
}
