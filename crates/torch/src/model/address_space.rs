//! Where the driver would put new memory.
//!
//! Addresses matter only to break ties between free blocks of one size. Where a recording shows the same
//! request taking a segment of the same size, its address is used; elsewhere the driver's habit is imitated:
//! room left in 32 MiB chunks first, lowest address first, then a new chunk below all others.

use std::collections::BTreeMap;

use super::heap::MIB;

const CHUNK: u64 = 32 * MIB;
/// Address space of one expandable segment: more than any device has.
const RESERVATION: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub(crate) struct AddressSpace {
    /// Free address space of chunks, by address.
    room: BTreeMap<u64, u64>,
    /// Everything below is untouched.
    low: u64,
    /// Segments in use, by address.
    used: BTreeMap<u64, u64>,
    reservations: u64,
    /// What the recording did for the current request.
    pub(crate) hint: Option<(u64, u64)>,
}

impl AddressSpace {
    /// Learns from the segments a recording took, in its order: an arena that was there first, filled from below,
    /// then chunk under chunk.
    pub(crate) fn new(segments: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut address_space = AddressSpace {
            room: BTreeMap::new(),
            low: 0,
            used: BTreeMap::new(),
            reservations: 0,
            hint: None,
        };
        let mut lowest = None;
        let mut boundary = None;
        let mut arena = Vec::new();
        for (addr, size) in segments {
            let bottom = *lowest.get_or_insert(addr);
            if boundary.is_none() && addr.saturating_add(size + CHUNK) < bottom {
                boundary = Some(addr + size.div_ceil(CHUNK) * CHUNK);
            }
            if boundary.is_none_or(|boundary| addr >= boundary) {
                arena.push((addr, size));
            }
            lowest = Some(bottom.min(addr));
        }
        address_space.low = boundary.or(lowest).unwrap_or(1 << 46) / CHUNK * CHUNK;
        if lowest.is_none() {
            // Nothing to learn from: what was seen elsewhere.
            address_space.add_room(address_space.low, 416 * MIB);
        }
        for (addr, size) in arena {
            if address_space
                .room
                .range(..addr + size)
                .next_back()
                .is_none_or(|(&start, &length)| start + length <= addr)
            {
                address_space.add_room(addr, size);
            }
        }
        address_space
    }

    pub(crate) fn occupy(&mut self, addr: u64, size: u64) {
        self.used.insert(addr, size);
        self.claim(addr, size);
    }

    fn is_vacant(&self, addr: u64, size: u64) -> bool {
        self.used
            .range(..addr.saturating_add(size))
            .next_back()
            .is_none_or(|(&start, &length)| start + length <= addr)
    }

    pub(crate) fn segment(&mut self, size: u64) -> u64 {
        if let Some((addr, recorded)) = self.hint.take()
            && recorded == size
            && self.is_vacant(addr, size)
        {
            self.occupy(addr, size);
            return addr;
        }
        let found = self.room.iter().find(|&(_, &room)| room >= size).map(|(&addr, _)| addr);
        let addr = found.unwrap_or_else(|| self.low.saturating_sub(size.div_ceil(CHUNK) * CHUNK));
        self.occupy(addr, size);
        addr
    }

    /// Takes a range out of the free address space, with the rest of its chunk left over if it needs a new one.
    fn claim(&mut self, addr: u64, size: u64) {
        let end = addr + size;
        if addr < self.low {
            let chunk = (addr + size.div_ceil(CHUNK) * CHUNK).min(self.low);
            self.low = addr;
            if chunk > end {
                self.add_room(end, chunk - end);
            }
            return;
        }
        let around = self.room.range(..=addr).next_back().map(|(&start, &length)| (start, length));
        if let Some((start, length)) = around
            && start + length >= end
        {
            self.room.remove(&start);
            if start < addr {
                self.room.insert(start, addr - start);
            }
            if end < start + length {
                self.room.insert(end, start + length - end);
            }
        }
    }

    pub(crate) fn release(&mut self, addr: u64) {
        if let Some(size) = self.used.remove(&addr) {
            self.add_room(addr, size);
        }
    }

    fn add_room(&mut self, addr: u64, size: u64) {
        let (mut addr, mut size) = (addr, size);
        if let Some(after) = self.room.remove(&(addr + size)) {
            size += after;
        }
        if let Some((&before, &length)) = self.room.range(..addr).next_back()
            && before + length == addr
        {
            addr = before;
            size += length;
        }
        self.room.insert(addr, size);
    }

    /// Address space for a new expandable segment.
    pub(crate) fn reservation(&mut self) -> (u64, u64) {
        if let Some((addr, _)) = self.hint.take() {
            return (addr, RESERVATION);
        }
        self.reservations += 1;
        ((1 << 60) + self.reservations * 2 * RESERVATION, RESERVATION)
    }
}
