//! The records of a block as columns, each compressed alone. Must decode any bytes into an error or into records, with bounded memory.
//!
//! Values of one kind are stored together: kinds, guesses of addresses (see `predict`), sizes, nodes, times. A regular program
//! leaves regular columns, and those compress to almost nothing. A block that comes and goes again and again, the same each time, is
//! written once, with a count. This file takes columns apart; `pack` makes them.
//!
//! A stream that is repacked, when its program has ended, has frames with lines and short definitions of code objects (see `code_lines`),
//! better guesses, and columns that were compressed with what is typical of them (see `dictionary`).

use rustc_hash::FxHashSet;

use crate::code_lines::Names;
use crate::dictionary;
use crate::glibc;
use crate::lines::{Code, Text};
use crate::op::{Op, Ops, PAIRS, is_allocation, is_free};
use crate::pack::is_pair;
use crate::predict::{AddressGuess, NEAR, Predictor, Victim};
use crate::record::{definition, kind, unzigzag};
use crate::tree::{Frame, Tree};
use crate::wire::{Take, number};

pub(crate) const KINDS: usize = 0;
pub(crate) const PLACES: usize = 1;
pub(crate) const VICTIMS: usize = 2;
pub(crate) const AGES: usize = 3;
pub(crate) const ADDRESSES: usize = 4;
pub(crate) const SIZES: usize = 5;
pub(crate) const PYTHON: usize = 6;
pub(crate) const NATIVE: usize = 7;
pub(crate) const TIMES: usize = 8;
pub(crate) const NODES: usize = 9;
pub(crate) const DEFINITIONS: usize = 10;
pub(crate) const PAYLOAD: usize = 11;
/// Counts of repetitions.
pub(crate) const AGAIN: usize = 12;
/// The columns from here on exist only in repacked streams (`repack.rs`). Of a Python node: its code, its line, its parent.
pub(crate) const CODES: usize = 13;
pub(crate) const LINES: usize = 14;
pub(crate) const PARENTS: usize = 15;
/// Of a code object: its id, its first line, its name, its file and, where that is new, the name of it.
pub(crate) const IDS: usize = 16;
pub(crate) const FIRST_LINES: usize = 17;
pub(crate) const NAMES: usize = 18;
pub(crate) const FILES: usize = 19;
pub(crate) const FILE_NAMES: usize = 20;
/// How many blocks ago the one was that a block is behind.
pub(crate) const FAR: usize = 21;
/// Whether a frame was called from its caller's line before, and how long ago.
pub(crate) const CALLS: usize = 22;
pub(crate) const COLUMNS: usize = 23;

/// How a block of chunks is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Some chunks of a stream, while its program runs.
    Running,
    /// All of a stream, when its program has ended, with more columns and better guesses: of addresses by what the C library does, of frames by
    /// those before.
    Sealed,
}

impl Form {
    pub(crate) fn columns(self) -> usize {
        match self {
            Form::Running => CODES,
            Form::Sealed => COLUMNS,
        }
    }
}

/// A code object in short, where a kind is written: it is a `DEFINITION` to everyone else.
pub(crate) const CODE: u8 = 27;

/// A `NODE_MARK`, where a kind is written: its own number is that of [`CODE`].
pub(crate) const MARK: u8 = 0;

/// Bits of a kind's byte: the node differs from the last one.
pub(crate) const OTHER_PYTHON: u8 = 32;
pub(crate) const OTHER_NATIVE: u8 = 64;

pub(crate) const STRAY: u8 = 64;
pub(crate) const BEHIND: u8 = 128;
pub(crate) const TAKEN: u8 = 129;
pub(crate) const AFTER: u8 = 130;
pub(crate) const LAST_AFTER: u8 = 250;
pub(crate) const FORESEEN: u8 = 251;
/// A parent that is not on the last stack: its distance follows.
pub(crate) const ELSEWHERE: u8 = 255;
/// In the middle of those that stand for neighbours of the block freed last.
pub(crate) const AROUND: u8 = 128;
const FIRST_AROUND: u8 = AROUND - NEAR as u8;
const LAST_AROUND: u8 = AROUND + (NEAR - 1) as u8;
pub(crate) const OLD: u8 = 254;
pub(crate) const UNKNOWN: u8 = 255;

