//! The usual content of columns at the start of a Python program with common imports: a compression dictionary for each version of CPython, so
//! that a capture stores only the difference. Made by `examples/make_dictionary.rs`. Must never change once released: files were packed with it.

use std::path::Path;
use std::sync::LazyLock;

use crate::CaptureError;
use crate::columns::{COLUMNS, FILE_NAMES};
use crate::repack;
use crate::source::Source;
use crate::wire::{Put, Take};

/// A dictionary for each column.
pub(crate) type Typical = Vec<Vec<u8>>;

/// Most bytes of one dictionary, unpacked.
const MOST: usize = 1 << 20;

/// By number from 1 on: CPython 3.11 and so on.
static SEALED: [LazyLock<Option<Typical>>; 4] = [
    LazyLock::new(|| load(include_bytes!("../dictionaries/cpython-3.11.zst"))),
    LazyLock::new(|| load(include_bytes!("../dictionaries/cpython-3.12.zst"))),
    LazyLock::new(|| load(include_bytes!("../dictionaries/cpython-3.13.zst"))),
    LazyLock::new(|| load(include_bytes!("../dictionaries/cpython-3.14.zst"))),
];

/// The number of the dictionary for a Python of this version (as `Py_Version` gives it); 0: none.
pub(crate) fn number_for(version: u64) -> u8 {
    match (version >> 24, version >> 16 & 0xff) {
        (3, minor @ 11..) => (minor - 10).min(SEALED.len() as u64) as u8,
        _ => 0,
    }
}

/// The dictionary of a number: none, or one. `None`: not known to this release.
pub(crate) fn numbered(number: u8) -> Option<Option<&'static Typical>> {
    match number.checked_sub(1) {
        None => Some(None),
        Some(index) => SEALED.get(usize::from(index))?.as_ref().map(Some),
    }
}

fn load(packed: &[u8]) -> Option<Typical> {
    let bytes = zstd::bulk::decompress(packed, MOST).ok()?;
    let mut take = Take::new(&bytes);
    (0..COLUMNS).map(|_| take.bytes().map(<[u8]>::to_vec)).collect()
}

/// A dictionary from a capture, the file names of which begin with `prefix` where others begin with `/usr`.
pub fn make(capture: &Path, prefix: &str) -> Result<Vec<u8>, CaptureError> {
    let mut columns = repack::first_columns(&mut Source::open(capture)?)?;
    columns[FILE_NAMES] = renamed(&columns[FILE_NAMES], prefix.as_bytes()).unwrap_or_default();
    let mut bytes = Vec::new();
    columns.iter().for_each(|column| bytes.put_bytes(column));
    zstd::bulk::compress(&bytes, 22).map_err(CaptureError::io(capture))
}

fn renamed(column: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let (mut take, mut out) = (Take::new(column), Vec::new());
    while !take.is_empty() {
        let head = take.number()?;
        let mut text = (0..head >> 2).map(|_| take.byte()).collect::<Option<Vec<u8>>>()?;
        // Nothing of the machine it was made on.
        if let Some(rest) = text.strip_prefix(prefix) {
            text = [b"/usr", rest].concat();
        } else if let Some(slash) = text.iter().rposition(|byte| *byte == b'/') {
            text.drain(..slash);
        }
        out.put((text.len() as u64) << 2 | head & 3);
        out.extend_from_slice(&text);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files were packed with these very bytes.
    #[test]
    fn dictionaries_of_the_format_stay() {
        let bytes: [&[u8]; 4] = [
            include_bytes!("../dictionaries/cpython-3.11.zst"),
            include_bytes!("../dictionaries/cpython-3.12.zst"),
            include_bytes!("../dictionaries/cpython-3.13.zst"),
            include_bytes!("../dictionaries/cpython-3.14.zst"),
        ];
        assert_eq!(bytes.map(crc32fast::hash), [0x7a2a_8499, 0x3812_1657, 0xd442_4222, 0xc8bb_db0a]);
    }

    #[test]
    fn every_version_has_its_number() {
        let python = |minor: u64| number_for(3 << 24 | minor << 16 | 7 << 8 | 0xf0);
        assert_eq!([10, 11, 12, 13, 14, 15].map(python), [0, 1, 2, 3, 4, 4]);
        for number in 1..=4 {
            let typical = numbered(number).unwrap().unwrap();
            assert_eq!(typical.len(), COLUMNS);
            assert!(typical[FILE_NAMES].windows(12).any(|text| text == b"/lib/python3"));
        }
        assert_eq!((numbered(0), numbered(5)), (Some(None), None));
    }
}
