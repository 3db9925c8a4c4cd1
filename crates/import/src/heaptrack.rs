//! heaptrack's data, as its interpreter wrote it: every allocation and free in order, with stacks that have names.
//!
//! Blocks have no addresses in it: a free names the size and the stack of its block. Which of several alike it was makes no difference, but to
//! find temporary allocations the newest is taken.

use std::io::{BufRead, Read};

use stormlog_model::memory::Memory;
use stormlog_model::stacks::FrameKind;

use crate::error::{ImportError, Position};
use crate::input::{ENDS_EARLY, File, Kept, MOST_IN_ONE, is_cut};
use crate::sink::{About, Node, ROOT, Sink, Site, Step};

const MOST_TEXT: u64 = 1 << 24;
/// Bytes of a block that lives: its address, and what the heap keeps of it.
const LIVE: usize = 40;
/// Functions inlined at one address: more are not real.
const MOST_INLINED: usize = 64;

#[derive(Default)]
struct Recording {
    texts: Vec<String>,
    instructions: Vec<Instruction>,
    /// The node of each trace; the first is that of no frames.
    traces: Vec<Node>,
    blocks: Vec<Block>,
    page_size: u64,
    kept: Kept,
    /// Addresses are made up.
    next_address: u64,
}

#[derive(Clone, Default)]
struct Instruction {
    address: u64,
    module: usize,
    /// Function, file and line, the innermost inlined one first.
    frames: Vec<(usize, usize, u32)>,
}

struct Block {
    size: u64,
    trace: usize,
    /// Those that live.
    addresses: Vec<u64>,
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut reader = file.open()?;
    let mut recording = Recording { traces: vec![ROOT], next_address: 16, ..Recording::default() };
    let (mut line, mut number, mut is_sized, mut ends_early) = (Vec::new(), 0, false, false);
    loop {
        line.clear();
        match reader.by_ref().take(MOST_IN_ONE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(length) if length as u64 == MOST_IN_ONE => return Err(file.too_large()),
            Ok(_) => {}
            Err(error) if is_cut(&error) && number > 0 => {
                ends_early = true;
                break;
            }
            Err(source) => return Err(file.io(source)),
        }
        number += 1;
        // A killed recorder leaves half a line.
        let Some(text) = line.strip_suffix(b"\n") else {
            ends_early = true;
            break;
        };
        let text = String::from_utf8_lossy(text);
        let (tag, rest) = text.split_at_checked(1).unwrap_or((&text, ""));
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        let damaged = |what| file.damaged(what, Position::Line(number));
        match tag {
            "v" => {
                // `v 10400 3`: the release, the format.
                let format = rest.split(' ').nth(1).and_then(hex).unwrap_or(1);
                if format > 3 {
                    return Err(file.nothing(format!(
                        "of format {format}, of which this release reads up to 3; upgrade stormlog to read it"
                    )));
                }
                is_sized = format >= 3;
            }
            "m" => {
                let how = "that was not interpreted: run `heaptrack --interpret` on it";
                return Err(file.nothing(how));
            }
            "s" if is_sized => {
                let (length, start) = rest.split_once(' ').ok_or_else(|| damaged("a text has no length"))?;
                let length = hex(length).filter(|length| *length <= MOST_TEXT);
                let length = length.ok_or_else(|| damaged("the length of a text is damaged"))?;
                let mut whole = start.to_owned();
                while (whole.len() as u64) < length {
                    // A text may have lines of its own.
                    line.clear();
                    let left = length - whole.len() as u64 + 1;
                    let read = reader.by_ref().take(left).read_until(b'\n', &mut line);
                    if !read.is_ok_and(|length| length > 0) {
                        break;
                    }
                    whole.push('\n');
                    whole += String::from_utf8_lossy(&line).trim_end_matches('\n');
                }
                recording.text_comes(whole);
            }
            "s" => recording.text_comes(rest.to_owned()),
            _ => recording.record(tag, rest, sink).ok_or_else(|| damaged("a record is damaged"))?,
        }
        recording.kept.check(file)?;
    }
    if recording.blocks.is_empty() {
        return Err(file.nothing("without an allocation: record again"));
    }
    if ends_early {
        sink.note(ENDS_EARLY.to_owned());
    }
    Ok(())
}