/// No column of a sound block is longer.
const MAX_COLUMN: usize = 32 << 20;
/// Records taken at a time; repetitions count once.
const BATCH: usize = 4096;

/// What both sides remember between records.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) address: u64,
    /// The last one on a device.
    pub(crate) device_address: u64,
    pub(crate) python: u32,
    pub(crate) native: u32,
    pub(crate) native_address: u64,
    pub(crate) time: u64,
}

/// Takes packed records apart, some at a time.
#[derive(Debug)]
pub struct Columns {
    columns: [Vec<u8>; COLUMNS],
    at: [usize; COLUMNS],
    predictor: Predictor,
    /// The memory of devices, which the C library's allocator knows nothing of.
    devices: Option<Box<Predictor>>,
    last: Last,
    next_node: u32,
    /// The last two records, for when they come again.
    before: [Op; 2],
    /// Records of a repetition that are still to come: of each two an allocation first.
    left: u64,
    is_sealed: bool,
    names: Names,
    tree: Tree,
    /// Bytes of definitions that were put together.
    made: usize,
}

impl Columns {
    /// `None`: these bytes were never packed by this codec.
    pub(crate) fn new(bytes: &[u8], first_node: u32, form: Form) -> Option<Self> {
        let Unpacked { columns, reach } = unpack(bytes, form)?;
        let at = [0; COLUMNS];
        let predictor = Predictor::decoder(columns[PLACES].len()).foreseeing(reach);
        Some(Columns {
            columns,
            at,
            predictor,
            devices: None,
            last: Last::default(),
            next_node: first_node,
            before: Default::default(),
            left: 0,
            is_sealed: form == Form::Sealed,
            names: Names::default(),
            tree: Tree::new(first_node),
            made: 0,
        })
    }

    /// Decodes some records onto `ops`, `most` at the most. Some(true): there are more. `None`: damaged.
    pub fn next(&mut self, most: usize, ops: &mut Ops) -> Option<bool> {
        let start = ops.list.len();
        let mut room = most as u64;
        ops.list.reserve(most.min(BATCH).min(self.columns[KINDS].len() - self.at[KINDS] + 1));
        while room > 0 && ops.list.len() - start < BATCH {
            if self.left > 0 {
                room -= self.again(room, ops);
                continue;
            }
            // Plain ones in a row: nearly all there are.
            let plain = (room.min(BATCH as u64) as usize).min(BATCH - (ops.list.len() - start));
            let before = ops.list.len();
            for _ in 0..plain {
                match self.columns[KINDS].get(self.at[KINDS]) {
                    None | Some(&PAIRS) => break,
                    // In its place from the start: to build it elsewhere and copy it takes longer than to decode it.
                    Some(_) => ops.list.push(Op::default()),
                }
                let Ops { list, payload, .. } = &mut *ops;
                self.one(list.last_mut()?, payload)?;
            }
            room -= (ops.list.len() - before) as u64;
            match self.columns[KINDS].get(self.at[KINDS]) {
                None => break,
                Some(&PAIRS) if room > 0 && ops.list.len() - start < BATCH => {
                    self.begin_again(&ops.list[start..])?;
                }
                Some(_) => {}
            }
        }
        if self.left == 0 {
            self.before = self.last_two(&ops.list[start..]);
        }
        Some(self.left > 0 || self.at[KINDS] < self.columns[KINDS].len())
    }

    fn last_two(&self, new: &[Op]) -> [Op; 2] {
        match new {
            [.., one, other] => [*one, *other],
            [one] => [self.before[1], *one],
            [] => self.before,
        }
    }

    fn begin_again(&mut self, new: &[Op]) -> Option<()> {
        self.at[KINDS] += 1;
        self.before = self.last_two(new);
        let times = self.number(AGAIN).filter(|times| (1..=u64::from(u32::MAX)).contains(times))?;
        self.left = 2 * times;
        is_pair(&self.before[0], &self.before[1]).then_some(())
    }

