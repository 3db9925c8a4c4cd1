//! Packs records into columns (see `columns`). Must keep every record; of a code object's definition only what nobody reads is left out.

use crate::columns::*;
use crate::lines;
use crate::op::{Op, Ops, PAIRS, is_allocation, is_free, is_mapping};
use crate::predict::{Place, Predictor, Victim};
use crate::record::{kind, zigzag};
use crate::wire::Put;

/// Chunks of one stream that follow each other, on their way into a block.
#[derive(Debug)]
pub(crate) struct Packer {
    columns: [Vec<u8>; COLUMNS],
    predictor: Predictor,
    last: Last,
    /// The next definition begins here: it is no later part of one.
    is_first_part: bool,
}

impl Packer {
    /// `is_start`: nothing of this stream came before.
    pub(crate) fn new(is_start: bool) -> Self {
        let (columns, last) = Default::default();
        Packer { columns, predictor: Predictor::encoder(), last, is_first_part: is_start }
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
        for column in &self.columns {
            let packed = if column.len() > 24 { compressor.compress(column)? } else { Vec::new() };
            let is_packed = !packed.is_empty() && packed.len() < column.len();
            out.put(column.len() as u64);
            out.put_bytes(if is_packed { &packed } else { column });
        }
        Ok(out)
    }

    fn definition(&mut self, op: &Op, payload: &[u8]) {
        let is_last_part = op.native != 1;
        let short = (self.is_first_part && is_last_part).then(|| lines::shorten(op.size, payload)).flatten();
        let payload = short.as_deref().unwrap_or(payload);
        self.is_first_part = is_last_part;
        self.columns[KINDS].push(op.kind);
        for value in [op.size, op.address, payload.len() as u64, u64::from(op.native)] {
            self.columns[DEFINITIONS].put(value);
        }
        self.columns[PAYLOAD].extend_from_slice(payload);
    }

    fn record(&mut self, op: &Op) {
        let Packer { columns, predictor, last, .. } = self;
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
            _ => {}
        }
    }
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
