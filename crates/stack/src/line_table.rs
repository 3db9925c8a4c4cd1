//! CPython's location table (3.11 and later): which source line an instruction came from.
//!
//! Pure and offline. Must accept any bytes: a damaged table gives `None`, never a wild loop.

/// Where an instruction came from in its source file. Columns are bytes from 0, as CPython keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// First line, from 1.
    pub line: u32,
    /// Last line.
    pub end_line: u32,
    /// First and last column, where the table has them.
    pub columns: Option<(u32, u32)>,
}

/// The line of code unit `instruction`, or `None` where the table names none (or is damaged).
pub fn line_for(table: &[u8], first_line: u32, instruction: u32) -> Option<u32> {
    location_for(table, first_line, instruction).map(|location| location.line)
}

/// Line and columns of code unit `instruction`.
pub fn location_for(table: &[u8], first_line: u32, instruction: u32) -> Option<Location> {
    let mut bytes = Bytes(table);
    let mut line = i64::from(first_line);
    let mut unit = 0u64;
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None; // an entry starts with its top bit set
        }
        let units = u64::from(head & 7) + 1;
        let location = entry(&mut bytes, head >> 3 & 15, &mut line)?;
        if u64::from(instruction) < unit + units {
            return location;
        }
        unit += units;
    }
    None
}

/// One entry after its head. The outer `None` is damage, the inner one "no line".
fn entry(bytes: &mut Bytes<'_>, code: u8, line: &mut i64) -> Option<Option<Location>> {
    let (end_line_delta, columns) = match code {
        15 => return Some(None),
        14 => {
            *line += bytes.signed()?;
            let lines = bytes.unsigned()?;
            let (from, to) = (bytes.unsigned()?, bytes.unsigned()?);
            // columns are kept plus one, 0 standing for "unknown"
            (lines, from.checked_sub(1).zip(to.checked_sub(1)))
        }
        13 => {
            *line += bytes.signed()?;
            (0, None)
        }
        10..=12 => {
            *line += i64::from(code - 10);
            (0, Some((bytes.next()?.into(), bytes.next()?.into())))
        }
        0..=9 => {
            let second = bytes.next()?;
            let from = u32::from(code) << 3 | u32::from(second >> 4);
            (0, Some((from, from + u32::from(second & 15))))
        }
        _ => return None,
    };
    let first = u32::try_from(*line).ok();
    Some(first.map(|first| Location { line: first, end_line: first.saturating_add(end_line_delta), columns }))
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Six bits a byte, least significant first, bit 6 says more follow.
    fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in (0..32).step_by(6) {
            let byte = self.next()?;
            value |= u32::from(byte & 63).checked_shl(shift)?;
            if byte & 64 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The sign is the lowest bit.
    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        let magnitude = i64::from(value >> 1);
        Some(if value & 1 == 1 { -magnitude } else { magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::{line_for, location_for};
    use proptest::prelude::*;

    #[test]
    fn reads_each_form() {
        // short (1 unit, same line, columns 4..9), one line on (2 units), no columns (1 unit, 3 lines back), none (8 units), long form
        let table = [0x80, 0x45, 0xd9, 2, 7, 0xe8, 7, 0xff, 0xf0, 2, 1, 5, 9];
        let location = location_for(&table, 10, 0).unwrap();
        assert_eq!((location.line, location.columns), (10, Some((4, 9))));
        assert_eq!(location_for(&table, 10, 1).unwrap().columns, Some((2, 7)));
        assert_eq!(line_for(&table, 10, 2), Some(11));
        assert_eq!(line_for(&table, 10, 3), Some(8));
        assert_eq!(line_for(&table, 10, 4), None);
        let long = location_for(&table, 10, 12).unwrap();
        assert_eq!((long.line, long.end_line, long.columns), (9, 10, Some((4, 8))));
        assert_eq!(line_for(&table, 10, 13), None);
    }

    proptest! {
        #[test]
        fn survives_any_bytes(table in proptest::collection::vec(any::<u8>(), 0..300), first in any::<u32>(), unit in any::<u32>()) {
            let _ = location_for(&table, first, unit);
        }
    }
}