    /// As much of a repetition as there is room for; gives how many records that is.
    fn again(&mut self, room: u64, ops: &mut Ops) -> u64 {
        let [born, freed] = self.before;
        let taken = room.min(self.left);
        match (self.left % 2, taken) {
            (1, _) => {
                ops.list.push(freed);
                self.left -= 1;
                1
            }
            (_, 1) => {
                ops.list.push(born);
                self.left -= 1;
                1
            }
            _ => {
                let times = (taken / 2) as u32;
                ops.push_pairs(born, freed.kind, times);
                self.left -= 2 * u64::from(times);
                2 * u64::from(times)
            }
        }
    }

    #[inline(always)]
    fn one(&mut self, op: &mut Op, payload: &mut Vec<u8>) -> Option<()> {
        let control = self.byte(KINDS)?;
        op.kind = control & 31;
        if is_free(op.kind) {
            let victim = self.victim()?;
            let literal = if victim == Victim::Unknown { self.literal()? } else { 0 };
            op.address = self.predictor.free(op.kind, victim, literal)?;
            return Some(());
        }
        if !is_allocation(op.kind) {
            return self.other(op, control, payload);
        }
        self.asked(op, control)?;
        let guess = self.guess()?;
        let literal = if guess == AddressGuess::Unknown { self.literal()? } else { 0 };
        op.address = self.predictor.allocate(op.kind, op.size, guess, literal)?;
        Some(())
    }

    #[inline(always)]
    fn victim(&mut self) -> Option<Victim> {
        Some(match self.byte(VICTIMS)? {
            UNKNOWN => Victim::Unknown,
            OLD if self.is_sealed => Victim::Apart(unzigzag(self.number(AGES)?)),
            OLD => Victim::Old(usize::try_from(self.number(AGES)?).ok()?),
            code @ FIRST_AROUND..=LAST_AROUND if self.is_sealed => {
                Victim::Near(isize::from(code) - isize::from(AROUND))
            }
            rank => Victim::Young(usize::from(rank)),
        })
    }

    #[inline(always)]
    fn guess(&mut self) -> Option<AddressGuess> {
        Some(match self.byte(PLACES)? {
            rank @ 0..STRAY => AddressGuess::Freed(usize::from(rank)),
            rank @ STRAY..BEHIND => AddressGuess::Stray(usize::from(rank - STRAY)),
            BEHIND => AddressGuess::Behind,
            TAKEN => AddressGuess::Taken,
            rank @ AFTER..=LAST_AFTER if self.is_sealed => AddressGuess::After(usize::from(rank - AFTER)),
            OLD if self.is_sealed => AddressGuess::After(usize::try_from(self.number(FAR)?).ok()?),
            FORESEEN if self.is_sealed => AddressGuess::Foreseen,
            _ => AddressGuess::Unknown,
        })
    }

    /// A block of a device comes or goes.
    fn on_device(&mut self, op: &mut Op, control: u8) -> Option<()> {
        let mut devices = self.devices.take().unwrap_or_else(|| Box::new(Predictor::decoder(0)));
        if op.kind == kind::DEVICE_ALLOCATION {
            self.asked(op, control)?;
            let guess = self.guess()?;
            let literal = if guess == AddressGuess::Unknown { self.device_literal()? } else { 0 };
            op.address = devices.allocate(op.kind, op.size, guess, literal)?;
        } else {
            let victim = self.victim()?;
            let literal = if victim == Victim::Unknown { self.device_literal()? } else { 0 };
            op.address = devices.free(op.kind, victim, literal)?;
            op.size = self.number(SIZES)?;
        }
        self.devices = Some(devices);
        Some(())
    }

    /// Who asked for memory, and for how much.
    #[inline(always)]
    fn asked(&mut self, op: &mut Op, control: u8) -> Option<()> {
        if control & OTHER_PYTHON != 0 {
            self.last.python = self.last.python.wrapping_add(unzigzag(self.number(PYTHON)?) as u32);
        }
        if control & OTHER_NATIVE != 0 {
            self.last.native = self.last.native.wrapping_add(unzigzag(self.number(NATIVE)?) as u32);
        }
        (op.python, op.native) = (self.last.python, self.last.native);
        self.tree.near = op.python;
        op.size = self.number(SIZES)?;
        Some(())
    }

