//! A stream's records with everything they refer back to put in: addresses, nodes and times as they are. Must decode any bytes.

use crate::record::{self, kind, unzigzag};

/// One record. What the fields mean depends on the kind:
///
/// | kind | `address` | `size` | `python` | `native` |
/// |---|---|---|---|---|
/// | allocation, `FREE`…, `MUNMAP` | address | bytes | Python node | native node |
/// | `FAILED` | kind + errno × 256 | bytes | Python node | native node |
/// | `TIME` | 0 | microseconds since the start | | |
/// | `NODE_PYTHON` | code id | instruction × 2 + entry | this node | its parent |
/// | `NODE_LINE` | code id | line × 2 + entry | this node | its parent |
/// | `NODE_NATIVE` | address | | this node | its parent |
/// | `NODE_TRUNCATED` | | | this node | its parent |
/// | `NODE_MARK` | one of [`mark`](record::mark) | | this node | its parent |
/// | `DEVICE_ALLOCATION`, `DEVICE_FREE` | [device address](record::device_address) | bytes | Python node | native node |
/// | `DEFINITION` | id | type | bytes of its payload | 1 when more parts follow |
/// | [`PAIRS`] | address | bytes | Python node | native node |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Op {
    /// See the table.
    pub address: u64,
    /// See the table.
    pub size: u64,
    /// See the table.
    pub python: u32,
    /// See the table.
    pub native: u32,
    /// How often the block of a [`PAIRS`] comes and goes; else 0.
    pub times: u32,
    /// One of [`kind`], or [`PAIRS`].
    pub kind: u8,
    /// How the block of a [`PAIRS`] comes and how it goes, as kinds; else 0.
    pub pair: [u8; 2],
}

/// A kind that is not written by a program: the same block allocated and freed, many times in a row, with nothing between.
pub const PAIRS: u8 = 31;

impl Op {
    /// How many records it stands for.
    #[inline]
    #[must_use]
    pub fn records(&self) -> u64 {
        if self.kind == PAIRS { 2 * u64::from(self.times) } else { 1 }
    }

    /// The allocation and the free of a [`PAIRS`].
    #[inline]
    #[must_use]
    pub fn both(&self) -> [Op; 2] {
        let born = Op { kind: self.pair[0], times: 0, pair: [0; 2], ..*self };
        [born, Op { kind: self.pair[1], address: self.address, ..Op::default() }]
    }
}

/// Is this kind an allocation on the host?
#[inline]
#[must_use]
pub fn is_allocation(kind: u8) -> bool {
    (kind::MALLOC..=kind::LAST_ALLOCATION).contains(&kind)
}

/// Does this kind take one block of the host away?
#[inline]
#[must_use]
pub fn is_free(kind: u8) -> bool {
    matches!(kind, kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE)
}

/// Does this kind define a node of the stack tree?
#[inline]
#[must_use]
pub fn is_node(kind: u8) -> bool {
    matches!(
        kind,
        kind::NODE_PYTHON | kind::NODE_LINE | kind::NODE_NATIVE | kind::NODE_TRUNCATED | kind::NODE_MARK
    )
}

/// Is it a block of a device's memory that comes or goes?
#[inline]
#[must_use]
pub fn is_on_device(kind: u8) -> bool {
    matches!(kind, kind::DEVICE_ALLOCATION | kind::DEVICE_FREE)
}

/// Does this kind make a mapping, which can be cut anywhere?
#[inline]
#[must_use]
pub fn is_mapping(kind: u8) -> bool {
    matches!(kind, kind::MMAP | kind::MREMAP | kind::BRK)
}

/// A run of records of one stream, and the payloads of its definitions one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ops {
    /// The records.
    pub list: Vec<Op>,
    /// Payloads in the order of their definitions.
    pub payload: Vec<u8>,
    /// Records beyond those of the list, which its [`PAIRS`] stand for.
    folded: u64,
}

