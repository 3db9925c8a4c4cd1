//! Every block from its first to its last event: what a timeline draws.

use rustc_hash::FxHashMap;

use crate::intern::StackId;
use crate::recording::Recording;
use crate::snapshot::BlockState;
use crate::trace::Action;

/// One block's life, in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLifetime {
    /// Where it was.
    pub addr: u64,
    /// Its real size.
    pub size: u64,
    /// What was requested.
    pub requested: u64,
    /// Who asked.
    pub stack: StackId,
    /// The event that allocated it; none when it was there before.
    pub born: Option<u32>,
    /// The event at which the program gave it back, if it did.
    pub released: Option<u32>,
    /// The event at which it really became free, if it did.
    pub freed: Option<u32>,
}

impl Recording<'_> {
    /// Every block that was ever live, those of the start first, then in the order of their allocation.
    pub fn lifetimes(&self) -> Vec<BlockLifetime> {
        let mut tracker = self.tracker();
        let mut lifetimes: Vec<BlockLifetime> = Vec::new();
        let mut live: FxHashMap<u64, usize> = FxHashMap::default();
        for block in tracker.segments().into_iter().flat_map(|segment| segment.blocks) {
            if matches!(block.state, BlockState::Allocated | BlockState::PendingFree) {
                live.insert(block.addr, lifetimes.len());
                lifetimes.push(BlockLifetime {
                    addr: block.addr,
                    size: block.size,
                    requested: block.requested,
                    stack: block.stack,
                    born: None,
                    released: None,
                    freed: None,
                });
            }
        }
        for (index, event) in self.snapshot.trace(self.device).enumerate() {
            let index = index as u32;
            tracker.apply(index, &event);
            match event.action {
                Action::Alloc => {
                    let Some(size) = tracker.live_size(event.addr) else { continue };
                    // Its end was not recorded, but here it must have been.
                    let before = live.insert(event.addr, lifetimes.len());
                    if let Some(life) = before.and_then(|number| lifetimes.get_mut(number)) {
                        life.released = life.released.or(Some(index));
                        life.freed = Some(index);
                    }
                    lifetimes.push(BlockLifetime {
                        addr: event.addr,
                        size,
                        requested: event.size,
                        stack: event.stack,
                        born: Some(index),
                        released: None,
                        freed: None,
                    });
                }
                Action::FreeRequested => {
                    if let Some(life) = live.get(&event.addr).and_then(|&number| lifetimes.get_mut(number)) {
                        life.released = Some(index);
                    }
                }
                Action::FreeCompleted | Action::Free => {
                    if let Some(life) = live.remove(&event.addr).and_then(|number| lifetimes.get_mut(number))
                    {
                        life.released = life.released.or(Some(index));
                        life.freed = Some(index);
                    }
                }
                _ => {}
            }
        }
        lifetimes
    }
}
