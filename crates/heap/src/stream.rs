//! One stream of records as it is read: where it is, what its own numbers stand for. Must hold nothing that other streams change.

use crate::ids::IdMap;
use crate::ledger::{Block, SiteKey};
use crate::tree::ROOT;

/// Sites a stream remembers.
pub(crate) const REMEMBERED: usize = 1024;

/// A site by a stream's own numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamSite {
    pub(crate) python: u32,
    pub(crate) native: u32,
    /// The allocator, and for a device its number × 256; 0 where nothing is remembered yet.
    pub(crate) kind: u32,
    pub(crate) site: u32,
}

/// One stream's own state.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// Where it is: chunk, and records of it that are done.
    pub(crate) sequence: u64,
    pub(crate) done: u64,
    pub(crate) time_us: u64,
    pub(crate) thread: u32,
    pub(crate) allocations: u32,
    pub(crate) nodes: IdMap,
    pub(crate) taken: Option<(u64, Block)>,
    pub(crate) parts: Vec<u8>,
    pub(crate) limits: Option<[u64; 3]>,
    /// The last sites by the stream's own nodes: saves most look-ups.
    pub(crate) sites: Vec<StreamSite>,
    /// Allocations on devices.
    pub(crate) device_allocations: u32,
    /// What a device's allocator had handed out after the report to come: device and bytes.
    pub(crate) totals: Option<(u8, u64)>,
}

impl Stream {
    pub(crate) fn new(id: u32) -> Self {
        Stream { id, ..Stream::default() }
    }

    /// One whose nodes have the tree's own numbers.
    pub(crate) fn in_tree() -> Self {
        Stream { nodes: IdMap::the_same(), ..Stream::default() }
    }

    pub(crate) fn set_thread(&mut self, thread: u32) {
        if self.thread != thread {
            self.thread = thread;
            self.sites.clear();
        }
    }

    /// The site that allocates at these nodes of the stream.
    pub(crate) fn key(&self, python: u32, native: u32, kind: u8) -> SiteKey {
        let node = |id: u32| self.nodes.get(id).unwrap_or(ROOT);
        SiteKey { python: node(python), native: node(native), thread: self.thread, kind }
    }
}
