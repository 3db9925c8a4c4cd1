//! The sizes that page headers claim, looked at before the library believes them.
//!
//! The library takes as much memory as a header says its page will need, up to two gigabytes, before it finds out that the
//! page is a lie. Headers are Thrift's compact encoding; of each only the first three numbers matter, the rest is skipped.

use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::input::Input;

/// The most one page may need; writers aim at a megabyte.
const MAX_PAGE: i64 = 64 << 20;
/// A header with its statistics is a few hundred bytes.
const MAX_HEADER: usize = 64 << 10;
const MAX_NESTING: usize = 8;

/// Refuses a column chunk with an impossible place or an outsized page.
pub(super) fn check(input: &Input, chunk: &ColumnChunkMetaData) -> Result<(), ParquetError> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(chunk.compressed_size())) else {
        return Err(ParquetError::General("a column has a negative place or length".into()));
    };
    let end = start.checked_add(length).filter(|end| *end <= input.len());
    let end = end.ok_or_else(|| ParquetError::EOF("a column reaches beyond the end of the file".into()))?;
    let mut at = start;
    while at < end {
        let window = usize::try_from(end - at).unwrap_or(MAX_HEADER).min(MAX_HEADER);
        let bytes = input.get_bytes(at, window)?;
        let damaged = || ParquetError::General("a page header is damaged".into());
        let (sizes, header) = header(&bytes).ok_or_else(damaged)?;
        if !(0..=MAX_PAGE).contains(&sizes.needs) || sizes.takes < 0 {
            let message =
                format!("a page claims to need {} bytes; at most {MAX_PAGE} are given", sizes.needs);
            return Err(ParquetError::General(message));
        }
        // At least the header itself: the loop always moves on.
        at += header as u64 + sizes.takes as u64;
    }
    Ok(())
}

/// What a page says of itself.
struct Sizes {
    needs: i64,
    takes: i64,
}

/// The sizes in the header at the start of `bytes`, and its length.
fn header(bytes: &[u8]) -> Option<(Sizes, usize)> {
    let mut thrift = Thrift { bytes, at: 0 };
    let mut sizes = Sizes { needs: 0, takes: 0 };
    let mut field = 0i64;
    while let Some(kind) = thrift.field(&mut field)? {
        match (field, kind) {
            (2, 5) => sizes.needs = thrift.zigzag()?,
            (3, 5) => sizes.takes = thrift.zigzag()?,
            _ => thrift.skip(kind, 0)?,
        }
    }
    Some((sizes, thrift.at))
}

struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next field's number into `field` and its kind; `Some(None)` at the end of the struct.
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *field = match byte >> 4 {
            0 => self.zigzag()?,
            delta => field.checked_add(delta.into())?,
        };
        Some(Some(byte & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_NESTING {
            return None;
        }
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.leap(8)?,
            8 => {
                let length = self.varint()?;
                self.leap(usize::try_from(length).ok()?)?;
            }
            9 | 10 => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                for _ in 0..count {
                    // Truth values take a byte in a list; every other element moves on by itself or runs out of bytes.
                    let kind = if byte & 0x0f <= 2 { 3 } else { byte & 0x0f };
                    self.skip(kind, depth + 1)?;
                }
            }
            12 => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn leap(&mut self, count: usize) -> Option<()> {
        let at = self.at.checked_add(count).filter(|at| *at <= self.bytes.len())?;
        self.at = at;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_sizes_and_the_end() {
        // type 0, 300 bytes unpacked, 7 packed, a nested struct with a binary, then the end.
        let bytes = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 14, 0x2c, 0x18, 2, b'a', b'b', 0, 0, 99];
        let (sizes, length) = header(&bytes).unwrap();
        assert_eq!((sizes.needs, sizes.takes, length), (300, 7, 14));
    }

    #[test]
    fn refuses_what_has_no_end() {
        assert!(header(&[0x15]).is_none());
        assert!(header(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_none(), "a list of billions");
        assert!(header(&[0x1c; 64]).is_none(), "structs without end");
    }
}
