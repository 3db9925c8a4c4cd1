//! What the packets of a Perfetto trace refer to by number: names, modules, frames, stacks. Each sequence of packets has its own numbers.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::FrameKind;

use crate::sink::{Node, Sink, Step};
use crate::wire::{Fields, Value};

/// Entries of all tables together, and frames of a stack.
const MOST_ENTRIES: usize = 1 << 22;
const MOST_FRAMES: usize = 4096;

#[derive(Default)]
pub(crate) struct Tables {
    functions: FxHashMap<u64, String>,
    paths: FxHashMap<u64, String>,
    sources: FxHashMap<u64, String>,
    /// The parts of a module's path.
    mappings: FxHashMap<u64, Vec<u64>>,
    frames: FxHashMap<u64, Frame>,
    /// The outermost frame first.
    callstacks: FxHashMap<u64, Vec<u64>>,
    entries: usize,
}

#[derive(Default, Clone, Copy)]
struct Frame {
    function: u64,
    mapping: u64,
    offset: u64,
    source: u64,
    line: u64,
}

impl Tables {
    /// Takes a field of `InternedData`.
    pub(crate) fn interned(&mut self, field: u32, value: Value<'_>) {
        match field {
            5 => add_text(&mut self.functions, value),
            6 => self.frame(value.bytes()),
            7 => self.callstack(value.bytes()),
            17 => add_text(&mut self.paths, value),
            18 => add_text(&mut self.sources, value),
            19 => self.mapping(value.bytes()),
            _ => return,
        }
        self.entries += 1;
    }

    /// Takes a field of `ProfilePacket`, which in older traces has the tables itself, with one numbering of texts.
    pub(crate) fn inline(&mut self, field: u32, value: Value<'_>) {
        match field {
            1 => {
                add_text(&mut self.functions, value);
                add_text(&mut self.paths, value);
            }
            2 => self.frame(value.bytes()),
            3 => self.callstack(value.bytes()),
            4 => self.mapping(value.bytes()),
            _ => return,
        }
        self.entries += 1;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries > MOST_ENTRIES
    }

    fn frame(&mut self, message: &[u8]) {
        let (mut id, mut frame) = (0, Frame::default());
        for (field, value) in Fields::of(message) {
            match field {
                1 => id = value.number(),
                2 => frame.function = value.number(),
                3 => frame.mapping = value.number(),
                4 => frame.offset = value.number(),
                5 => frame.source = value.number(),
                6 => frame.line = value.number(),
                _ => {}
            }
        }
        self.frames.insert(id, frame);
    }

    fn callstack(&mut self, message: &[u8]) {
        let (id, frames) = list(message, 2);
        self.callstacks.insert(id, frames);
    }

    fn mapping(&mut self, message: &[u8]) {
        let (id, parts) = list(message, 7);
        self.mappings.insert(id, parts);
    }

    /// The stack of a number, inside `root`.
    pub(crate) fn node(&self, callstack: u64, root: Node, sink: &mut dyn Sink) -> Node {
        let frames = self.callstacks.get(&callstack).map_or(&[][..], Vec::as_slice);
        frames.iter().fold(root, |node, id| {
            let frame = self.frames.get(id).copied().unwrap_or_default();
            let text = |table: &FxHashMap<u64, String>, id| table.get(&id).cloned().unwrap_or_default();
            let mut function = text(&self.functions, frame.function);
            if function.is_empty() {
                function = format!("{:#x}", frame.offset);
            }
            let mut file = text(&self.sources, frame.source);
            if file.is_empty() {
                let parts = self.mappings.get(&frame.mapping).map_or(&[][..], Vec::as_slice);
                file = parts.iter().map(|part| format!("/{}", text(&self.paths, *part))).collect();
            }
            let line = u32::try_from(frame.line).unwrap_or(0);
            sink.node(node, Step::Code { kind: FrameKind::Native, function: &function, file: &file, line })
        })
    }
}

/// The number of a message (its field 1) and the numbers in one of its fields.
fn list(message: &[u8], wanted: u32) -> (u64, Vec<u64>) {
    let (mut id, mut numbers) = (0, Vec::new());
    for (field, value) in Fields::of(message) {
        if field == 1 {
            id = value.number();
        } else if field == wanted {
            numbers.extend(value.numbers().take(MOST_FRAMES - numbers.len()));
        }
    }
    (id, numbers)
}

fn add_text(table: &mut FxHashMap<u64, String>, value: Value<'_>) {
    let (mut id, mut text) = (0, String::new());
    for (field, value) in Fields::of(value.bytes()) {
        match field {
            1 => id = value.number(),
            2 => text = String::from_utf8_lossy(value.bytes()).into_owned(),
            _ => {}
        }
    }
    table.insert(id, text);
}
