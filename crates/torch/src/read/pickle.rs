//! A pickle machine that knows values and nothing else.
//!
//! It has no opcode that could import, call or build an object, so a hostile file can at worst be refused.
//! Containers become compact structures the moment their contents arrive; no tree of the file is ever built.

use std::io::Read;

use super::build::Builder;
use super::input::Input;
use super::limits::{MAX_PENDING, MAX_STRING};
use super::value::{Memo, NO_SLOT, SHARED, Slot, Val};
use crate::error::SnapshotError;

type Result<T> = std::result::Result<T, SnapshotError>;

const MAX_MARKS: usize = 1000;
/// Bytes executed between two looks at the limits.
const VIEW: usize = 1 << 20;

/// Runs the pickle in `input` to its end and returns the value it leaves.
pub(super) fn read<R: Read>(input: &mut Input<R>, builder: &mut Builder) -> Result<Val> {
    run(input, builder, true)
}

/// `shortcuts` changes how long it takes, nothing else.
pub(super) fn run<R: Read>(input: &mut Input<R>, builder: &mut Builder, shortcuts: bool) -> Result<Val> {
    let mut machine = Machine { shortcuts, ..Machine::default() };
    let mut wanted = 1;
    loop {
        input.want(wanted)?;
        let window = input.window();
        let view = window.get(..wanted.max(VIEW)).unwrap_or(window);
        let (used, outcome) = machine.run(view, input.position(), builder)?;
        input.consume(used);
        match outcome {
            Outcome::Done(value) => return Ok(value),
            Outcome::Need(bytes) => wanted = bytes,
        }
    }
}

enum Outcome {
    Done(Val),
    /// The opcode at the start of the window needs this many bytes.
    Need(usize),
}

#[derive(Default)]
pub(super) struct Machine {
    pub(super) shortcuts: bool,
    stack: Vec<Val>,
    /// Stack heights where containers under construction start.
    marks: Vec<usize>,
    pub(super) memo: Vec<Slot>,
    /// Memoised values too wide for a slot.
    pub(super) wide: Vec<Val>,
    /// Slots filled so far: bounds how far ahead a slot number may run.
    pub(super) puts: usize,
}

