//! The records of a block as columns, each compressed alone. Must decode any bytes into an error or into records, with bounded memory.
//!
//! What belongs together lies together: kinds, guesses of addresses (see `predict`), sizes, nodes, times. A regular program
//! leaves regular columns, and those compress to almost nothing.

use crate::op::{Op, Ops, is_allocation, is_free};
use crate::predict::{Place, Predictor, Victim};
use crate::record::{kind, unzigzag, zigzag};
use crate::wire::{Put, Take, number};

const KINDS: usize = 0;
const PLACES: usize = 1;
const VICTIMS: usize = 2;
const AGES: usize = 3;
const ADDRESSES: usize = 4;
const SIZES: usize = 5;
const PYTHON: usize = 6;
const NATIVE: usize = 7;
const TIMES: usize = 8;
const NODES: usize = 9;
const DEFINITIONS: usize = 10;
const PAYLOAD: usize = 11;
const COLUMNS: usize = 12;

/// Bits of a kind's byte: the node differs from the last one.
const OTHER_PYTHON: u8 = 32;
const OTHER_NATIVE: u8 = 64;

const STRAY: u8 = 64;
const BEHIND: u8 = 128;
const TAKEN: u8 = 129;
const OLD: u8 = 254;
const UNKNOWN: u8 = 255;

/// No column of a sound block is longer.
const MAX_COLUMN: usize = 32 << 20;

/// What both sides remember between records.
#[derive(Debug, Default)]
struct Last {
    address: u64,
    python: u32,
    native: u32,
    native_address: u64,
    time: u64,
}

/// Packs records of one stream that follow each other.
pub(crate) fn encode(ops: &Ops, level: i32) -> std::io::Result<Vec<u8>> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut predictor = Predictor::encoder();
    let mut last = Last::default();
    for op in &ops.list {
        encode_one(op, &mut columns, &mut predictor, &mut last);
    }
    columns[PAYLOAD].extend_from_slice(&ops.payload);
    let mut out = Vec::new();
    let mut compressor = zstd::bulk::Compressor::new(level)?;
    for column in &columns {
        let packed = if column.len() > 24 { compressor.compress(column)? } else { Vec::new() };
        let is_packed = !packed.is_empty() && packed.len() < column.len();
        out.put(column.len() as u64);
        out.put_bytes(if is_packed { &packed } else { column });
    }
    Ok(out)
}