    /// A record that is neither an allocation nor a free.
    fn other(&mut self, op: &mut Op, control: u8, payload: &mut Vec<u8>) -> Option<()> {
        match op.kind {
            kind::REALLOC_UNDO => {
                op.address = self.literal()?;
                self.predictor.undo();
            }
            kind::MUNMAP => {
                op.address = self.literal()?;
                op.size = self.number(SIZES)?;
            }
            kind::FAILED => {
                self.asked(op, control)?;
                op.address = self.number(AGES)?;
            }
            kind::TIME => {
                self.last.time = self.last.time.wrapping_add(unzigzag(self.number(TIMES)?) as u64);
                op.size = self.last.time;
            }
            kind::NODE_PYTHON => {
                op.address = self.number(NODES)?;
                op.size = self.number(NODES)?;
                self.node(op)?;
            }
            kind::NODE_LINE => self.frame(op)?,
            CODE => {
                op.kind = kind::DEFINITION;
                let before = payload.len();
                self.code(op, payload)?;
                op.python = u32::try_from(payload.len() - before).ok()?;
                self.made += payload.len() - before;
                (self.made <= MAX_COLUMN).then_some(())?;
            }
            kind::NODE_NATIVE => {
                let difference = unzigzag(self.number(NODES)?) as u64;
                self.last.native_address = self.last.native_address.wrapping_add(difference);
                op.address = self.last.native_address;
                self.node(op)?;
            }
            kind::NODE_TRUNCATED => self.node(op)?,
            MARK => {
                op.kind = kind::NODE_MARK;
                op.address = self.number(NODES)?;
                self.node(op)?;
            }
            kind::DEVICE_ALLOCATION | kind::DEVICE_FREE => self.on_device(op, control)?,
            kind::DEFINITION => {
                op.size = self.number(DEFINITIONS)?;
                op.address = self.number(DEFINITIONS)?;
                op.python = u32::try_from(self.number(DEFINITIONS)?).ok()?;
                op.native = u32::try_from(self.number(DEFINITIONS)?).ok()?;
                let end = self.at[PAYLOAD].checked_add(op.python as usize)?;
                payload.extend_from_slice(self.columns[PAYLOAD].get(self.at[PAYLOAD]..end)?);
                self.at[PAYLOAD] = end;
            }
            PAIRS => return None,
            _ => {}
        }
        Some(())
    }

    /// A Python frame in a stream that was sealed.
    fn frame(&mut self, op: &mut Op) -> Option<()> {
        let parent = match self.byte(PARENTS)? {
            ELSEWHERE => self.next_node.wrapping_sub(self.number(PARENTS)? as u32),
            steps => self.tree.climb(steps)?,
        };
        let frame = match self.byte(CALLS)?.checked_sub(1) {
            Some(rank) => self.tree.ranked(parent, rank)?,
            None => {
                let code = match self.number(CODES)?.checked_sub(1) {
                    Some(rank) => self.tree.ranked_code(rank)?,
                    None => self.names.defined.wrapping_sub(unzigzag(self.number(CODES)?) as u64),
                };
                let line = self.number(LINES)?;
                let from = u64::from(self.names.first_line(code));
                Frame { code, line: from.wrapping_add(unzigzag(line >> 1) as u64) << 1 | line & 1 }
            }
        };
        self.tree.add(parent, frame);
        (op.address, op.size) = (frame.code, frame.line);
        (op.python, op.native) = (self.next_node, parent);
        self.next_node = self.next_node.wrapping_add(1);
        Some(())
    }

    /// A code object that was packed in short.
    fn code(&mut self, op: &mut Op, payload: &mut Vec<u8>) -> Option<()> {
        op.size = definition::CODE;
        op.address = self.names.defined.wrapping_add(unzigzag(self.number(IDS)?) as u64);
        let first_line = u32::try_from(self.number(FIRST_LINES)?).ok()?;
        self.names.define(op.address, first_line);
        let name = text(&self.columns[NAMES], &mut self.at[NAMES])?;
        let (distance, length) = number(self.columns[FILES].get(self.at[FILES]..)?)?;
        self.at[FILES] += length;
        let mut distance = usize::try_from(distance).ok()?;
        if distance == 0 {
            self.names.add(text(&self.columns[FILE_NAMES], &mut self.at[FILE_NAMES])?)?;
            distance = 1;
        }
        Code { first_line, name, file: self.names.file(distance)?, table: &[] }.put(payload);
        Some(())
    }

