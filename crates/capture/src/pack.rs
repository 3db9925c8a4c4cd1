//! Packs records into columns (see `columns`). Must keep every record; of a code object's definition only what no reader uses is left out.

use crate::code_lines::{Codes, Names};
use crate::columns::*;
use crate::dictionary;
use crate::glibc;
use crate::lines::{self, Text, line_at};
use crate::op::{Op, Ops, PAIRS, is_allocation, is_free, is_mapping, is_node, is_on_device};
use crate::predict::{AddressGuess, Predictor, Victim};
use crate::record::{definition, kind, zigzag};
use crate::tree::{Frame, Tree};
use crate::wire::Put;

/// Columns of this many bytes are compressed as well as can be: that takes some ten milliseconds. Larger ones are compressed well.
const SMALL: usize = 64 << 10;
const BEST: i32 = 19;
const GOOD: i32 = 12;
/// Shorter columns are not compressed at all.
const WORTHWHILE: usize = 25;

/// Chunks of one stream that follow each other, on their way into a block.
#[derive(Debug)]
pub(crate) struct Packer<'a> {
    columns: [Vec<u8>; COLUMNS],
    predictor: Predictor,
    /// The memory of devices, which the C library's allocator knows nothing of.
    devices: Option<Box<Predictor>>,
    last: Last,
    /// The next definition begins here: it is not a later part of one.
    is_first_part: bool,
    /// The code objects, where a stream is packed whole.
    codes: Option<&'a Codes>,
    names: Names,
    tree: Tree,
    reach: u64,
}

impl<'a> Packer<'a> {
    /// `is_start`: nothing of this stream came before.
    pub(crate) fn new(is_start: bool) -> Self {
        let (columns, last, names, tree, reach) = Default::default();
        let (predictor, devices) = (Predictor::encoder(), None);
        Packer { columns, predictor, devices, last, is_first_part: is_start, codes: None, names, tree, reach }
    }

    /// For a stream that is packed whole. The C library's allocator is followed for this many records as `reach` says.
    pub(crate) fn whole(is_start: bool, first_node: u32, codes: &'a Codes, reach: u64) -> Self {
        let predictor = Predictor::whole_encoder(reach);
        let tree = Tree::new(first_node);
        Packer { predictor, tree, codes: Some(codes), reach, ..Self::new(is_start) }
    }

    /// Adds a chunk.
    pub(crate) fn push(&mut self, ops: &Ops) {
        let mut payload = &ops.payload[..];
        let mut at = 0;
        while let Some(op) = ops.list.get(at) {
            if op.kind == kind::DEFINITION {
                let (own, rest) = payload.split_at(payload.len().min(op.python as usize));
                payload = rest;
                self.definition(op, own);
            } else {
                self.record(op);
            }
            at += 1;
            let again = times_more(&ops.list, at);
            if again > 0 {
                self.columns[KINDS].push(PAIRS);
                self.columns[AGAIN].put(again as u64);
                at += 2 * again;
            }
        }
    }

