//! The raw fields of a well-behaved JSON record, found without building a tree.
//!
//! Gives up on whatever is unusual: an unknown key, an escape, a float, a number of more than 19 digits. The strict parser
//! then reads the record again.

use stormlog_model::Field;

use super::extent::Extent;
use super::window::is_space;
use crate::quick::{Quick, RawFields};

/// Finds fields, remembering in which order the last record had them.
#[derive(Debug, Default)]
pub(crate) struct FastScan {
    order: Vec<Field>,
}

impl FastScan {
    /// The fields of the record at the start of `bytes`, and its length.
    pub(crate) fn record<'a>(&mut self, bytes: &'a [u8], quick: &Quick) -> Option<(RawFields<'a>, usize)> {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut found = RawFields::default();
        cursor.expect(b'{')?;
        let mut count = 0;
        loop {
            cursor.skip_space();
            cursor.expect(b'"')?;
            let field = self.key(&mut cursor, count)?;
            if found.has(field) {
                return None;
            }
            cursor.skip_space();
            cursor.expect(b':')?;
            cursor.skip_space();
            match (field, cursor.peek()?) {
                (Field::Metadata, b'{') => found.metadata(metadata_text(&mut cursor, quick)?),
                (Field::Metadata, _) => return None,
                (_, b'"') => found.text(field, cursor.text()?),
                (_, b'n') => {
                    cursor.literal(b"null")?;
                    found.null(field);
                }
                _ => found.number(field, cursor.integer()?),
            }
            count += 1;
            cursor.skip_space();
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b'}' => {
                    cursor.at += 1;
                    return Some((found, cursor.at));
                }
                _ => return None,
            }
        }
    }

    /// The key at the cursor (behind its quote): the one the last record had here, or any known one.
    fn key(&mut self, cursor: &mut Cursor<'_>, index: usize) -> Option<Field> {
        if let Some(field) = self.order.get(index).copied() {
            let name = field.name().as_bytes();
            let rest = &cursor.bytes[cursor.at..];
            if rest.len() > name.len() && rest[name.len()] == b'"' && &rest[..name.len()] == name {
                cursor.at += name.len() + 1;
                return Some(field);
            }
        }
        let rest = &cursor.bytes[cursor.at..];
        let end = memchr::memchr(b'"', rest.get(..64.min(rest.len()))?)?;
        let field = Field::of_name(std::str::from_utf8(&rest[..end]).ok()?)?;
        cursor.at += end + 1;
        self.order.truncate(index);
        self.order.push(field);
        Some(field)
    }
}

fn metadata_text<'a>(cursor: &mut Cursor<'a>, quick: &Quick) -> Option<&'a [u8]> {
    let rest = &cursor.bytes[cursor.at..];
    let length = match quick.same_metadata(rest) {
        Some(length) => length,
        None => Extent::default().advance(rest)?,
    };
    cursor.at += length;
    Some(&rest[..length])
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// A string without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.at + 1..];
        let end = memchr::memchr2(b'"', b'\\', rest)?;
        if rest[end] == b'\\' || rest[..end].iter().any(|byte| *byte < 0x20) {
            return None;
        }
        self.at += end + 2;
        std::str::from_utf8(&rest[..end]).ok()
    }

    /// An integer of at most 19 digits: those fit 64 bits without a look at each.
    fn integer(&mut self) -> Option<i128> {
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let start = self.at;
        let mut value: u64 = 0;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let digits = self.at - start;
        let padded = digits > 1 && self.bytes[start] == b'0';
        let is_float = matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if digits == 0 || digits > 19 || padded || is_float || (negative && value == 0) {
            return None;
        }
        // A number at the very end of the window may continue in the next one.
        self.peek()?;
        Some(if negative { -i128::from(value) } else { i128::from(value) })
    }
}
