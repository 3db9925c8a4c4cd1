//! Reads what a definition's payload says. Must take any bytes.

use stormlog_capture::lines::without_columns;
use stormlog_capture::record::definition;

use crate::state::State;
use crate::tree::{Code, Module};

/// A definition in parts is never longer: the largest line tables have some hundred kilobytes.
const MAX_DEFINITION: usize = 64 << 20;

/// Adds a part; the whole when it was the last.
pub(crate) fn join(parts: &mut Vec<u8>, part: &[u8], more: bool) -> Option<Vec<u8>> {
    if parts.len() + part.len() <= MAX_DEFINITION {
        parts.extend_from_slice(part);
    }
    if more { None } else { Some(std::mem::take(parts)) }
}

pub(crate) fn define(state: &mut State, what: u64, id: u64, payload: &[u8]) {
    match what {
        definition::CODE => {
            if let Some(code) = code(payload) {
                state.tree.define_code(id, code);
            }
        }
        definition::MODULE => {
            if let Some(module) = module(id, payload) {
                state.tree.load(module);
            }
        }
        definition::MODULE_GONE => state.tree.unload(id),
        definition::THREAD_NAME => {
            state.thread_names.insert(id, String::from_utf8_lossy(payload).into_owned());
        }
        definition::CODE_ENDED => state.code_has_ended(),
        definition::PYTHON => state.python = Some(String::from_utf8_lossy(payload).into_owned()),
        _ => {}
    }
}

/// RLIMIT_AS, address space in use, resident bytes.
pub(crate) fn limits(payload: &[u8]) -> Option<[u64; 3]> {
    let mut bytes = Bytes(payload);
    Some([bytes.u64()?, bytes.u64()?, bytes.u64()?])
}

/// Type, index and source of a device.
pub(crate) fn device(payload: &[u8]) -> Option<(u8, u8, u8)> {
    let mut bytes = Bytes(payload);
    Some((bytes.u8()?, bytes.u8()?, bytes.u8()?))
}

/// Allocated and reserved bytes of a device.
pub(crate) fn totals(payload: &[u8]) -> Option<(u64, u64)> {
    let mut bytes = Bytes(payload);
    Some((bytes.u64()?, bytes.u64()?))
}

/// A failed request on a device: bytes, allocated, reserved; Python and native node of its stream.
pub(crate) fn failed_on_device(payload: &[u8]) -> Option<([u64; 3], [u32; 2])> {
    let mut bytes = Bytes(payload);
    Some(([bytes.u64()?, bytes.u64()?, bytes.u64()?], [bytes.u32()?, bytes.u32()?]))
}

fn code(payload: &[u8]) -> Option<Code> {
    let mut bytes = Bytes(payload);
    let first_line = bytes.u32()?;
    let (name, file) = (bytes.text()?, bytes.text()?);
    // As the finished file has them, so that the same code is the same wherever it was read.
    let table = without_columns(bytes.0).unwrap_or_else(|| bytes.0.to_vec());
    Some(Code { first_line, name, file, table })
}

fn module(base: u64, payload: &[u8]) -> Option<Module> {
    let mut bytes = Bytes(payload);
    let count = bytes.u32()?;
    let mut segments = Vec::new();
    for _ in 0..count {
        segments.push((bytes.u64()?, bytes.u64()?));
    }
    let length = bytes.u8()?;
    let build_id = bytes.take(usize::from(length))?.to_vec();
    Some(Module { base, segments, build_id, path: String::from_utf8_lossy(bytes.0).into_owned() })
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Text as CPython keeps it: one, two or four bytes a character.
    fn text(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        let width = self.u8()?;
        let bytes = self.take(length)?;
        let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(match width {
            1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
            2 => bytes
                .chunks_exact(2)
                .map(|pair| character(u32::from(u16::from_le_bytes([pair[0], pair[1]]))))
                .collect(),
            4 => {
                let words = bytes.chunks_exact(4);
                words
                    .map(|four| character(u32::from_le_bytes([four[0], four[1], four[2], four[3]])))
                    .collect()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stormlog_capture::lines::line_at;
    use stormlog_stack::line_table::line_for;

    /// Entries as CPython writes them, of every form.
    fn entry() -> impl Strategy<Value = Vec<u8>> {
        let head = |form: u8, units: u8| 0x80 | form << 3 | units;
        prop_oneof![
            (0u8..10, 0u8..8, any::<u8>())
                .prop_map(move |(form, units, byte)| vec![head(form, units), byte & 0x7f]),
            (10u8..13, 0u8..8, 0u8..80).prop_map(move |(form, units, byte)| vec![
                head(form, units),
                byte,
                byte
            ]),
            (0u8..8, 0u8..64).prop_map(move |(units, line)| vec![head(13, units), line]),
            (0u8..8, 0u8..64, 0u8..3)
                .prop_map(move |(units, low, high)| { vec![head(14, units), low | 64, high, 1, 70, 1, 9] }),
            (0u8..8).prop_map(move |units| vec![head(15, units)]),
        ]
    }

    proptest! {
        /// Every instruction keeps its line; and what is short already stays as it is.
        #[test]
        fn lines_stay(entries in prop::collection::vec(entry(), 0..60)) {
            let table = entries.concat();
            let short = without_columns(&table).unwrap();
            for instruction in 0..500 {
                let line = line_for(&table, 1000, instruction);
                prop_assert_eq!(line_for(&short, 1000, instruction), line);
                prop_assert_eq!(line_at(&table, 1000, instruction), line.unwrap_or(1000));
                prop_assert_eq!(line_at(&short, 1000, instruction), line.unwrap_or(1000));
            }
            prop_assert!(short.len() <= table.len());
            prop_assert_eq!(without_columns(&short).unwrap(), short);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(short) = without_columns(&bytes) {
                for instruction in 0..300 {
                    let line = line_for(&bytes, 7, instruction);
                    prop_assert_eq!(line_for(&short, 7, instruction), line);
                    prop_assert_eq!(line_at(&bytes, 7, instruction), line.unwrap_or(7));
                }
            }
        }
    }
}
