//! What the packets of a Perfetto trace refer to by number: names, modules, frames, stacks. Each sequence of packets has its own numbers.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::FrameKind;

use crate::input::Kept;
use crate::sink::{Node, Sink, Step};
use crate::wire::{Fields, Value};

/// Frames of a stack.
const MOST_FRAMES: usize = 4096;
/// Bytes of an entry of a table without its text or list.
const ENTRY: usize = size_of::<(u64, String)>();

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
    pub(crate) fn interned(&mut self, field: u32, value: Value<'_>, kept: &mut Kept) {
        match field {
            _ if kept.is_full() => {}
            5 => add_text(&mut self.functions, value, kept),
            6 => self.frame(value.bytes(), kept),
            7 => add_list(&mut self.callstacks, value, 2, kept),
            17 => add_text(&mut self.paths, value, kept),
            18 => add_text(&mut self.sources, value, kept),
            19 => add_list(&mut self.mappings, value, 7, kept),
            _ => {}
        }
    }

    /// Takes a field of `ProfilePacket`, which in older traces has the tables itself, with one numbering of texts.
    pub(crate) fn inline(&mut self, field: u32, value: Value<'_>, kept: &mut Kept) {
        match field {
            _ if kept.is_full() => {}
            1 => {
                add_text(&mut self.functions, value, kept);
                add_text(&mut self.paths, value, kept);
            }
            2 => self.frame(value.bytes(), kept),
            3 => add_list(&mut self.callstacks, value, 2, kept),
            4 => add_list(&mut self.mappings, value, 7, kept),
            _ => {}
        }
    }

    fn frame(&mut self, message: &[u8], kept: &mut Kept) {
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
        put(&mut self.frames, id, frame, kept, |_| size_of::<Frame>());
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

/// Adds the numbers in one field of a message, under the number of the message (its field 1).
fn add_list(table: &mut FxHashMap<u64, Vec<u64>>, message: Value<'_>, wanted: u32, kept: &mut Kept) {
    let (mut id, mut numbers) = (0, Vec::new());
    for (field, value) in Fields::of(message.bytes()) {
        if field == 1 {
            id = value.number();
        } else if field == wanted {
            numbers.extend(value.numbers().take(MOST_FRAMES - numbers.len()));
        }
    }
    put(table, id, numbers, kept, |numbers| ENTRY + numbers.capacity() * size_of::<u64>());
}

fn add_text(table: &mut FxHashMap<u64, String>, message: Value<'_>, kept: &mut Kept) {
    let (mut id, mut text) = (0, String::new());
    for (field, value) in Fields::of(message.bytes()) {
        match field {
            1 => id = value.number(),
            2 => text = String::from_utf8_lossy(value.bytes()).into_owned(),
            _ => {}
        }
    }
    put(table, id, text, kept, |text| ENTRY + text.len());
}

/// Adds an entry, in the place of one with the same number.
fn put<T>(table: &mut FxHashMap<u64, T>, id: u64, value: T, kept: &mut Kept, bytes: impl Fn(&T) -> usize) {
    kept.add(bytes(&value));
    if let Some(before) = table.insert(id, value) {
        kept.remove(bytes(&before));
    }
}