    fn node(&mut self, op: &mut Op) -> Option<()> {
        op.python = self.next_node;
        op.native = self.next_node.wrapping_sub(self.number(NODES)? as u32);
        if self.is_sealed {
            self.tree.add_other(op.native);
        }
        self.next_node = self.next_node.wrapping_add(1);
        Some(())
    }

    fn literal(&mut self) -> Option<u64> {
        let difference = unzigzag(self.number(ADDRESSES)?) as u64;
        self.last.address = self.last.address.rotate_right(3).wrapping_add(difference).rotate_left(3);
        Some(self.last.address)
    }

    fn device_literal(&mut self) -> Option<u64> {
        let difference = unzigzag(self.number(ADDRESSES)?) as u64;
        self.last.device_address =
            self.last.device_address.rotate_right(3).wrapping_add(difference).rotate_left(3);
        Some(self.last.device_address)
    }

    #[inline(always)]
    fn byte(&mut self, column: usize) -> Option<u8> {
        let byte = *self.columns[column].get(self.at[column])?;
        self.at[column] += 1;
        Some(byte)
    }

    #[inline(always)]
    fn number(&mut self, column: usize) -> Option<u64> {
        let (value, length) = number(self.columns[column].get(self.at[column]..)?)?;
        self.at[column] += length;
        Some(value)
    }
}

/// A text: its length and width in one number, then its bytes.
fn text<'a>(column: &'a [u8], at: &mut usize) -> Option<Text<'a>> {
    let rest = column.get(*at..)?;
    let (head, start) = number(rest)?;
    let end = start.checked_add(usize::try_from(head >> 2).ok()?)?;
    *at += end;
    Some(Text { width: 1 << (head & 3), bytes: rest.get(start..end)? })
}

/// The columns as they were before they were compressed.
pub(crate) struct Unpacked {
    pub(crate) columns: [Vec<u8>; COLUMNS],
    /// For how many records the C library's allocator is followed.
    reach: u64,
}

pub(crate) fn unpack(bytes: &[u8], form: Form) -> Option<Unpacked> {
    let mut take = Take::new(bytes);
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let (dictionary, reach) = match form {
        Form::Running => (None, 0),
        Form::Sealed => {
            let dictionary = dictionary::numbered(take.byte()?)?;
            let (model, reach) = (take.byte()?, take.number()?);
            (dictionary, glibc::is_known(model, reach).then_some(reach)?)
        }
    };
    let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
    for (index, column) in columns[..form.columns()].iter_mut().enumerate() {
        let length = usize::try_from(take.number()?).ok().filter(|length| *length <= MAX_COLUMN)?;
        let stored = take.bytes()?;
        *column = if stored.len() == length {
            stored.to_vec()
        } else {
            // Checked before memory is reserved: a frame that claims another size than its column is refused.
            match zstd::zstd_safe::get_frame_content_size(stored) {
                Ok(Some(size)) if size == length as u64 => {}
                _ => return None,
            }
            if let Some(dictionary) = dictionary {
                decompressor.set_dictionary(dictionary.get(index)?).ok()?;
            }
            decompressor.decompress(stored, length).ok()?
        };
        if column.len() != length {
            return None;
        }
    }
    Some(Unpacked { columns, reach })
}

/// Adds the code objects of which nodes name instructions.
pub(crate) fn codes_used(columns: &[Vec<u8>; COLUMNS], codes: &mut FxHashSet<u64>) -> Option<()> {
    let mut nodes = Take::new(&columns[NODES]);
    for control in &columns[KINDS] {
        let numbers = match control & 31 {
            kind::NODE_PYTHON => {
                codes.insert(nodes.number()?);
                2
            }
            kind::NODE_NATIVE | MARK => 2,
            kind::NODE_TRUNCATED => 1,
            _ => 0,
        };
        for _ in 0..numbers {
            nodes.number()?;
        }
    }
    Some(())
}