fn encode_one(op: &Op, columns: &mut [Vec<u8>; COLUMNS], predictor: &mut Predictor, last: &mut Last) {
    let mut control = op.kind;
    let literal = |columns: &mut [Vec<u8>; COLUMNS], last: &mut Last, address: u64| {
        // Turned, the bits that are zero in an aligned address are the high ones.
        let difference = address.rotate_right(3).wrapping_sub(last.address.rotate_right(3));
        columns[ADDRESSES].put(zigzag(difference as i64));
        last.address = address;
    };
    if is_allocation(op.kind) || op.kind == kind::FAILED {
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
        columns[SIZES].put(op.size);
    }
    columns[KINDS].push(control);
    match op.kind {
        allocator if is_allocation(allocator) => {
            let place = predictor.place(allocator, op.size, op.address);
            columns[PLACES].push(match place {
                Place::Freed(rank) => rank as u8,
                Place::Stray(rank) => STRAY + rank as u8,
                Place::Behind => BEHIND,
                Place::Taken => TAKEN,
                Place::Unknown => UNKNOWN,
            });
            if place == Place::Unknown {
                literal(columns, last, op.address);
            }
        }
        free if is_free(free) => {
            let victim = predictor.victim(free, op.address);
            columns[VICTIMS].push(match victim {
                Victim::Young(rank) => rank as u8,
                Victim::Old(_) => OLD,
                Victim::Unknown => UNKNOWN,
            });
            match victim {
                Victim::Old(age) => columns[AGES].put(age as u64),
                Victim::Unknown => literal(columns, last, op.address),
                Victim::Young(_) => {}
            }
        }
        kind::REALLOC_UNDO => literal(columns, last, op.address),
        kind::MUNMAP => {
            literal(columns, last, op.address);
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
        kind::DEFINITION => {
            for value in [op.size, op.address, u64::from(op.python), u64::from(op.native)] {
                columns[DEFINITIONS].put(value);
            }
        }
        _ => {}
    }
}

/// Takes packed records apart, some at a time.
#[derive(Debug)]
pub struct Columns {
    columns: [Vec<u8>; COLUMNS],
    at: [usize; COLUMNS],
    predictor: Predictor,
    last: Last,
    next_node: u32,
}

impl Columns {
    /// `None`: these bytes were never packed by this codec.
    pub(crate) fn new(bytes: &[u8], first_node: u32) -> Option<Self> {
        let mut take = Take::new(bytes);
        let mut columns: [Vec<u8>; COLUMNS] = Default::default();
        let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
        for column in &mut columns {
            let length = usize::try_from(take.number()?).ok().filter(|length| *length <= MAX_COLUMN)?;
            let stored = take.bytes()?;
            *column = if stored.len() == length {
                stored.to_vec()
            } else {
                // The frame states its size itself; a lie about it costs nothing.
                match zstd::zstd_safe::get_frame_content_size(stored) {
                    Ok(Some(size)) if size == length as u64 => {
                        decompressor.decompress(stored, length).ok()?
                    }
                    _ => return None,
                }
            };
            if column.len() != length {
                return None;
            }
        }
        let at = [0; COLUMNS];
        Some(Columns {
            columns,
            at,
            predictor: Predictor::decoder(),
            last: Last::default(),
            next_node: first_node,
        })
    }

    /// Decodes up to `most` records onto `ops`. Some(true): there are more. `None`: damaged.
    pub fn next(&mut self, most: usize, ops: &mut Ops) -> Option<bool> {
        ops.list.reserve(most.min(self.columns[KINDS].len() - self.at[KINDS]));
        for _ in 0..most {
            if self.at[KINDS] == self.columns[KINDS].len() {
                return Some(false);
            }
            let op = self.one(ops)?;
            ops.list.push(op);
        }
        Some(self.at[KINDS] < self.columns[KINDS].len())
    }

    #[inline]
    fn one(&mut self, ops: &mut Ops) -> Option<Op> {
        let control = self.byte(KINDS)?;
        let mut op = Op { kind: control & 31, ..Op::default() };
        if is_allocation(op.kind) || op.kind == kind::FAILED {
            if control & OTHER_PYTHON != 0 {
                self.last.python = self.last.python.wrapping_add(unzigzag(self.number(PYTHON)?) as u32);
            }
            if control & OTHER_NATIVE != 0 {
                self.last.native = self.last.native.wrapping_add(unzigzag(self.number(NATIVE)?) as u32);
            }
            (op.python, op.native) = (self.last.python, self.last.native);
            op.size = self.number(SIZES)?;
        }
        match op.kind {
            allocator if is_allocation(allocator) => {
                let place = match self.byte(PLACES)? {
                    rank @ 0..STRAY => Place::Freed(usize::from(rank)),
                    rank @ STRAY..BEHIND => Place::Stray(usize::from(rank - STRAY)),
                    BEHIND => Place::Behind,
                    TAKEN => Place::Taken,
                    _ => Place::Unknown,
                };
                let literal = if place == Place::Unknown { self.literal()? } else { 0 };
                op.address = self.predictor.allocate(allocator, op.size, place, literal)?;
            }
            free if is_free(free) => {
                let victim = match self.byte(VICTIMS)? {
                    UNKNOWN => Victim::Unknown,
                    OLD => Victim::Old(usize::try_from(self.number(AGES)?).ok()?),
                    rank => Victim::Young(usize::from(rank)),
                };
                let literal = if victim == Victim::Unknown { self.literal()? } else { 0 };
                op.address = self.predictor.free(free, victim, literal)?;
            }
            kind::REALLOC_UNDO => op.address = self.literal()?,
            kind::MUNMAP => {
                op.address = self.literal()?;
                op.size = self.number(SIZES)?;
            }
            kind::FAILED => op.address = self.number(AGES)?,
            kind::TIME => {
                self.last.time = self.last.time.wrapping_add(unzigzag(self.number(TIMES)?) as u64);
                op.size = self.last.time;
            }
            kind::NODE_PYTHON => {
                op.address = self.number(NODES)?;
                op.size = self.number(NODES)?;
                self.node(&mut op)?;
            }
            kind::NODE_NATIVE => {
                let difference = unzigzag(self.number(NODES)?) as u64;
                self.last.native_address = self.last.native_address.wrapping_add(difference);
                op.address = self.last.native_address;
                self.node(&mut op)?;
            }
            kind::NODE_TRUNCATED => self.node(&mut op)?,
            kind::DEFINITION => {
                op.size = self.number(DEFINITIONS)?;
                op.address = self.number(DEFINITIONS)?;
                op.python = u32::try_from(self.number(DEFINITIONS)?).ok()?;
                op.native = u32::try_from(self.number(DEFINITIONS)?).ok()?;
                let end = self.at[PAYLOAD].checked_add(op.python as usize)?;
                ops.payload.extend_from_slice(self.columns[PAYLOAD].get(self.at[PAYLOAD]..end)?);
                self.at[PAYLOAD] = end;
            }
            _ => {}
        }
        Some(op)
    }

    fn node(&mut self, op: &mut Op) -> Option<()> {
        op.python = self.next_node;
        op.native = self.next_node.wrapping_sub(self.number(NODES)? as u32);
        self.next_node = self.next_node.wrapping_add(1);
        Some(())
    }

    fn literal(&mut self) -> Option<u64> {
        let difference = unzigzag(self.number(ADDRESSES)?) as u64;
        self.last.address = self.last.address.rotate_right(3).wrapping_add(difference).rotate_left(3);
        Some(self.last.address)
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
