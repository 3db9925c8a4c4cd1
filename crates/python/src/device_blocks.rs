//! The GPU memory of this very process, by the capture it is being recorded into: for bundles and trackers that run inside the program.
//!
//! Reads the capture while it is written; this thread's own memory for that is left out of it. Must never start a recording.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_capture::live::Live;
use stormlog_catalog::run::layout::{CAPTURES_DIRECTORY, RUN_VARIABLE, growing_capture_name};
use stormlog_heap::{Capture, HeapReadOptions};
use stormlog_heap_report::ViewError;
use stormlog_model::memory::Memory;

use crate::capture::HeapFrame;
use crate::error::raise;
use crate::heap::{captures_beside, is_recorded_by_me, own_capture, unrecorded};

/// One block; its stack is a place in `DeviceBlocks.stacks`.
#[pyclass(frozen, get_all, module = "stormlog._native.heap")]
#[derive(Clone)]
struct DeviceBlock {
    address: u64,
    size: u64,
    stack: usize,
}

/// The blocks of a device: those that live, the last that were allocated in their order, and their stacks, the innermost frame first.
#[pyclass(frozen, get_all, module = "stormlog._native.heap")]
struct DeviceBlocks {
    live: Vec<DeviceBlock>,
    recent: Vec<DeviceBlock>,
    stacks: Vec<Vec<HeapFrame>>,
    /// The last request that got no memory.
    failed_bytes: Option<u64>,
}

impl From<stormlog_heap::DeviceBlocks> for DeviceBlocks {
    fn from(found: stormlog_heap::DeviceBlocks) -> Self {
        let block = |block: stormlog_heap::DeviceBlock| DeviceBlock {
            address: block.address,
            size: block.size,
            stack: block.stack,
        };
        DeviceBlocks {
            live: found.live.into_iter().map(block).collect(),
            recent: found.recent.into_iter().map(block).collect(),
            stacks: found
                .stacks
                .into_iter()
                .map(|stack| stack.into_iter().map(HeapFrame::from).collect())
                .collect(),
            failed_bytes: found.failed_bytes,
        }
    }
}

/// The blocks of one device (`cuda:0`) with the last `recent` allocations; `None` where this process is not recorded, or nothing of the device.
#[pyfunction]
fn own_device_blocks(py: Python<'_>, memory: &str, recent: usize) -> PyResult<Option<DeviceBlocks>> {
    let memory: Memory = memory.parse().map_err(raise)?;
    py.detach(|| {
        unrecorded(|| {
            let Some(path) = own_capture().or_else(capture_in_run) else { return Ok(None) };
            let watch =
                HeapReadOptions { device_blocks: Some((memory, recent)), ..HeapReadOptions::default() };
            let heap = Capture::open(&path).and_then(|capture| capture.read(watch))?;
            Ok(heap.device_blocks(None).map(DeviceBlocks::from))
        })
    })
    .map_err(|error: stormlog_heap::HeapError| raise(ViewError::from(error)))
}

/// Where `stormlog run` has this process recorded.
pub(crate) fn capture_in_run() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(RUN_VARIABLE)?).join(CAPTURES_DIRECTORY);
    let first = directory.join(growing_capture_name(&std::process::id().to_string()));
    captures_beside(&first).find(|capture| Live::path_of(capture).exists() && is_recorded_by_me(capture))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<DeviceBlock>()?;
    module.add_class::<DeviceBlocks>()?;
    module.add_function(wrap_pyfunction!(own_device_blocks, module)?)
}
