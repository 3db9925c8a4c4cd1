//! The single blocks of one device: which live, and the last allocations in their order, each with its stack. Kept only where a reading asks for it
//! ([`HeapReadOptions::device_blocks`]): a snapshot of the allocator is completed with it. Must hold no more of the past than was requested.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stormlog_capture::record::DEVICE_ADDRESS_BITS;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::Frame;

use crate::blocks::Blocks;
use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;

/// A block of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBlock {
    /// Where it is on its device.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Its stack's place in [`DeviceBlocks::stacks`].
    pub stack: usize,
}

/// The single blocks of a device.
#[derive(Debug, Default)]
pub struct DeviceBlocks {
    /// Those that live, by address.
    pub live: Vec<DeviceBlock>,
    /// The last that were allocated, in order.
    pub recent: Vec<DeviceBlock>,
    /// Frames, the innermost first.
    pub stacks: Vec<Vec<Frame>>,
    /// The last request that got no memory.
    pub failed_bytes: Option<u64>,
}

/// What is kept while a capture is read: address, bytes, site.
#[derive(Debug)]
pub(crate) struct BlockLog {
    most: usize,
    recent: VecDeque<(u64, u64, u32)>,
    live: Vec<(u64, u64, u32)>,
}

impl BlockLog {
    pub(crate) fn new(most: usize) -> Self {
        BlockLog { most, recent: VecDeque::new(), live: Vec::new() }
    }

    pub(crate) fn push(&mut self, address: u64, size: u64, site: u32) {
        if self.most == 0 {
            return;
        }
        if self.recent.len() == self.most {
            self.recent.pop_front();
        }
        self.recent.push_back((address, size, site));
    }

    /// Nothing more comes: these live.
    pub(crate) fn end(&mut self, blocks: &Blocks) {
        self.live = blocks.iter().map(|(address, block)| (address, block.size, block.site)).collect();
        self.live.sort_unstable();
    }
}

impl Heap {
    /// The blocks of the device that the reading was asked to keep; `None` where it has no records.
    #[must_use]
    pub fn device_blocks(&self, symbolizer: Option<&mut dyn Symbolizer>) -> Option<DeviceBlocks> {
        let device = self.device_ledgers().find(|device| device.log.is_some())?;
        let log = device.log.as_ref()?;
        let own_code = self.own_code();
        let mut namer = Namer::new(&self.state.tree, symbolizer, &own_code);
        let mut found = DeviceBlocks {
            failed_bytes: device.ledger.failures.last().map(|failure| failure.bytes),
            ..DeviceBlocks::default()
        };
        let mut places: FxHashMap<u32, usize> = FxHashMap::default();
        let DeviceBlocks { live, recent, stacks, .. } = &mut found;
        for (kept, list) in
            [(&mut log.live.iter() as &mut dyn Iterator<Item = _>, live), (&mut log.recent.iter(), recent)]
        {
            for &(address, size, site) in kept {
                let Some(key) = device.ledger.sites.get(site as usize).map(|site| site.key) else { continue };
                let stack = *places.entry(site).or_insert_with(|| {
                    let frames =
                        namer.stack(key).into_iter().map(|frame| namer.frames[frame as usize].clone());
                    stacks.push(frames.collect());
                    stacks.len() - 1
                });
                list.push(DeviceBlock { address: address & ((1 << DEVICE_ADDRESS_BITS) - 1), size, stack });
            }
        }
        Some(found)
    }
}

/// What [`HeapReadOptions::device_blocks`](crate::HeapReadOptions) asks for.
pub(crate) fn log_of(asked: Option<(Memory, usize)>, memory: Memory) -> Option<BlockLog> {
    asked.filter(|(wanted, _)| *wanted == memory).map(|(_, most)| BlockLog::new(most))
}