    /// The block's content.
    pub(crate) fn finish(self, level: i32) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut compressor = zstd::bulk::Compressor::new(level)?;
        for column in &self.columns[..Form::Running.columns()] {
            put_column(&mut out, column, &mut compressor)?;
        }
        Ok(out)
    }

    /// The content of a block that is packed whole, with the help of what is typical of a Python of this version.
    pub(crate) fn finish_whole(self, python: Option<u64>) -> std::io::Result<Vec<u8>> {
        let number = python.map_or(0, dictionary::number_for);
        let mut out = vec![number, glibc::MODEL];
        out.put(self.reach);
        let dictionary = dictionary::numbered(number).flatten();
        let mut plain = zstd::bulk::Compressor::new(BEST)?;
        for (index, column) in self.columns.iter().enumerate() {
            let level = if column.len() <= SMALL { BEST } else { GOOD };
            match dictionary
                .and_then(|dictionary| dictionary.get(index))
                .filter(|_| column.len() >= WORTHWHILE)
            {
                Some(dictionary) => {
                    let mut compressor = zstd::bulk::Compressor::with_dictionary(level, dictionary)?;
                    put_column(&mut out, column, &mut compressor)?;
                }
                None => {
                    plain.set_compression_level(level)?;
                    put_column(&mut out, column, &mut plain)?;
                }
            }
        }
        Ok(out)
    }

    /// The columns as they are.
    pub(crate) fn into_columns(self) -> [Vec<u8>; COLUMNS] {
        self.columns
    }

    fn definition(&mut self, op: &Op, payload: &[u8]) {
        let is_last_part = op.native != 1;
        let codes = self.codes.filter(|_| op.size == definition::CODE);
        if let Some(code) = codes.and_then(|codes| codes.without_table(op.address)) {
            self.is_first_part = is_last_part;
            if is_last_part {
                self.code(op.address, code);
            } else {
                self.columns[KINDS].push(op.kind);
                for value in [op.size, op.address, 0, 1] {
                    self.columns[DEFINITIONS].put(value);
                }
            }
            return;
        }
        let short = (self.is_first_part && is_last_part).then(|| lines::shorten(op.size, payload)).flatten();
        let payload = short.as_deref().unwrap_or(payload);
        self.is_first_part = is_last_part;
        self.columns[KINDS].push(op.kind);
        for value in [op.size, op.address, payload.len() as u64, u64::from(op.native)] {
            self.columns[DEFINITIONS].put(value);
        }
        self.columns[PAYLOAD].extend_from_slice(payload);
    }

    /// A code object in short.
    fn code(&mut self, id: u64, code: lines::Code<'_>) {
        let Packer { columns, names, .. } = self;
        columns[KINDS].push(CODE);
        columns[IDS].put(zigzag(id.wrapping_sub(names.defined) as i64));
        columns[FIRST_LINES].put(u64::from(code.first_line));
        put_text(&mut columns[NAMES], code.name);
        let distance = names.find(code.file);
        columns[FILES].put(distance.unwrap_or(0) as u64);
        if distance.is_none() {
            put_text(&mut columns[FILE_NAMES], code.file);
        }
        names.define(id, code.first_line);
    }

    /// A Python frame by its line; false when its code is not known for certain.
    fn frame(&mut self, op: &Op) -> bool {
        let Some(code) = self.codes.and_then(|codes| codes.get(op.address)) else { return false };
        let line = match op.kind {
            kind::NODE_LINE => op.size,
            _ => u64::from(line_at(code.table, code.first_line, (op.size >> 1) as u32)) << 1 | op.size & 1,
        };
        let (frame, parent) = (Frame { code: op.address, line }, op.native);
        let Packer { columns, names, tree, .. } = self;
        columns[KINDS].push(kind::NODE_LINE);
        match tree.steps_to(parent) {
            Some(steps) => columns[PARENTS].push(steps),
            None => {
                columns[PARENTS].push(ELSEWHERE);
                columns[PARENTS].put(u64::from(op.python.wrapping_sub(parent)));
            }
        }
        let rank = tree.rank(parent, frame);
        columns[CALLS].push(rank.map_or(0, |rank| rank + 1));
        if rank.is_none() {
            match tree.code_rank(frame.code) {
                Some(rank) => columns[CODES].put(rank + 1),
                None => {
                    columns[CODES].put(0);
                    columns[CODES].put(zigzag(names.defined.wrapping_sub(frame.code) as i64));
                }
            }
            let from = i64::from(names.first_line(frame.code));
            columns[LINES].put(zigzag((line >> 1) as i64 - from) << 1 | line & 1);
        }
        tree.add(parent, frame);
        true
    }

    fn record(&mut self, op: &Op) {
        if matches!(op.kind, kind::NODE_PYTHON | kind::NODE_LINE) && self.frame(op) {
            return;
        }
        let Packer { columns, predictor, devices, last, tree, codes, .. } = self;
        let mut control = if op.kind == kind::NODE_MARK { MARK } else { op.kind };
        let literal = |columns: &mut [Vec<u8>; COLUMNS], last: &mut u64, address: u64| {
            // Turned, the bits that are zero in an aligned address are the high ones.
            let difference = address.rotate_right(3).wrapping_sub(last.rotate_right(3));
            columns[ADDRESSES].put(zigzag(difference as i64));
            *last = address;
        };
        // Kept apart from the host's blocks, whose guesses it would spoil.
        let (predictor, last_address) = match is_on_device(op.kind) {
            false => (predictor, &mut last.address),
            true => {
                let new = || Box::new(Predictor::device_encoder(codes.is_some()));
                (&mut **devices.get_or_insert_with(new), &mut last.device_address)
            }
        };
        if is_allocation(op.kind) || matches!(op.kind, kind::FAILED | kind::DEVICE_ALLOCATION) {
            if op.python != last.python {
                control |= OTHER_PYTHON;
                columns[PYTHON].put(zigzag(i64::from(op.python) - i64::from(last.python)));
                last.python = op.python;
            }
            if op.native != last.native {
                control |= OTHER_NATIVE;
                columns[NATIVE].put(zigzag(i64::from(op.native) - i64::from(last.native)));
                last.native = op.native;
            }
            tree.near = op.python;
            columns[SIZES].put(op.size);
        }
        if is_node(op.kind) {
            tree.add_other(op.native);
        }
        columns[KINDS].push(control);
        match op.kind {
            allocator if is_allocation(allocator) || allocator == kind::DEVICE_ALLOCATION => {
                let guess = predictor.guess(allocator, op.size, op.address);
                columns[PLACES].push(match guess {
                    AddressGuess::Freed(rank) => rank as u8,
                    AddressGuess::Stray(rank) => STRAY + rank as u8,
                    AddressGuess::Behind => BEHIND,
                    AddressGuess::Taken => TAKEN,
                    AddressGuess::After(rank) if rank <= usize::from(LAST_AFTER - AFTER) => {
                        AFTER + rank as u8
                    }
                    AddressGuess::After(_) => OLD,
                    AddressGuess::Foreseen => FORESEEN,
                    AddressGuess::Unknown => UNKNOWN,
                });
                match guess {
                    AddressGuess::Unknown => literal(columns, last_address, op.address),
                    AddressGuess::After(rank) if rank > usize::from(LAST_AFTER - AFTER) => {
                        columns[FAR].put(rank as u64)
                    }
                    _ => {}
                }
            }
            free if is_free(free) || free == kind::DEVICE_FREE => {
                let victim = predictor.victim(free, op.address);
                columns[VICTIMS].push(match victim {
                    Victim::Young(rank) => rank as u8,
                    Victim::Near(distance) => AROUND.wrapping_add_signed(distance as i8),
                    Victim::Old(_) | Victim::Apart(_) => OLD,
                    Victim::Unknown => UNKNOWN,
                });
                match victim {
                    Victim::Old(age) => columns[AGES].put(age as u64),
                    Victim::Apart(difference) => columns[AGES].put(zigzag(difference)),
                    Victim::Unknown => literal(columns, last_address, op.address),
                    Victim::Young(_) | Victim::Near(_) => {}
                }
                if free == kind::DEVICE_FREE {
                    columns[SIZES].put(op.size);
                }
            }
            kind::REALLOC_UNDO => {
                literal(columns, last_address, op.address);
                predictor.undo();
            }
            kind::MUNMAP => {
                literal(columns, last_address, op.address);
                columns[SIZES].put(op.size);
            }
            kind::FAILED => columns[AGES].put(op.address),
            kind::TIME => {
                columns[TIMES].put(zigzag(op.size.wrapping_sub(last.time) as i64));
                last.time = op.size;
            }
            kind::NODE_PYTHON => {
                columns[NODES].put(op.address);
                columns[NODES].put(op.size);
                columns[NODES].put(u64::from(op.python.wrapping_sub(op.native)));
            }
            kind::NODE_NATIVE => {
                columns[NODES].put(zigzag(op.address.wrapping_sub(last.native_address) as i64));
                columns[NODES].put(u64::from(op.python.wrapping_sub(op.native)));
                last.native_address = op.address;
            }
            kind::NODE_TRUNCATED => columns[NODES].put(u64::from(op.python.wrapping_sub(op.native))),
            kind::NODE_MARK => {
                columns[NODES].put(op.address);
                columns[NODES].put(u64::from(op.python.wrapping_sub(op.native)));
            }
            _ => {}
        }
    }
}

