//! CPython's location tables (3.11 and later) without their columns: three quarters of a table say where in a line something stands, and
//! nothing here asks for that. What is left is a table of the same form.
//!
//! Must give the same line for every instruction, or leave a table as it is.

use crate::record::definition;

/// Forms of an entry that are written: a line, and no line at all.
const LINE: u8 = 13;
const NONE: u8 = 15;

/// A code object's definition with a shorter table; `None` when its payload is not understood.
pub(crate) fn shorten(what: u64, payload: &[u8]) -> Option<Vec<u8>> {
    if what != definition::CODE {
        return None;
    }
    // First line, then two texts, each with its length and a byte for its width.
    let mut table = 4;
    for _ in 0..2 {
        let length = u32::from_le_bytes(*payload.get(table..)?.first_chunk()?);
        table = table.checked_add(5)?.checked_add(length as usize)?;
    }
    let short = without_columns(payload.get(table..)?)?;
    Some([&payload[..table], &short].concat())
}

/// The same lines without columns; `None`: not a table.
#[must_use]
pub fn without_columns(table: &[u8]) -> Option<Vec<u8>> {
    let mut short = Vec::with_capacity(table.len() / 4);
    let mut rest = table;
    let mut delta = 0;
    // Code units in a row that share a line, or have none.
    let (mut units, mut has_line) = (0, false);
    while let Some((head, after)) = rest.split_first() {
        if head & 0x80 == 0 {
            return None;
        }
        rest = after;
        let form = head >> 3 & 15;
        let step = match form {
            14 => {
                let step = signed(&mut rest)?;
                for _ in 0..3 {
                    unsigned(&mut rest)?;
                }
                step
            }
            13 => signed(&mut rest)?,
            10..=12 => {
                rest = rest.get(2..)?;
                i64::from(form - 10)
            }
            0..=9 => {
                rest = rest.get(1..)?;
                0
            }
            _ => 0,
        };
        if units > 0 && (step != 0 || has_line != (form != NONE)) {
            put(&mut short, &mut delta, units, has_line);
            units = 0;
        }
        has_line = form != NONE;
        delta += step;
        units += u64::from(head & 7) + 1;
    }
    put(&mut short, &mut delta, units, has_line);
    Some(short)
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

/// Six bits a byte, low ones first; bit 6 says that more follow. No more than 32 bits are meant.
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