impl Machine {
    /// Executes whole opcodes from `window`, which starts at byte `base` of the file.
    fn run(&mut self, window: &[u8], base: u64, builder: &mut Builder) -> Result<(usize, Outcome)> {
        let mut pos = 0;
        // Once a window is enough: each byte of it can add one value at most.
        if self.stack.len() > MAX_PENDING {
            return Err(SnapshotError::TooMany {
                what: "values on the pickle's stack",
                limit: MAX_PENDING as u64,
            });
        }
        // What an opcode's operand needs but the window does not have is requested; the opcode then starts over.
        macro_rules! operand {
            ($from:expr, $count:expr) => {{
                let end = $from + $count;
                match window.get($from..end) {
                    Some(bytes) => bytes,
                    None => return Ok((pos, Outcome::Need(end - pos))),
                }
            }};
        }
        macro_rules! text {
            ($header:expr, $length:expr) => {{
                let at = base + pos as u64;
                let length: u64 = $length;
                if length > MAX_STRING {
                    return Err(SnapshotError::TooLong { length, limit: MAX_STRING, at });
                }
                let bytes = operand!(pos + 1 + $header, length as usize);
                self.stack.push(builder.string(bytes)?);
                pos += 1 + $header + length as usize;
            }};
        }
        loop {
            let Some(&opcode) = window.get(pos) else { return Ok((pos, Outcome::Need(1))) };
            let at = base + pos as u64;
            match opcode {
                b'h' => {
                    let slot = usize::from(operand!(pos + 1, 1)[0]);
                    self.get(slot, at)?;
                    pos += 2;
                }
                b'j' => {
                    let slot = le32(operand!(pos + 1, 4)) as usize;
                    self.get(slot, at)?;
                    pos += 5;
                }
                0x94 => {
                    let slot = self.memo.len();
                    self.put(slot, at)?;
                    pos += 1;
                }
                b'K' => {
                    let value = i64::from(operand!(pos + 1, 1)[0]);
                    self.stack.push(Val::Int(value));
                    pos += 2;
                }
                b'M' => {
                    let value = i64::from(le32(operand!(pos + 1, 2)));
                    self.stack.push(Val::Int(value));
                    pos += 3;
                }
                b'J' => {
                    let value = i64::from(le32(operand!(pos + 1, 4)) as i32);
                    self.stack.push(Val::Int(value));
                    pos += 5;
                }
                0x8a => {
                    let length = usize::from(operand!(pos + 1, 1)[0]);
                    let value = long(operand!(pos + 2, length), at)?;
                    self.stack.push(value);
                    pos += 2 + length;
                }
                0x8b => {
                    let length = u64::from(le32(operand!(pos + 1, 4)));
                    if length > 255 {
                        return Err(SnapshotError::TooLong { length, limit: 255, at });
                    }
                    let value = long(operand!(pos + 5, length as usize), at)?;
                    self.stack.push(value);
                    pos += 5 + length as usize;
                }
                b'G' => {
                    let bytes = operand!(pos + 1, 8);
                    self.stack.push(Val::Float(f64::from_bits(le64(bytes).swap_bytes())));
                    pos += 9;
                }
                0x8c | b'U' | b'C' => text!(1, u64::from(operand!(pos + 1, 1)[0])),
                b'X' | b'T' | b'B' => text!(4, u64::from(le32(operand!(pos + 1, 4)))),
                0x8d | 0x8e => text!(8, le64(operand!(pos + 1, 8))),
                b'}' => {
                    let rest = window.get(pos..).unwrap_or(&[]);
                    pos += match self.quick_dict(rest, builder)? {
                        Some(used) => used,
                        None => {
                            self.stack.push(Val::FreshDict(NO_SLOT));
                            1
                        }
                    };
                }
                b']' => {
                    self.stack.push(Val::FreshList(NO_SLOT));
                    pos += 1;
                }
                b'(' => {
                    if self.marks.len() == MAX_MARKS {
                        return Err(SnapshotError::TooDeep { limit: MAX_MARKS as u32 });
                    }
                    self.marks.push(self.stack.len());
                    pos += 1;
                }
                b'u' => {
                    let from = self.mark(at)?;
                    self.set_items(from, at, builder)?;
                    pos += 1;
                }
                b's' => {
                    let from = self.below(2, at)?;
                    self.set_items(from, at, builder)?;
                    pos += 1;
                }
                b'e' => {
                    let from = self.mark(at)?;
                    self.append(from, at, builder)?;
                    pos += 1;
                }
                b'a' => {
                    let from = self.below(1, at)?;
                    self.append(from, at, builder)?;
                    pos += 1;
                }
                b'l' | b'd' => {
                    let from = self.mark(at)?;
                    let fresh =
                        if opcode == b'l' { Val::FreshList(NO_SLOT) } else { Val::FreshDict(NO_SLOT) };
                    self.stack.insert(from, fresh);
                    match opcode {
                        b'l' => self.append(from + 1, at, builder)?,
                        _ => self.set_items(from + 1, at, builder)?,
                    }
                    pos += 1;
                }
                b't' | b')' | 0x85 | 0x86 | 0x87 => {
                    let from = match opcode {
                        b't' => self.mark(at)?,
                        b')' => self.stack.len(),
                        _ => self.below(usize::from(opcode - 0x84), at)?,
                    };
                    self.settle(from);
                    let value = builder.tuple(self.stack.get(from..).unwrap_or(&[]))?;
                    self.stack.truncate(from);
                    self.stack.push(value);
                    pos += 1;
                }
                b'N' | 0x88 | 0x89 => {
                    let value = if opcode == b'N' { Val::None } else { Val::Bool(opcode == 0x88) };
                    self.stack.push(value);
                    pos += 1;
                }
                b'q' => {
                    let slot = usize::from(operand!(pos + 1, 1)[0]);
                    self.put(slot, at)?;
                    pos += 2;
                }
                b'r' => {
                    let slot = le32(operand!(pos + 1, 4)) as usize;
                    self.put(slot, at)?;
                    pos += 5;
                }
                b'0' => {
                    let from = self.below(1, at)?;
                    self.stack.truncate(from);
                    pos += 1;
                }
                b'1' => {
                    let from = self.mark(at)?;
                    self.stack.truncate(from);
                    pos += 1;
                }
                0x80 => {
                    let version = operand!(pos + 1, 1)[0];
                    if !(2..=5).contains(&version) {
                        return Err(SnapshotError::Protocol { version });
                    }
                    pos += 2;
                }
                // Frames only help readers that prefetch.
                0x95 => {
                    operand!(pos + 1, 8);
                    pos += 9;
                }
                b'.' => {
                    return match (self.stack.as_slice(), self.marks.is_empty()) {
                        (&[value], true) => Ok((pos + 1, Outcome::Done(value))),
                        _ => Err(SnapshotError::Malformed {
                            what: "the pickle stops with values left over",
                            at,
                        }),
                    };
                }
                _ => {
                    return Err(match code_opcode(opcode) {
                        Some(name) => SnapshotError::Code { name, at },
                        None => SnapshotError::Opcode { opcode, at },
                    });
                }
            }
        }
    }

