//! The records of a block as columns, each compressed alone. Must decode any bytes into an error or into records, with bounded memory.
//!
//! What belongs together lies together: kinds, guesses of addresses (see `predict`), sizes, nodes, times. A regular program
//! leaves regular columns, and those compress to almost nothing. A block that comes and goes again and again, the same each time, is
//! said once, with a count. This file takes columns apart; `pack` makes them.

use crate::op::{Op, Ops, PAIRS, is_allocation, is_free};
use crate::pack::is_pair;
use crate::predict::{Place, Predictor, Victim};
use crate::record::{kind, unzigzag};
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
/// Counts of repetitions; not in files of version 1.
pub(crate) const AGAIN: usize = 12;
pub(crate) const COLUMNS: usize = 13;

/// Bits of a kind's byte: the node differs from the last one.
pub(crate) const OTHER_PYTHON: u8 = 32;
pub(crate) const OTHER_NATIVE: u8 = 64;

pub(crate) const STRAY: u8 = 64;
pub(crate) const BEHIND: u8 = 128;
pub(crate) const TAKEN: u8 = 129;
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
    last: Last,
    next_node: u32,
    /// The last two records, for when they come again.
    before: [Op; 2],
    /// Records of a repetition that are still to come: of each two an allocation first.
    left: u64,
}

impl Columns {
    /// `None`: these bytes were never packed by this codec. `has_counts`: there is a column for repetitions.
    pub(crate) fn new(bytes: &[u8], first_node: u32, has_counts: bool) -> Option<Self> {
        let mut take = Take::new(bytes);
        let mut columns: [Vec<u8>; COLUMNS] = Default::default();
        let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
        let count = if has_counts { COLUMNS } else { AGAIN };
        for column in &mut columns[..count] {
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
        let predictor = Predictor::decoder(columns[PLACES].len());
        Some(Columns {
            columns,
            at,
            predictor,
            last: Last::default(),
            next_node: first_node,
            before: Default::default(),
            left: 0,
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
            } else if self.columns[KINDS].get(self.at[KINDS]) == Some(&PAIRS) {
                self.begin_again(&ops.list[start..])?;
            } else if self.at[KINDS] == self.columns[KINDS].len() {
                break;
            } else {
                // In its place from the start: to build it elsewhere and copy it takes longer than to decode it.
                ops.list.push(Op::default());
                let Ops { list, payload, .. } = &mut *ops;
                self.one(list.last_mut()?, payload)?;
                room -= 1;
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

    #[inline]
    fn one(&mut self, op: &mut Op, payload: &mut Vec<u8>) -> Option<()> {
        let control = self.byte(KINDS)?;
        op.kind = control & 31;
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
                self.node(op)?;
            }
            kind::NODE_NATIVE => {
                let difference = unzigzag(self.number(NODES)?) as u64;
                self.last.native_address = self.last.native_address.wrapping_add(difference);
                op.address = self.last.native_address;
                self.node(op)?;
            }
            kind::NODE_TRUNCATED => self.node(op)?,
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
