//! Which memory was held from the driver at which moment, and which pool each block was in.

use std::collections::BTreeMap;

use super::{HomeName, Shown};
use crate::lifetimes::BlockLifetime;
use crate::recording::Recording;
use crate::rewind::{MAX_ADDR, MAX_SIZE, SegmentPool};
use crate::trace::Action;

/// The home of what is in no known segment.
pub(super) const NOWHERE: u16 = u16::MAX;

/// A segment, or a mapped stretch of an expandable one, from one moment (or event) to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldRange {
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) home: u16,
    pub(super) expandable: bool,
    pub(super) born: u32,
    pub(super) gone: u32,
}

impl HeldRange {
    /// The same in moments instead of events.
    pub(super) fn in_moments(self, shown: &Shown) -> HeldRange {
        let born = if self.born == BEFORE { 0 } else { shown.first_knowing(self.born) };
        let gone = if self.gone == NEVER { shown.len() } else { shown.first_knowing(self.gone) };
        HeldRange { born, gone, ..self }
    }
}

const BEFORE: u32 = u32::MAX;
const NEVER: u32 = u32::MAX;

#[derive(Default)]
struct Map {
    all: Vec<HeldRange>,
    live: BTreeMap<u64, usize>,
    names: Vec<HomeName>,
}

impl Map {
    fn name(&mut self, home: SegmentPool) -> u16 {
        let name = HomeName { pool: home.pool, small: home.small, stream: home.stream };
        let known = self.names.iter().position(|entry| *entry == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        u16::try_from(known).unwrap_or(NOWHERE)
    }

    fn add(&mut self, stretch: HeldRange) {
        if let Some(old) = self.live.insert(stretch.addr, self.all.len()) {
            // Only in a file that contradicts itself.
            self.end(old, stretch.born);
        }
        self.all.push(stretch);
    }

    fn end(&mut self, index: usize, event: u32) {
        if let Some(stretch) = self.all.get_mut(index) {
            stretch.gone = event;
        }
    }

    /// Takes `addr..addr + size` out of whatever is there.
    fn cut(&mut self, addr: u64, size: u64, event: u32) {
        let end = addr + size;
        while let Some((&start, &index)) = self.live.range(..end).next_back() {
            let Some(old) = self.all.get(index).copied().filter(|old| start + old.size > addr) else {
                return;
            };
            self.live.remove(&start);
            self.end(index, event);
            let rest = HeldRange { born: event, gone: NEVER, ..old };
            if start + old.size > end {
                self.add(HeldRange { addr: end, size: start + old.size - end, ..rest });
            }
            if start < addr {
                self.add(HeldRange { size: addr - start, ..rest });
                return;
            }
        }
    }

    fn home_at(&self, addr: u64) -> u16 {
        let around = self.live.range(..=addr).next_back().and_then(|(_, &index)| self.all.get(index));
        around.filter(|stretch| addr - stretch.addr < stretch.size).map_or(NOWHERE, |stretch| stretch.home)
    }
}

/// Every stretch, the names of the homes, and the home of each life.
pub(crate) fn follow(
    recording: &Recording<'_>,
    lifetimes: &[BlockLifetime],
) -> (Vec<HeldRange>, Vec<HomeName>, Vec<u16>) {
    let mut map = Map::default();
    for segment in &recording.start.segments {
        let home = map.name(segment.home);
        let (addr, size, expandable) = (segment.addr, segment.size, segment.expandable);
        map.add(HeldRange { addr, size, home, expandable, born: BEFORE, gone: NEVER });
    }
    let mut homes = Vec::with_capacity(lifetimes.len());
    let mut lifetimes = lifetimes.iter().peekable();
    while let Some(life) = lifetimes.next_if(|life| life.born.is_none()) {
        homes.push(map.home_at(life.addr));
    }
    for (index, event) in recording.snapshot.trace(recording.device).enumerate() {
        let index = index as u32;
        if event.addr >= MAX_ADDR || event.size >= MAX_SIZE || event.size == 0 {
            // A request for 0 bytes is still a block with a lifetime.
        } else if let Action::SegmentAlloc | Action::SegmentMap = event.action
            && let Some(&home) = recording.start.homes.get(&index)
        {
            let expandable = event.action == Action::SegmentMap;
            let (addr, size, home) = (event.addr, event.size, map.name(home));
            map.add(HeldRange { addr, size, home, expandable, born: index, gone: NEVER });
        } else if let Action::SegmentFree | Action::SegmentUnmap = event.action {
            map.cut(event.addr, event.size, index);
        }
        if lifetimes.next_if(|life| life.born == Some(index)).is_some() {
            homes.push(map.home_at(event.addr));
        }
    }
    (map.all, map.names, homes)
}