    #[inline]
    fn get(&mut self, slot: usize, at: u64) -> Result<()> {
        let value = match self.memo.get(slot).map_or(Memo::Unset, |slot| slot.unpack()) {
            Memo::Value(value) => value,
            Memo::Elsewhere(index) => self.wide.get(index as usize).copied().unwrap_or(Val::None),
            // Referred to before it has contents: an empty list that several share. Should it get contents
            // later, it was a cycle.
            Memo::Open(value) => {
                self.store(slot, value, Slot::pack(value));
                value
            }
            Memo::Spent => {
                return Err(SnapshotError::Malformed { what: "an event, block or segment occurs twice", at });
            }
            Memo::Unset => return Err(SnapshotError::Memo { slot: slot as u64, at }),
        };
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn put(&mut self, slot: usize, at: u64) -> Result<()> {
        if slot == self.memo.len() {
            self.memo.push(Slot::UNSET);
        } else if slot > self.memo.len() {
            // Numbers run on without gaps in honest files; a bomb would jump ahead.
            if slot > 2 * self.puts + 1024 {
                return Err(SnapshotError::Memo { slot: slot as u64, at });
            }
            self.memo.resize(slot + 1, Slot::UNSET);
        }
        self.puts += 1;
        let Some(top) = self.stack.last_mut() else {
            return Err(SnapshotError::Malformed { what: "memoises a missing value", at });
        };
        let packed = match &mut *top {
            Val::FreshList(own) if *own == NO_SLOT => {
                *own = slot as u32;
                Some(Slot::OPEN_LIST)
            }
            Val::FreshDict(own) if *own == NO_SLOT => {
                *own = slot as u32;
                Some(Slot::OPEN_DICT)
            }
            Val::FreshList(_) | Val::FreshDict(_) => {
                return Err(SnapshotError::Malformed { what: "a container is memoised twice", at });
            }
            Val::Stack { id, slot: own } => {
                if *own == NO_SLOT {
                    *own = slot as u32;
                }
                Slot::pack(Val::Stack { id: *id, slot: *own })
            }
            other => Slot::pack(*other),
        };
        let value = *top;
        self.store(slot, value, packed);
        Ok(())
    }

    fn store(&mut self, slot: usize, value: Val, packed: Option<Slot>) {
        let packed = packed.unwrap_or_else(|| {
            self.wide.push(value);
            Slot::elsewhere(self.wide.len() as u32 - 1)
        });
        if let Some(entry) = self.memo.get_mut(slot) {
            *entry = packed;
        }
    }

    /// The start of the topmost marked group.
    #[inline]
    fn mark(&mut self, at: u64) -> Result<usize> {
        match self.marks.pop() {
            Some(from) if from <= self.stack.len() => Ok(from),
            _ => Err(SnapshotError::Malformed { what: "a container ends that never started", at }),
        }
    }

    /// The start of the topmost `count` values, which must be above the last mark.
    #[inline]
    fn below(&self, count: usize, at: u64) -> Result<usize> {
        match self.stack.len().checked_sub(count) {
            Some(from) if from >= self.marks.last().copied().unwrap_or(0) => Ok(from),
            _ => Err(SnapshotError::Malformed { what: "uses a missing value", at }),
        }
    }

    /// Containers that go into another one without contents stay empty: later references may see them.
    fn settle(&mut self, from: usize) {
        for value in self.stack.get(from..).unwrap_or(&[]) {
            if let Val::FreshList(slot) | Val::FreshDict(slot) = *value
                && slot < SHARED
                && let (Some(entry), Some(packed)) = (self.memo.get_mut(slot as usize), Slot::pack(*value))
            {
                *entry = packed;
            }
        }
    }

    /// Contents may only go into a container that was not yet taken for an empty one.
    #[inline]
    fn unseen(&self, slot: u32, at: u64) -> Result<()> {
        match self.memo.get(slot as usize) {
            Some(entry) if entry.is_settled() => Err(SnapshotError::Cycle { at }),
            _ => Ok(()),
        }
    }

    /// Puts the pairs from `from` on into the dictionary below them.
    fn set_items(&mut self, from: usize, at: u64, builder: &mut Builder) -> Result<()> {
        self.settle(from);
        let pairs = self.stack.get(from..).unwrap_or(&[]);
        if pairs.len() % 2 == 1 {
            return Err(SnapshotError::Malformed { what: "a dictionary key without a value", at });
        }
        let Some(&target) = from.checked_sub(1).and_then(|below| self.stack.get(below)) else {
            return Err(SnapshotError::Malformed { what: "items for a missing dictionary", at });
        };
        let value = match target {
            _ if pairs.is_empty() => target,
            Val::FreshDict(slot) if slot != SHARED => {
                self.unseen(slot, at)?;
                let value = builder.dict(pairs)?;
                if slot != NO_SLOT {
                    self.store(slot as usize, value, Slot::pack(value));
                }
                value
            }
            Val::Dict(id) => {
                builder.more_pairs(id, pairs)?;
                target
            }
            Val::FreshDict(_)
            | Val::Frame(_)
            | Val::Events(..)
            | Val::Block(_)
            | Val::Segment(_)
            | Val::Annotation => {
                return Err(SnapshotError::Malformed { what: "a dictionary changes after it was used", at });
            }
            _ => {
                return Err(SnapshotError::Malformed {
                    what: "items for something that is not a dictionary",
                    at,
                });
            }
        };
        self.replace(from - 1, value);
        Ok(())
    }

    /// Puts the values from `from` on into the list below them.
    fn append(&mut self, from: usize, at: u64, builder: &mut Builder) -> Result<()> {
        self.settle(from);
        let items = self.stack.get(from..).unwrap_or(&[]);
        let Some(&target) = from.checked_sub(1).and_then(|below| self.stack.get(below)) else {
            return Err(SnapshotError::Malformed { what: "items for a missing list", at });
        };
        let (slot, value) = match target {
            _ if items.is_empty() => (NO_SLOT, target),
            Val::FreshList(slot) if slot != SHARED => {
                self.unseen(slot, at)?;
                (slot, builder.list(items, slot)?)
            }
            Val::Stack { id, slot } if slot != SHARED => (slot, builder.more_frames(id, items, slot)?),
            Val::List(id) => (NO_SLOT, {
                builder.more_items(id, items)?;
                target
            }),
            Val::FreshList(_) | Val::Stack { .. } => {
                return Err(SnapshotError::Malformed { what: "a list changes after it was used", at });
            }
            _ => return Err(SnapshotError::Malformed { what: "items for something that is not a list", at }),
        };
        if slot != NO_SLOT {
            self.store(slot as usize, value, Slot::pack(value));
        }
        self.replace(from - 1, value);
        Ok(())
    }

    /// Cuts the stack at `place` and leaves `value` there.
    fn replace(&mut self, place: usize, value: Val) {
        self.stack.truncate(place);
        self.push_value(value);
    }

    /// Puts a value on the stack; neighbouring events become one entry.
    pub(super) fn push_value(&mut self, value: Val) {
        if let Val::Events(start, end) = value
            && self.stack.len() > self.marks.last().copied().unwrap_or(0)
            && let Some(Val::Events(_, before)) = self.stack.last_mut()
            && *before == start
        {
            *before = end;
            return;
        }
        self.stack.push(value);
    }
}

#[inline]
fn le32(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        [a, b] => u32::from_le_bytes([a, b, 0, 0]),
        _ => 0,
    }
}

