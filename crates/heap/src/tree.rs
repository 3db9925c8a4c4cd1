//! The stack tree of all streams: nodes merged by value, the code and the modules they refer to. Must hold each thing once.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stormlog_model::stacks::FrameKind;

use crate::ids::Ids;

/// A code object as it was defined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) first_line: u32,
    pub(crate) table: Vec<u8>,
}

/// A library or program that was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Module {
    /// Its load address (bias).
    pub base: u64,
    /// Its executable segments in memory, start and end.
    pub segments: Vec<(u64, u64)>,
    /// Its build id, or nothing.
    pub build_id: Vec<u8>,
    /// Its file.
    pub path: String,
}

/// What a node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Code slot, instruction, and whether the interpreter was entered again.
    Python { code: u32, instruction: u32, is_entry: bool },
    /// A line known already (imported captures).
    Line { code: u32, line: u32, is_entry: bool },
    /// A place whose name was known already and that is not Python (imported captures).
    Named { code: u32, line: u32, kind: FrameKind },
    /// Return address and module slot.
    Native { address: u64, module: u32 },
    /// Frames left out.
    Truncated,
    /// Something about the stack that is not a frame: one of the record's [marks](stormlog_capture::record::mark), or [`BEFORE_RECORDING`].
    Mark { mark: u32 },
}

/// The mark of memory that is older than the recording; no record has it.
pub(crate) const BEFORE_RECORDING: u32 = u32::MAX;

pub(crate) const NO_MODULE: u32 = u32::MAX;
/// "No stack", and the parent of outermost frames.
pub(crate) const ROOT: u32 = 0;

#[derive(Debug)]
pub(crate) struct Tree {
    /// Parent and step of each node; node 0 is the root.
    pub(crate) nodes: Vec<(u32, Step)>,
    by_value: Ids,
    pub(crate) codes: Vec<Code>,
    pub(crate) code_by_id: FxHashMap<u64, u32>,
    defined: FxHashMap<Code, u32>,
    pub(crate) modules: Vec<Module>,
    /// Segments in memory now: start to (end, module).
    pub(crate) loaded: BTreeMap<u64, (u64, u32)>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            nodes: vec![(ROOT, Step::Truncated)],
            by_value: Ids::default(),
            codes: Vec::new(),
            code_by_id: FxHashMap::default(),
            defined: FxHashMap::default(),
            modules: Vec::new(),
            loaded: BTreeMap::new(),
        }
    }
}

impl Tree {
    pub(crate) fn node(&mut self, parent: u32, step: Step) -> u32 {
        let id = self.by_value.place(&self.nodes, (parent, step), |node| *node);
        if id as usize == self.nodes.len() {
            self.nodes.push((parent, step));
        }
        id
    }

    /// The slot of a code id. It may be defined later, by another stream: then the slot is empty until it is.
    pub(crate) fn code(&mut self, id: u64) -> u32 {
        let next = self.codes.len() as u32;
        let slot = *self.code_by_id.entry(id).or_insert(next);
        if slot == next {
            self.codes.push(Code::default());
        }
        slot
    }

    pub(crate) fn define_code(&mut self, id: u64, code: Code) {
        let slot = self.code(id);
        let held = &self.codes[slot as usize];
        if *held == code {
            return;
        }
        // The same code under another id is the same code; but nodes may refer to this slot already.
        if *held == Code::default() {
            self.defined.entry(code.clone()).or_insert(slot);
            self.codes[slot as usize] = code;
            return;
        }
        let next = self.codes.len() as u32;
        let slot = *self.defined.entry(code.clone()).or_insert(next);
        if slot == next {
            self.codes.push(code);
        }
        self.code_by_id.insert(id, slot);
    }

    /// The slot of code that is known by its names alone.
    pub(crate) fn named_code(&mut self, name: &str, file: &str) -> u32 {
        let code = Code { name: name.to_owned(), file: file.to_owned(), ..Code::default() };
        let next = self.codes.len() as u32;
        let slot = *self.defined.entry(code.clone()).or_insert(next);
        if slot == next {
            self.codes.push(code);
        }
        slot
    }

    pub(crate) fn load(&mut self, module: Module) {
        let known = self.modules.iter().position(|other| *other == module);
        let slot = known.unwrap_or(self.modules.len()) as u32;
        for (start, end) in &module.segments {
            self.loaded.insert(*start, (*end, slot));
        }
        if known.is_none() {
            self.modules.push(module);
        }
    }

    pub(crate) fn unload(&mut self, base: u64) {
        let modules = &self.modules;
        self.loaded
            .retain(|_, (_, slot)| modules.get(*slot as usize).is_none_or(|module| module.base != base));
    }

    /// Nothing more comes: the lookup tables are dropped.
    pub(crate) fn close(&mut self) {
        self.by_value = Ids::default();
        self.code_by_id = FxHashMap::default();
        self.defined = FxHashMap::default();
    }

    /// The module an address is in now. A return address may be just behind its segment's last byte.
    pub(crate) fn module_at(&self, address: u64) -> u32 {
        match self.loaded.range(..=address).next_back() {
            Some((_, (end, slot))) if address <= *end => *slot,
            _ => NO_MODULE,
        }
    }

    /// Frames of a node, innermost first.
    pub(crate) fn frames(&self, node: u32) -> impl Iterator<Item = Step> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let (parent, step) = *self.nodes.get(at as usize)?;
            // A parent always has the smaller number, so this ends.
            if at == ROOT || parent >= at {
                return None;
            }
            at = parent;
            Some(step)
        })
    }

    /// Puts back what a state held; false when it contradicts itself.
    pub(crate) fn restore(&mut self, nodes: Vec<(u32, Step)>) -> bool {
        let sound = nodes.iter().enumerate().skip(1).all(|(id, (parent, _))| (*parent as usize) < id);
        if !sound || nodes.is_empty() {
            return false;
        }
        self.by_value = Ids::of(&nodes);
        self.defined =
            self.codes.iter().enumerate().map(|(slot, code)| (code.clone(), slot as u32)).collect();
        self.nodes = nodes;
        true
    }
}
