//! The sizes that page headers claim, looked at before the library believes them.
//!
//! The library takes as much memory as a header says its page will need, up to two gigabytes, before it finds out that the
//! page is a lie. Of a page in gzip it does not even ask the header: that one is unpacked once to see how large it is. Headers are
//! Thrift's compact encoding; of each only a few numbers matter, the rest is skipped.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::input::Input;

/// The most one page may need; writers aim at a megabyte.
const MAX_PAGE: i64 = 64 << 20;
/// A header with its statistics is a few hundred bytes.
const USUAL_HEADER: usize = 512;
const MAX_HEADER: usize = 64 << 10;
const MAX_NESTING: usize = 8;

/// The most the pages of one row group may need together: they are in memory at the same time.
const MAX_GROUP: i64 = 1 << 30;

/// What the pages of a row group may still need.
pub(super) struct Budget(i64);

impl Budget {
    pub(super) fn of_group() -> Self {
        Budget(MAX_GROUP)
    }

    fn spend(&mut self, bytes: i64) -> Result<(), ParquetError> {
        self.0 -= bytes;
        if self.0 >= 0 {
            return Ok(());
        }
        let message = format!("a row group unpacks to more than {MAX_GROUP} bytes; write smaller row groups");
        Err(ParquetError::General(message))
    }
}

/// Refuses a column chunk with an impossible place, an outsized page, or a page of a dictionary that is not there, at which the library panics.
pub(super) fn check(
    input: &Input,
    chunk: &ColumnChunkMetaData,
    budget: &mut Budget,
) -> Result<(), ParquetError> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(chunk.compressed_size())) else {
        return Err(ParquetError::General("a column has a negative place or length".into()));
    };
    let end = start.checked_add(length).filter(|end| *end <= input.len());
    let end = end.ok_or_else(|| ParquetError::EOF("a column reaches beyond the end of the file".into()))?;
    let (mut at, mut has_dictionary) = (start, false);
    while at < end {
        let read = |most: usize| {
            let window = usize::try_from(end - at).unwrap_or(most).min(most);
            input.get_bytes(at, window).map(|bytes| header(&bytes))
        };
        let damaged = || ParquetError::General("a page header is damaged".into());
        let found = match read(USUAL_HEADER)? {
            Some(found) => Some(found),
            None => read(MAX_HEADER)?,
        };
        let (sizes, header) = found.ok_or_else(damaged)?;
        has_dictionary |= sizes.is_dictionary;
        if sizes.refers_to_dictionary && !has_dictionary {
            return Err(ParquetError::General("a page refers to a dictionary that is not there".into()));
        }
        let (body, takes) = (at + header as u64, u64::try_from(sizes.takes).ok());
        if !(0..=MAX_PAGE).contains(&sizes.needs) || takes.is_none() {
            let message =
                format!("a page claims to need {} bytes; at most {MAX_PAGE} are given", sizes.needs);
            return Err(ParquetError::General(message));
        }
        let takes = takes.unwrap_or(0);
        budget.spend(sizes.needs)?;
        if matches!(chunk.compression(), Compression::GZIP(_)) {
            // A page that reaches beyond the column is an error of the library's reader.
            let page =
                input.get_bytes(body, usize::try_from(takes.min(end.saturating_sub(body))).unwrap_or(0))?;
            check_gzip(page.get(sizes.levels..).unwrap_or(&[]), sizes.needs)?;
        }
        // At least the header itself: the loop always moves on.
        at = body.saturating_add(takes);
    }
    Ok(())
}

/// Refuses a page in gzip that unpacks to more than it claims.
fn check_gzip(packed: &[u8], claimed: i64) -> Result<(), ParquetError> {
    let mut decoder = MultiGzDecoder::new(packed);
    let mut chunk = vec![0; 64 << 10];
    let mut left = claimed;
    // Bytes that are not gzip are rejected by the library, which reads no more of them than this loop.
    while let Ok(count @ 1..) = decoder.read(&mut chunk) {
        left -= count as i64;
        if left < 0 {
            let message = format!("a page unpacks to more than the {claimed} bytes it claims");
            return Err(ParquetError::General(message));
        }
    }
    Ok(())
}

/// What a page says of itself.
struct Sizes {
    needs: i64,
    takes: i64,
    /// Bytes of levels before the packed values of a page of version 2.
    levels: usize,
    is_dictionary: bool,
    refers_to_dictionary: bool,
}

/// Thrift's numbers of a page that is a dictionary, and of the encodings that refer to one.
const DICTIONARY_PAGE: i64 = 2;
const DICTIONARY_ENCODINGS: [i64; 2] = [2, 8];

/// The sizes in the header at the start of `bytes`, and its length.
fn header(bytes: &[u8]) -> Option<(Sizes, usize)> {
    let mut thrift = Thrift { bytes, at: 0 };
    let mut sizes =
        Sizes { needs: 0, takes: 0, levels: 0, is_dictionary: false, refers_to_dictionary: false };
    let mut field = 0i64;
    while let Some(kind) = thrift.field(&mut field)? {
        match (field, kind) {
            (1, 5) => sizes.is_dictionary = thrift.zigzag()? == DICTIONARY_PAGE,
            (2, 5) => sizes.needs = thrift.zigzag()?,
            (3, 5) => sizes.takes = thrift.zigzag()?,
            (5, 12) => sizes.refers_to_dictionary = thrift.page(2)?.1,
            (8, 12) => (sizes.levels, sizes.refers_to_dictionary) = thrift.page(4)?,
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

    /// The header of the page itself, whose encoding is in the field of that number: the bytes of both kinds of levels of a page of version 2, and whether
    /// its values are places in a dictionary.
    fn page(&mut self, encoding: i64) -> Option<(usize, bool)> {
        let (mut field, mut levels, mut refers) = (0, 0i64, false);
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (number, 5) if number == encoding => refers = DICTIONARY_ENCODINGS.contains(&self.zigzag()?),
                (5 | 6, 5) => levels = levels.checked_add(self.zigzag()?)?,
                _ => self.skip(kind, 1)?,
            }
        }
        usize::try_from(levels).ok().map(|levels| (levels, refers))
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
    fn finds_the_levels_of_a_page_of_version_2() {
        // 300 bytes unpacked, 7 packed, then rows, nulls, a count, an encoding, 3 and 4 bytes of levels.
        let bytes =
            [0x25, 0xd8, 0x04, 0x15, 14, 0x5c, 0x15, 2, 0x15, 0, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 8, 0, 0];
        let (sizes, length) = header(&bytes).unwrap();
        assert_eq!((sizes.needs, sizes.takes, sizes.levels, length), (300, 7, 7, bytes.len()));
    }

    #[test]
    fn refuses_gzip_that_unpacks_to_more_than_it_claims() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &vec![7; 1 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        assert!(check_gzip(&packed, 1 << 20).is_ok());
        assert!(check_gzip(&packed, (1 << 20) - 1).is_err());
        assert!(check_gzip(b"no gzip at all", 0).is_ok(), "left to the library");
    }

    #[test]
    fn refuses_what_has_no_end() {
        assert!(header(&[0x15]).is_none());
        assert!(header(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_none(), "a list of billions");
        assert!(header(&[0x1c; 64]).is_none(), "structs without end");
    }
}
