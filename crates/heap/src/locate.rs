//! The lines that allocated what is at given addresses at one moment: joins a process's own look at what keeps its memory with its capture. Kept
//! only where a reading asks for it ([`HeapReadOptions::locate`](crate::HeapReadOptions)). Must hold no more than one answer for each address.

use rustc_hash::FxHashMap;
use stormlog_capture::record::DEVICE_ADDRESS_BITS;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::Weight;

use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;
use crate::ledger::Ledger;
use crate::locations::{self, GroupBy};
use crate::stats::LocationTotals;
use crate::tree::ROOT;

/// What to look for, and when.
#[derive(Debug, Clone, Default)]
pub struct Locate {
    /// Microseconds since the start of the recording.
    pub at_us: u64,
    /// Addresses, ascending.
    pub addresses: Vec<u64>,
}

impl Locate {
    /// Which of the addresses are in blocks or mappings of a ledger, and at which site. A block inside a mapping counts before it.
    pub(crate) fn find(&self, ledger: &Ledger) -> Vec<(u64, u32)> {
        let mut found: FxHashMap<u64, (u64, u32)> = FxHashMap::default();
        let mut look = |start: u64, end: u64, site: u32| {
            let from = self.addresses.partition_point(|address| *address < start);
            for address in self.addresses[from..].iter().take_while(|address| **address < end) {
                let size = end - start;
                let known = found.entry(*address).or_insert((size, site));
                if size < known.0 {
                    *known = (size, site);
                }
            }
        };
        for (address, block) in ledger.blocks.iter() {
            let is_device = address >> 63 == 1;
            let start = if is_device { address & ((1 << DEVICE_ADDRESS_BITS) - 1) } else { address };
            look(start, start.saturating_add(block.size.max(1)), block.site);
        }
        for (start, mapping) in &ledger.mappings.ranges {
            look(*start, mapping.end, mapping.site);
        }
        found.into_iter().map(|(address, (_, site))| (address, site)).collect()
    }
}

impl Heap {
    /// The line of each address that [`HeapReadOptions::locate`](crate::HeapReadOptions) asked for and that was allocated then.
    #[must_use]
    pub fn located(
        &self,
        memory: Memory,
        symbolizer: Option<&mut dyn Symbolizer>,
    ) -> FxHashMap<u64, LocationTotals> {
        let Some(ledger) = self.ledger_of(memory) else { return FxHashMap::default() };
        let own_code = self.own_code();
        let mut namer = Namer::new(&self.state.tree, symbolizer, &own_code);
        let mut places: FxHashMap<u32, Option<LocationTotals>> = FxHashMap::default();
        let located = ledger.located.iter().flatten();
        let named = located.filter_map(|(address, site)| {
            let place = places.entry(*site).or_insert_with(|| {
                let key = ledger.sites.get(*site as usize)?.key;
                let native = if key.python == ROOT { key.native } else { ROOT };
                let one = FxHashMap::from_iter([((key.python, native), Weight { bytes: 1, count: 1 })]);
                locations::grouped(&one, GroupBy::Line, &mut namer, &self.state.tree).into_iter().next()
            });
            Some((*address, place.clone()?))
        });
        named.collect()
    }
}