fn le64(bytes: &[u8]) -> u64 {
    match bytes.try_into() {
        Ok(array) => u64::from_le_bytes(array),
        Err(_) => 0,
    }
}

/// A little-endian two's complement number of one to eight bytes: addresses and times have six or seven.
#[inline]
pub(super) fn short_long(bytes: &[u8]) -> i64 {
    let unsigned = match *bytes {
        [a, b, c, d, e, f] => u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        [a, b, c, d, e, f, g] => u64::from_le_bytes([a, b, c, d, e, f, g, 0]),
        _ => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    };
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned << unused) as i64 >> unused
}

/// The same of any length that fits 64 bits.
#[inline]
fn long(bytes: &[u8], at: u64) -> Result<Val> {
    if (1..=8).contains(&bytes.len()) {
        return Ok(Val::Int(short_long(bytes)));
    }
    let negative = bytes.last().is_some_and(|&top| top >= 0x80);
    let mut value = if negative { -1i128 } else { 0 };
    if bytes.len() > 9 {
        return Err(SnapshotError::TooLong { length: bytes.len() as u64, limit: 9, at });
    }
    for &byte in bytes.iter().rev() {
        value = value << 8 | i128::from(byte);
    }
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => Ok(Val::Int(value)),
        (_, Ok(value)) => Ok(Val::Unsigned(value)),
        _ => Err(SnapshotError::Malformed { what: "a number beyond 64 bits", at }),
    }
}

fn code_opcode(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        b'c' => "GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x82..=0x84 => "EXT",
        b'P' | b'Q' => "PERSID",
        _ => return None,
    })
}