impl Recording {
    fn text_comes(&mut self, text: String) {
        self.kept.add(size_of::<String>() + text.len());
        self.texts.push(text);
    }

    /// Takes a record; `None` when it is damaged.
    fn record(&mut self, tag: &str, rest: &str, sink: &mut dyn Sink) -> Option<()> {
        let mut numbers = rest.split(' ').filter(|word| !word.is_empty()).map(hex);
        let mut next = || numbers.next().flatten();
        match tag {
            "X" => {
                let command = rest.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
                sink.about(About { command, ..About::default() });
            }
            "I" => self.page_size = next()?,
            "i" => {
                let (address, module) = (next()?, place(next()?)?);
                let mut frames = Vec::new();
                while let Some(function) = next().filter(|_| frames.len() < MOST_INLINED) {
                    let (file, line) = (next().unwrap_or(0), next().unwrap_or(0));
                    frames.push((place(function)?, place(file)?, u32::try_from(line).unwrap_or(0)));
                }
                self.kept.add(size_of::<Instruction>());
                self.kept.add_list::<(usize, usize, u32)>(frames.len());
                self.instructions.push(Instruction { address, module, frames });
            }
            "t" => {
                let (instruction, parent) = (place(next()?)?, place(next()?)?);
                let parent = *self.traces.get(parent)?;
                let instruction = self.instructions.get(instruction.checked_sub(1)?)?;
                let node = self.node(parent, instruction, sink);
                self.kept.add(size_of::<Node>());
                self.traces.push(node);
            }
            "a" => {
                let (size, trace) = (next()?, place(next()?)?);
                self.traces.get(trace)?;
                self.kept.add(size_of::<Block>());
                self.blocks.push(Block { size, trace, addresses: Vec::new() });
            }
            "+" => {
                let block = self.blocks.get_mut(place(next()?)?)?;
                let node = *self.traces.get(block.trace)?;
                block.addresses.push(self.next_address);
                self.kept.add(LIVE);
                sink.allocate(Site::of(Memory::Host, node), self.next_address, block.size);
                self.next_address += 16;
            }
            "-" => {
                let block = self.blocks.get_mut(place(next()?)?)?;
                if let Some(address) = block.addresses.pop() {
                    self.kept.remove(LIVE);
                    sink.free(Memory::Host, 0, address, block.size);
                }
            }
            "c" => sink.at(next()?.saturating_mul(1000)),
            "R" => sink.resident(next()?.saturating_mul(self.page_size)),
            // Remarks, suppressions, the end of what was before an attachment, and what later releases add.
            _ => {}
        }
        Some(())
    }

    fn text(&self, id: usize) -> &str {
        id.checked_sub(1).and_then(|id| self.texts.get(id)).map_or("", String::as_str)
    }

    fn node(&self, parent: Node, instruction: &Instruction, sink: &mut dyn Sink) -> Node {
        let module = self.text(instruction.module);
        let name = format!("{:#x}", instruction.address);
        let mut native = |node, function: &str, file: &str, line| {
            sink.node(node, Step::Code { kind: FrameKind::Native, function, file, line })
        };
        if instruction.frames.is_empty() {
            return native(parent, &name, module, 0);
        }
        instruction.frames.iter().rev().fold(parent, |node, (function, file, line)| {
            let function = Some(self.text(*function)).filter(|text| !text.is_empty()).unwrap_or(&name);
            let file = Some(self.text(*file)).filter(|text| !text.is_empty() && *line > 0).unwrap_or(module);
            native(node, function, file, *line)
        })
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn place(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}
