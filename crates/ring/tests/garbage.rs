//! Readers of files that are not what they were: random bytes, flipped bits, cut ends, forged headers. They may return less, never
//! something else, and they must come back.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::path::Path;

use common::{Owned, drain, window};
use proptest::prelude::*;
use stormlog_ring::{Definition, Error, Log, LogConfig, LogReader, Ring, RingConfig, RingReader};

const HEADER: usize = 4096;
/// The part of the header that its checksum covers, and where the checksum is.
const FIXED: usize = 104;

/// What to do to a file.
#[derive(Debug, Clone)]
struct Harm {
    flips: Vec<(prop::sample::Index, u8)>,
    overwrite: Option<(prop::sample::Index, Vec<u8>)>,
    cut: Option<prop::sample::Index>,
    /// Whether the header's checksum is made right again afterwards.
    forge: bool,
    /// Leaves the header's fixed part alone, so that the reader gets further.
    spare_header: bool,
}

fn harm() -> impl Strategy<Value = Harm> {
    let flips = prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..20);
    let overwrite =
        prop::option::of((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..600)));
    let cut = prop::option::of(any::<prop::sample::Index>());
    (flips, overwrite, cut, any::<bool>(), any::<bool>()).prop_map(
        |(flips, overwrite, cut, forge, spare_header)| Harm { flips, overwrite, cut, forge, spare_header },
    )
}

impl Harm {
    fn apply(&self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let fixed = bytes[..FIXED + 8].to_vec();
        for (at, bit) in &self.flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some((at, new)) = &self.overwrite {
            let at = at.index(bytes.len());
            let end = (at + new.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        if self.spare_header {
            bytes[..FIXED + 8].copy_from_slice(&fixed);
        } else if self.forge {
            let crc = u64::from(crc32fast::hash(&bytes[..FIXED]));
            bytes[FIXED..FIXED + 8].copy_from_slice(&crc.to_le_bytes());
        }
        if let Some(cut) = &self.cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Whether `found` is `all` with some left out.
fn is_part_of(found: &[Owned], all: &[Owned]) -> bool {
    let mut all = all.iter();
    found.iter().all(|record| all.any(|original| original == record))
}

fn records() -> Vec<Owned> {
    (0..60u32).map(|number| (number as u8, number.to_le_bytes().repeat(1 + number as usize * 2))).collect()
}

fn append_all(mut append: impl FnMut(u8, &[u8], &Definition)) {
    for (kind, payload) in records() {
        append(kind, &payload, &Definition::new(&[kind / 10; 20]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_harmed_log_returns_only_what_was_appended(harm in harm()) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(dir.path(), LogConfig { segment_bytes: 16 << 10, ..LogConfig::default() }).unwrap();
        let mut writer = log.writer().unwrap();
        append_all(|kind, payload, definition| writer.append(kind, payload, &[definition]).unwrap());
        drop((log, writer));
        harm.apply(&dir.path().join("000001.slog"));
        let mut reader = LogReader::open(dir.path()).unwrap(); // the second segment is whole
        prop_assert!(is_part_of(&drain(&mut reader), &records()));
        let _ = (reader.status(), reader.loss(), reader.stats());
    }

    #[test]
    fn a_harmed_ring_returns_only_what_was_appended(harm in harm()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let config = RingConfig { slots: 80, definition_bytes: 2048, ..RingConfig::default() };
        let ring = Ring::create(&path, config).unwrap();
        let mut writer = ring.writer().unwrap();
        append_all(|kind, payload, definition| writer.append(kind, payload, &[definition]).unwrap());
        drop((ring, writer));
        harm.apply(&path);
        if let Ok(mut reader) = RingReader::open(&path) {
            prop_assert!(is_part_of(&window(&mut reader).0, &records()));
            let _ = (reader.status(), reader.loss());
        }
    }

    #[test]
    fn random_bytes_are_no_recording(mut bytes in prop::collection::vec(any::<u8>(), 0..20_000), forge in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000001.slog");
        if forge && bytes.len() > HEADER {
            bytes[..16].copy_from_slice(b"STORMRNG\x01\0\0\0\x02\0\0\0");
            let frame_words = ((bytes.len() - HEADER) / 8) as u64;
            bytes[16..24].copy_from_slice(&(frame_words * 8 + HEADER as u64).to_le_bytes());
            bytes[32..40].copy_from_slice(&frame_words.to_le_bytes());
            let crc = u64::from(crc32fast::hash(&bytes[..FIXED]));
            bytes[FIXED..FIXED + 8].copy_from_slice(&crc.to_le_bytes());
        }
        fs::write(&path, bytes).unwrap();
        prop_assert!(RingReader::open(&path).is_err());
        if let Ok(mut reader) = LogReader::open(dir.path()) {
            prop_assert!(drain(&mut reader).is_empty());
            let _ = reader.status();
        }
    }
}

#[test]
fn reader_finds_records_after_damage() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path(), LogConfig::default()).unwrap();
    let mut writer = log.writer().unwrap();
    append_all(|kind, payload, _| writer.append(kind, payload, &[]).unwrap());
    drop((log, writer));
    let path = dir.path().join("000001.slog");
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER] ^= 0x40; // the first frame's length, so that nothing follows where it says
    bytes[HEADER + 2000] ^= 1; // some payload
    fs::write(&path, bytes).unwrap();
    let mut reader = LogReader::open(dir.path()).unwrap();
    let found = drain(&mut reader);
    assert_eq!((found.len(), reader.stats().damaged), (58, 2));
    assert!(is_part_of(&found, &records()));
}

#[test]
fn errors_state_the_problem() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(LogReader::open(dir.path()), Err(Error::NoSegments { .. })));
    assert!(matches!(LogReader::open(dir.path().join("none")), Err(Error::Io { .. })));
    assert!(matches!(RingReader::open(dir.path()), Err(Error::Foreign { .. } | Error::Io { .. })));
    let path = dir.path().join("ring");
    drop(Ring::create(&path, RingConfig::default()).unwrap());
    let whole = fs::read(&path).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        RingReader::open(&path).err().unwrap()
    };
    assert!(matches!(with(0, b'X'), Error::Foreign { .. }));
    assert!(matches!(with(8, 2), Error::Version { found: 2, known: 1, .. }));
    assert!(matches!(with(24, 1), Error::Damaged { what: "checksum", .. }));
    fs::write(dir.path().join("000001.slog"), &whole).unwrap();
    assert!(matches!(LogReader::open(dir.path()), Err(Error::WrongKind { wanted: "log segment", .. })));
    fs::write(&path, &whole[..100]).unwrap();
    assert!(matches!(RingReader::open(&path), Err(Error::Foreign { .. })));
}

#[test]
fn fifo_instead_of_a_segment_blocks_no_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.slog");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(LogReader::open(dir.path()), Err(Error::Foreign { .. })));
}
