//! A cache of recently used nodes, in front of the stack tree.

/// How many: a power of two.
const SLOTS: usize = 2048;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Recent {
    address: u64,
    parent: u32,
    /// 0: none.
    node: u32,
}

/// The last nodes that were looked up, by parent and address. Valid when zero.
#[repr(C)]
pub(super) struct RecentNodes {
    used: bool,
    slots: [Recent; SLOTS],
}

impl RecentNodes {
    pub const NONE: Self = Self { used: false, slots: [Recent { address: 0, parent: 0, node: 0 }; SLOTS] };

    /// Forgets them, as for a new tree.
    pub fn clear(&mut self) {
        if self.used {
            *self = Self::NONE;
        }
    }

    /// The node, which `find` gives where it is not among these. The same as the parent: it could not be made.
    #[inline(always)]
    pub fn get(&mut self, path: &mut Path, parent: u32, address: u64, find: impl FnOnce() -> u32) -> u32 {
        path.0 = (path.0 ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (path.0 >> (u64::BITS - SLOTS.ilog2())) as usize;
        path.0 ^= path.0 >> 32;
        // SAFETY: `place` has as many bits as the logarithm of the length, so it is below the length.
        let slot = unsafe { self.slots.get_unchecked_mut(place) };
        if slot.address == address && slot.parent == parent && slot.node != 0 {
            return slot.node;
        }
        let node = find();
        if node != parent {
            *slot = Recent { address, parent, node };
            self.used = true;
        }
        node
    }
}

/// A hash of the addresses on the way from a node inwards: where to look for the next one, without waiting for the last one's node to be read.
pub(super) struct Path(u64);

impl Path {
    #[inline(always)]
    pub fn from(node: u32) -> Self {
        Self(u64::from(node) << 32)
    }
}
