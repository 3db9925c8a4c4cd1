//! Names of native functions, from the files on disk. Must give no name rather than a wrong one: a file that changed since is not used.

use rustc_hash::FxHashMap;
use stormlog_stack::symbols::{self, Symbols};

use crate::frames::{Symbol, Symbolizer};
use crate::tree::Module;

/// Looks names up, one table a module, opened when first needed.
#[derive(Default)]
pub struct Names {
    modules: FxHashMap<Module, Symbols>,
}

impl Names {
    /// The modules that gave no names, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut list: Vec<String> =
            self.modules.values().flat_map(Symbols::problems).map(ToString::to_string).collect();
        list.sort();
        list.dedup();
        list
    }
}

impl Symbolizer for Names {
    fn resolve(&mut self, module: &Module, address: u64) -> Vec<Symbol> {
        if !self.modules.contains_key(module) {
            // One module alone: what was mapped at its addresses before or after does not matter.
            let whole = symbols::Module {
                path: module.path.clone().into(),
                start: 0,
                end: u64::MAX,
                bias: module.base,
                build_id: module.build_id.clone(),
            };
            self.modules.insert(module.clone(), Symbols::new([whole]));
        }
        let Some(symbols) = self.modules.get_mut(module) else { return Vec::new() };
        let named = symbols.lookup(address, true).into_iter().filter_map(|function| {
            Some(Symbol { function: function.name?, file: function.file, line: function.line })
        });
        named.collect()
    }
}
