//! Finds addresses that several streams use within one tick.
//!
//! A thread allocates a block, another frees it and gets the same address again, the first frees that: read stream by stream, the first
//! thread seems to free its own block, and the second then frees nothing. So before a tick is applied, such addresses are found and an
//! order is searched for them (see `solve`). Must cost next to nothing where nothing is shared.

use rustc_hash::FxHashMap;
use stormlog_capture::op::{Op, PAIRS, is_allocation, is_free, is_mapping, is_on_device};
use stormlog_capture::record::kind;

use super::address::Address;
use super::solve::{self, SharedRecord};

const SHARED: u16 = u16::MAX;
const MOST_BITS: u32 = 20;
/// Steps that may be undone in one reading: bounds the search to seconds for any file.
const BUDGET: usize = 20_000_000;

/// The streams to come at each shared address, last first.
#[derive(Debug)]
pub(crate) struct Turns {
    left: FxHashMap<u64, Vec<usize>>,
    /// The streams that use the addresses of the tick, by a hash of the address.
    users: Vec<u16>,
    bits: u32,
    budget: usize,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { left: FxHashMap::default(), users: Vec::new(), bits: 0, budget: BUDGET }
    }
}

impl Turns {
    /// Looks through the records of a tick (a stream, and its records in pieces): does any address seem to be shared?
    pub(crate) fn look(&mut self, streams: &[(usize, Vec<&[Op]>)]) -> bool {
        self.left.clear();
        let total: usize = streams.iter().flat_map(|(_, pieces)| pieces).map(|piece| piece.len()).sum();
        self.bits = (usize::BITS - (total * 4).leading_zeros()).clamp(8, MOST_BITS);
        self.users.clear();
        self.users.resize(1 << self.bits, 0);
        let mut is_any_shared = false;
        for (number, (_, pieces)) in streams.iter().enumerate() {
            let own = (number + 1).min(usize::from(SHARED - 1)) as u16;
            for op in pieces.iter().copied().flatten().filter(|op| has_block(op.kind)) {
                let user = &mut self.users[place(op.address, self.bits)];
                if *user == 0 {
                    *user = own;
                } else if *user != own {
                    *user = SHARED;
                    is_any_shared = true;
                }
            }
        }
        is_any_shared
    }

    /// Whether an address seems to be shared, by the last look: may be wrongly true, never wrongly false.
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        self.users.get(place(address, self.bits)) == Some(&SHARED)
    }

    /// Finds an order for the shared addresses, whose records must all be present individually. `is_live` knows the blocks from before.
    pub(crate) fn prepare(&mut self, streams: &[(usize, Vec<&[Op]>)], is_live: impl Fn(u64) -> bool) {
        let mut by_address: FxHashMap<u64, Address> = FxHashMap::default();
        for (stream, pieces) in streams {
            let ops = pieces.iter().copied().flatten().filter(|op| has_block(op.kind));
            for op in ops.filter(|op| self.is_shared(op.address)) {
                by_address
                    .entry(op.address)
                    .or_default()
                    .push(*stream, is_free(op.kind) || op.kind == kind::DEVICE_FREE);
            }
        }
        // The others only have the same hash.
        by_address.retain(|_, address| address.users.len() > 1);
        let keys: Vec<u64> = by_address.keys().copied().collect();
        let index: FxHashMap<u64, usize> =
            keys.iter().enumerate().map(|(index, key)| (*key, index)).collect();
        let mut addresses: Vec<Address> = keys.iter().filter_map(|key| by_address.remove(key)).collect();
        for (key, address) in keys.iter().zip(&mut addresses) {
            address.is_live = is_live(*key);
            address.begin();
        }
        let turns: Vec<(usize, Vec<SharedRecord>)> =
            streams.iter().map(|(stream, pieces)| (*stream, turns_of(pieces, &index))).collect();
        let orders = solve::solve(&mut addresses, &turns, &mut self.budget);
        for (key, mut order) in keys.into_iter().zip(orders) {
            order.reverse();
            self.left.insert(key, order);
        }
    }

    /// Clears the order.
    pub(crate) fn clear(&mut self) {
        self.left.clear();
    }

    /// Nothing is shared: streams may be applied in any order.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether this stream may continue with this record, or another comes first. If it may, the next stream in the order is due.
    pub(crate) fn take(&mut self, stream: usize, op: &Op) -> bool {
        let Some(left) = has_block(op.kind).then(|| self.left.get_mut(&op.address)).flatten() else {
            return true;
        };
        match left.last() {
            Some(next) if *next != stream => false,
            _ => {
                left.pop();
                true
            }
        }
    }
}

fn turns_of(pieces: &[&[Op]], index: &FxHashMap<u64, usize>) -> Vec<SharedRecord> {
    let ops = || pieces.iter().copied().flatten();
    let total: u64 = ops().map(Op::records).sum();
    let mut passed = 0;
    let placed = ops().map(|op| {
        let at = passed;
        passed += op.records();
        (at, op)
    });
    let turns = placed.filter(|(_, op)| has_block(op.kind)).filter_map(|(at, op)| {
        Some(SharedRecord { address: *index.get(&op.address)?, when: at as f32 / total as f32 })
    });
    turns.collect()
}

/// Whether it concerns one block. Mappings can be split anywhere and are not handled here.
fn has_block(kind: u8) -> bool {
    is_free(kind)
        || kind == kind::REALLOC_UNDO
        || kind == PAIRS
        || (is_allocation(kind) && !is_mapping(kind))
        || is_on_device(kind)
}

fn place(address: u64, bits: u32) -> usize {
    ((address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}
