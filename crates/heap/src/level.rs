//! Bytes and blocks, and how large a memory is. Must stay in the layout that the hot path of reading needs.

/// Bytes and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

impl Amount {
    pub(crate) fn gain(&mut self, other: Amount) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.count = self.count.wrapping_add(other.count);
    }

    pub(crate) fn lose(&mut self, other: Amount) {
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.count = self.count.wrapping_sub(other.count);
    }
}

/// The size of the heap, in counters that nearly every record changes. Field order keeps the compiler from vectorising paired updates: a 16-byte load
/// after two 8-byte stores defeats store-to-load forwarding and stalls.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Level {
    pub(crate) bytes: u64,
    /// Most bytes since the clock moved on.
    pub(crate) tick_max: u64,
    pub(crate) count: u64,
    /// The change that made it so large.
    pub(crate) tick_max_change: u64,
    /// Times that memory came or went.
    pub(crate) changes: u64,
}

impl Level {
    pub(crate) fn now(&self) -> Amount {
        Amount { bytes: self.bytes, count: self.count }
    }

    pub(crate) fn set(&mut self, now: Amount) {
        (self.bytes, self.count) = (now.bytes, now.count);
    }
}
