//! CPython's location tables (3.11 and later) without their columns: three quarters of a table say where in a line something is, and
//! nothing here asks for that. What is left is a table of the same form.
//!
//! Must give the same line for every instruction, or leave a table as it is.

use crate::record::definition;

/// Forms of an entry that are written: a line, and no line at all.
const LINE: u8 = 13;
const NONE: u8 = 15;

/// A text as CPython keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    /// Bytes a character.
    pub(crate) width: u8,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Text<'a> {
    fn split_off(payload: &mut &'a [u8]) -> Option<Text<'a>> {
        let (length, rest) = payload.split_first_chunk()?;
        let (width, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *payload = rest;
        Some(Text { width: *width, bytes })
    }

    fn put(self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        payload.push(self.width);
        payload.extend_from_slice(self.bytes);
    }
}

/// The definition of a code object, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code<'a> {
    pub(crate) first_line: u32,
    pub(crate) name: Text<'a>,
    pub(crate) file: Text<'a>,
    pub(crate) table: &'a [u8],
}

impl<'a> Code<'a> {
    /// `None`: not the payload of a code object.
    pub(crate) fn parse(mut payload: &'a [u8]) -> Option<Self> {
        let (first_line, rest) = payload.split_first_chunk()?;
        payload = rest;
        let (name, file) = (Text::split_off(&mut payload)?, Text::split_off(&mut payload)?);
        Some(Code { first_line: u32::from_le_bytes(*first_line), name, file, table: payload })
    }

    /// Appends the payload.
    pub(crate) fn put(self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&self.first_line.to_le_bytes());
        self.name.put(payload);
        self.file.put(payload);
        payload.extend_from_slice(self.table);
    }
}

/// A code object's definition with a shorter table; `None` when its payload is not understood.
pub(crate) fn shorten(what: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let code = Code::parse(payload).filter(|_| what == definition::CODE)?;
    let table = without_columns(code.table)?;
    let mut short = Vec::with_capacity(payload.len());
    Code { table: &table, ..code }.put(&mut short);
    Some(short)
}

/// The same lines without columns; `None`: not a table.
#[must_use]
pub fn without_columns(table: &[u8]) -> Option<Vec<u8>> {
    let mut short = Vec::with_capacity(table.len() / 4);
    let mut delta = 0;
    // Code units in a row that share a line, or have none.
    let (mut units, mut has_line) = (0, false);
    for entry in Entries(table) {
        let entry = entry?;
        if units > 0 && (entry.step != 0 || has_line != entry.has_line) {
            put(&mut short, &mut delta, units, has_line);
            units = 0;
        }
        has_line = entry.has_line;
        delta += entry.step;
        units += entry.units;
    }
    put(&mut short, &mut delta, units, has_line);
    Some(short)
}

/// The line of a code unit; the first where the table names none, or is none.
#[must_use]
pub fn line_at(table: &[u8], first_line: u32, instruction: u32) -> u32 {
    let mut line = i64::from(first_line);
    let mut left = u64::from(instruction);
    for entry in Entries(table) {
        let Some(entry) = entry else { break };
        line += entry.step;
        if left < entry.units {
            return u32::try_from(line).ok().filter(|_| entry.has_line).unwrap_or(first_line);
        }
        left -= entry.units;
    }
    first_line
}

/// Adjacent code units.
struct Entry {
    units: u64,
    /// Lines from the entry before.
    step: i64,
    has_line: bool,
}

/// The entries of a table; `None` once it is damaged.
struct Entries<'a>(&'a [u8]);

impl Iterator for Entries<'_> {
    type Item = Option<Entry>;

    fn next(&mut self) -> Option<Option<Entry>> {
        if self.0.is_empty() { None } else { Some(self.entry()) }
    }
}

impl Entries<'_> {
    fn entry(&mut self) -> Option<Entry> {
        let (head, rest) = self.0.split_first()?;
        self.0 = rest;
        if head & 0x80 == 0 {
            return None;
        }
        let form = head >> 3 & 15;
        let step = match form {
            14 => {
                let step = signed(&mut self.0)?;
                for _ in 0..3 {
                    unsigned(&mut self.0)?;
                }
                step
            }
            LINE => signed(&mut self.0)?,
            10..=12 => {
                self.0 = self.0.get(2..)?;
                i64::from(form - 10)
            }
            0..=9 => {
                self.0 = self.0.get(1..)?;
                0
            }
            _ => 0,
        };
        Some(Entry { units: u64::from(head & 7) + 1, step, has_line: form != NONE })
    }
}

/// Writes down a row of units; the first entry of a line carries the step to it.
fn put(short: &mut Vec<u8>, delta: &mut i64, mut units: u64, has_line: bool) {
    while units > 0 {
        let some = units.min(8);
        units -= some;
        short.push(0x80 | if has_line { LINE } else { NONE } << 3 | (some - 1) as u8);
        if !has_line {
            continue;
        }
        let mut value = delta.unsigned_abs() << 1 | u64::from(*delta < 0);
        *delta = 0;
        while value >= 64 {
            short.push(value as u8 & 63 | 64);
            value >>= 6;
        }
        short.push(value as u8);
    }
}

/// Six bits a byte, low ones first; bit 6 says that more follow. At most 32 bits are used.
fn unsigned(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u64;
    for shift in (0..32).step_by(6) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 63) << shift;
        if first & 64 == 0 {
            return u32::try_from(value).ok();
        }
    }
    None
}

/// The sign is the lowest bit.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let value = unsigned(bytes)?;
    let magnitude = i64::from(value >> 1);
    Some(if value & 1 == 1 { -magnitude } else { magnitude })
}