impl Ops {
    /// Forgets all, keeps the room.
    pub fn clear(&mut self) {
        self.list.clear();
        self.payload.clear();
        self.folded = 0;
    }

    /// How many records these are.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.list.len() as u64 + self.folded
    }

    pub(crate) fn push_pairs(&mut self, born: Op, freed: u8, times: u32) {
        let pairs = Op { kind: PAIRS, times, pair: [born.kind, freed], ..born };
        self.folded += pairs.records() - 1;
        self.list.push(pairs);
    }

    /// Puts the records in the place of those [`PAIRS`] that `chosen` names, from one place in the list on.
    pub fn unfold(&mut self, from: usize, chosen: impl Fn(&Op) -> bool) {
        let is_chosen = |op: &Op| op.kind == PAIRS && chosen(op);
        let Some(first) = self.list.iter().skip(from).position(is_chosen) else { return };
        for op in self.list.split_off(from + first) {
            if is_chosen(&op) {
                self.folded -= op.records() - 1;
                (0..op.times).for_each(|_| self.list.extend(op.both()));
            } else {
                self.list.push(op);
            }
        }
    }
}

/// Decodes a chunk's records onto `ops` and gives the number of bytes that made no whole record (0 in a sound chunk).
pub fn decode(mut bytes: &[u8], first_node: u32, ops: &mut Ops) -> usize {
    let (mut address, mut native_address, mut time) = (0u64, 0u64, 0u64);
    let (mut python, mut native, mut next_node) = (0u32, 0u32, first_node);
    while let Some((record, rest)) = record::split_first(bytes) {
        let mut op = Op { kind: record.kind, ..Op::default() };
        let mut here = |op: &mut Op| {
            // The last address is kept in units of eight bytes.
            address =
                if record.flag { record.a >> 3 } else { address.wrapping_add(unzigzag(record.a) as u64) };
            op.address = if record.flag { record.a } else { address << 3 };
        };
        let mut nodes = |op: &mut Op| {
            python = python.wrapping_add(unzigzag(u64::from(record.c)) as u32);
            native = native.wrapping_add(unzigzag(u64::from(record.d)) as u32);
            (op.python, op.native) = (python, native);
        };
        let mut node = |op: &mut Op| {
            (op.python, op.native) = (next_node, next_node.wrapping_sub(record.c));
            next_node = next_node.wrapping_add(1);
        };
        bytes = rest;
        match record.kind {
            kind if is_allocation(kind) || kind == kind::DEVICE_ALLOCATION => {
                here(&mut op);
                nodes(&mut op);
                op.size = record.b;
            }
            kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE | kind::REALLOC_UNDO => here(&mut op),
            kind::MUNMAP | kind::DEVICE_FREE => {
                here(&mut op);
                op.size = record.b;
            }
            kind::FAILED => {
                (op.address, op.size) = (record.a, record.b);
                nodes(&mut op);
            }
            kind::TIME => {
                time = time.wrapping_add(record.a);
                op.size = time;
            }
            kind::NODE_PYTHON => {
                (op.address, op.size) = (record.a, record.b);
                node(&mut op);
            }
            kind::NODE_NATIVE => {
                native_address = native_address.wrapping_add(unzigzag(record.a) as u64);
                op.address = native_address;
                node(&mut op);
            }
            kind::NODE_TRUNCATED => node(&mut op),
            kind::NODE_MARK => {
                op.address = record.a;
                node(&mut op);
            }
            kind::DEFINITION => {
                let Some((payload, after)) = rest.split_at_checked(record.c as usize) else {
                    return rest.len();
                };
                ops.payload.extend_from_slice(payload);
                op = Op { address: record.b, size: record.a, python: record.c, native: record.d, ..op };
                bytes = after;
            }
            // A kind of a later release: its shape is known, its meaning is not needed.
            _ => continue,
        }
        ops.list.push(op);
    }
    bytes.len()
}