fn put_column(
    out: &mut Vec<u8>,
    column: &[u8],
    compressor: &mut zstd::bulk::Compressor<'_>,
) -> std::io::Result<()> {
    let packed = if column.len() >= WORTHWHILE { compressor.compress(column)? } else { Vec::new() };
    let is_packed = !packed.is_empty() && packed.len() < column.len();
    out.put(column.len() as u64);
    out.put_bytes(if is_packed { &packed } else { column });
    Ok(())
}

/// Its length and width in one number, then its bytes.
fn put_text(column: &mut Vec<u8>, text: Text<'_>) {
    column.put((text.bytes.len() as u64) << 2 | u64::from(text.width.trailing_zeros()));
    column.extend_from_slice(text.bytes);
}

/// How often the two records before `at` come again, when they are a block that comes and goes.
fn times_more(list: &[Op], at: usize) -> usize {
    let Some((_, pair)) = list.get(..at).and_then(|before| before.split_last_chunk::<2>()) else { return 0 };
    if !is_pair(&pair[0], &pair[1]) {
        return 0;
    }
    list[at..].chunks_exact(2).take_while(|next| *next == pair).count()
}

/// Is `free` the end of the block that `born` makes?
pub(crate) fn is_pair(born: &Op, free: &Op) -> bool {
    is_allocation(born.kind)
        && !is_mapping(born.kind)
        && matches!(free.kind, kind::FREE | kind::PY_FREE)
        && born.address == free.address
}
