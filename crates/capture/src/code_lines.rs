//! Code objects and Python frames of a stream that is packed after its program has ended: every line is known then, and location tables
//! are not stored. Must leave alone what it does not understand.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::lines::{self, Code, Text};

/// Longer names are kept as they are: a foreign file must not multiply them.
const MAX_TEXT: usize = 4096;

/// The code objects of all streams.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    by_id: FxHashMap<u64, Option<Vec<u8>>>,
    bytes: usize,
    /// Those that nodes elsewhere name instructions of.
    needed: FxHashSet<u64>,
}

impl Codes {
    /// Some are needed with their tables.
    pub(crate) fn new(needed: FxHashSet<u64>) -> Self {
        Codes { needed, ..Codes::default() }
    }

    /// Takes in a definition.
    pub(crate) fn learn(&mut self, id: u64, payload: &[u8]) {
        let is_sound = Code::parse(payload).is_some_and(|code| {
            code.name.bytes.len().max(code.file.bytes.len()) <= MAX_TEXT
                && lines::without_columns(code.table).is_some()
                && [code.name.width, code.file.width].iter().all(|width| matches!(width, 1 | 2 | 4))
        });
        self.bytes += payload.len();
        let known = self.by_id.entry(id).or_insert_with(|| is_sound.then(|| payload.to_vec()));
        // What is defined twice and not alike cannot be distinguished without the order of streams.
        if known.as_deref() != Some(payload) {
            *known = None;
        }
    }

    /// Bytes processed.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A code object that can do without its table.
    pub(crate) fn without_table(&self, id: u64) -> Option<Code<'_>> {
        self.get(id).filter(|_| !self.needed.contains(&id))
    }

    /// A code object that is known for certain.
    pub(crate) fn get(&self, id: u64) -> Option<Code<'_>> {
        Code::parse(self.by_id.get(&id)?.as_deref()?)
    }
}

/// What both sides of the codec remember of the code objects of a stream.
#[derive(Debug, Default)]
pub(crate) struct Names {
    files: Vec<(u8, Vec<u8>)>,
    /// Only the encoder needs to find them.
    by_file: FxHashMap<(u8, Vec<u8>), usize>,
    first_lines: FxHashMap<u64, u32>,
    /// The code that was defined last.
    pub(crate) defined: u64,
}

impl Names {
    /// The line that lines of a code object are counted from.
    pub(crate) fn first_line(&self, id: u64) -> u32 {
        self.first_lines.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn define(&mut self, id: u64, first_line: u32) {
        self.defined = id;
        self.first_lines.insert(id, first_line);
    }

    /// How long ago this file was new; `None`: it is new now.
    pub(crate) fn find(&mut self, file: Text<'_>) -> Option<usize> {
        let key = (file.width, file.bytes.to_vec());
        let next = self.by_file.len();
        let index = *self.by_file.entry(key).or_insert(next);
        (index < next).then_some(next - index)
    }

    /// A file that is new.
    pub(crate) fn add(&mut self, file: Text<'_>) -> Option<()> {
        self.files.push((file.width, file.bytes.to_vec()));
        (file.bytes.len() <= MAX_TEXT).then_some(())
    }

    /// The file that was added `distance` files ago; 1 is the last one.
    pub(crate) fn file(&self, distance: usize) -> Option<Text<'_>> {
        let (width, bytes) = self.files.get(self.files.len().checked_sub(distance)?)?;
        Some(Text { width: *width, bytes })
    }
}
