//! Names of native functions for a view that asks for the same ones every second: each address is looked up once, and never for longer
//! than a look may take. What has no name yet has one at a later look.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use stormlog_heap::{Module, Names, Symbol, Symbolizer};

/// Reading the symbols of a large library takes seconds; names wait until there is time.
const BUDGET: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct KnownNames {
    names: Names,
    known: FxHashMap<Module, FxHashMap<u64, Vec<Symbol>>>,
    /// When to give up looking for more; `None`: never.
    until: Option<Instant>,
}

impl KnownNames {
    /// Another look begins, which may take its time or not.
    pub(super) fn begin(&mut self, has_time: bool) -> &mut Self {
        self.until = if has_time { None } else { Instant::now().checked_add(BUDGET) };
        self
    }
}

impl Symbolizer for KnownNames {
    fn resolve(&mut self, module: &Module, address: u64) -> Vec<Symbol> {
        let known = self.known.get(module).and_then(|names| names.get(&address));
        if let Some(known) = known {
            return known.clone();
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Vec::new();
        }
        let found = self.names.resolve(module, address);
        self.known.entry(module.clone()).or_default().insert(address, found.clone());
        found
    }
}
