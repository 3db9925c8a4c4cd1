//! The largest holders of memory, for the run summary, the bundle and its advice. Must name what `stats` would.

use rustc_hash::FxHashMap;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::Weight;

use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;
use crate::ledger::Ledger;
use crate::locations::{self, GroupBy};
use crate::profile::Mode;
use crate::stats::LocationTotals;
use crate::tree::ROOT;

/// Native stacks whose functions are named; the others, all smaller, count together. Names take long.
const NAMED_STACKS: usize = 64;

impl Heap {
    /// The responsible lines and what they hold, the largest first.
    #[must_use]
    pub fn holders(
        &self,
        mode: Mode,
        top: usize,
        symbolizer: Option<&mut dyn Symbolizer>,
    ) -> Vec<LocationTotals> {
        self.holders_of(self.memory(), mode, top, symbolizer)
    }

    /// The same of one memory, whichever is selected.
    #[must_use]
    pub fn holders_of(
        &self,
        memory: Memory,
        mode: Mode,
        top: usize,
        symbolizer: Option<&mut dyn Symbolizer>,
    ) -> Vec<LocationTotals> {
        let Some(ledger) = self.ledger_of(memory) else { return Vec::new() };
        let own_code = self.own_code();
        let mut namer = Namer::new(&self.state.tree, symbolizer, &own_code);
        self.places_of(ledger, mode, top, &mut namer)
    }

    pub(crate) fn places_of(
        &self,
        ledger: &Ledger,
        mode: Mode,
        top: usize,
        namer: &mut Namer<'_, '_>,
    ) -> Vec<LocationTotals> {
        let mut stacks: FxHashMap<(u32, u32), Weight> = FxHashMap::default();
        for (index, site) in ledger.sites.iter().enumerate() {
            let native = if site.key.python == ROOT { site.key.native } else { ROOT };
            *stacks.entry((site.key.python, native)).or_default() +=
                ledger.weight(ledger.amount_at(mode, index));
        }
        stacks.retain(|_, weight| *weight != Weight::default());
        let mut native: Vec<(u64, (u32, u32))> = stacks
            .iter()
            .filter(|((python, native), _)| *python == ROOT && *native != ROOT)
            .map(|(stack, weight)| (weight.bytes, *stack))
            .collect();
        native.sort_unstable_by(|one, other| other.cmp(one));
        let mut smaller = Weight::default();
        for (_, stack) in native.iter().skip(NAMED_STACKS) {
            smaller += stacks.remove(stack).unwrap_or_default();
        }
        let mut grouped = locations::grouped(&stacks, GroupBy::Line, namer, &self.state.tree);
        if smaller != Weight::default() {
            let function = "<smaller native stacks>".to_owned();
            let (file, Weight { bytes, count }) = (String::new(), smaller);
            grouped.push(LocationTotals { function, file, line: 0, bytes, count });
        }
        locations::top(&grouped, top, |place| place.bytes)
    }
}

impl LocationTotals {
    /// `dataset.py:88 Cache.put`, or what of it is known.
    #[must_use]
    pub fn words(&self) -> String {
        LocationTotals::words_of(&self.file, self.line, &self.function)
    }

    /// The same of a place that is in other hands.
    #[must_use]
    pub fn words_of(file: &str, line: u32, function: &str) -> String {
        let file = match line {
            0 => file.to_owned(),
            line => format!("{file}:{line}"),
        };
        format!("{file} {function}").trim().to_owned()
    }
}
