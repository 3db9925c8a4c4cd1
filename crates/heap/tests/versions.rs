//! Files of every version of the format that was ever written stay readable. One is added with each new version, none is ever made anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

use std::path::Path;

use proptest::prelude::*;
use stormlog_heap::{Capture, Mode, Watch};

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn version_1() {
    says_the_same("heap-v1.bin");
}

/// The records of `heap-v1.bin`, packed anew: with counts of repetitions, and line tables without columns.
#[test]
fn version_2() {
    says_the_same("heap-v2.bin");
    let length = |name: &str| std::fs::metadata(data(name)).unwrap().len();
    assert!(length("heap-v2.bin") < length("heap-v1.bin") * 2 / 3);
}

/// The same records, packed whole: frames by their lines, with what is typical of CPython 3.11.
#[test]
fn version_3() {
    says_the_same("heap-v3.bin");
    let length = |name: &str| std::fs::metadata(data(name)).unwrap().len();
    assert!(length("heap-v3.bin") < length("heap-v2.bin") / 3);
}

/// The same records once more, with addresses and frames foreseen.
#[test]
fn version_4() {
    says_the_same("heap-v4.bin");
    let length = |name: &str| std::fs::metadata(data(name)).unwrap().len();
    assert!(length("heap-v4.bin") < length("heap-v3.bin"));
}

/// CPython 3.11 that made 20 blocks in a thread, kept 50 and dropped 200, each of 3000 bytes.
fn says_the_same(name: &str) {
    let heap = Capture::open(&data(name)).unwrap().read(Watch::default()).unwrap();
    let stats = heap.stats(5, None);
    assert_eq!((stats.total_allocations, stats.total_allocated_bytes), (1728, 5_138_128));
    assert_eq!((stats.peak_bytes, stats.peak_blocks, stats.peak_time_ns), (3_825_610, 717, 51_999_000));
    assert_eq!((stats.live_at_end_bytes, stats.live_at_end_blocks), (2_510_633, 35));
    assert_eq!((stats.forced_events, stats.lost_events, stats.complete), (0, 0, true));
    assert_eq!(stats.by_thread.iter().map(|thread| thread.count).collect::<Vec<_>>(), [1706, 22]);
    let lines = heap.profile(Mode::Peak, None).held.by_line();
    let made = lines.iter().find(|entry| entry.frame.function.ends_with("<listcomp>")).unwrap();
    assert_eq!((made.frame.file.as_str(), made.frame.line), ("/tmp/app/grow.py", 5));
    assert!(made.own.count >= 250 && made.own.bytes > 250 * 3000, "{made:?}");
    assert_eq!(heap.header.version, 1);
}

#[test]
fn a_later_version_is_named() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("heap.bin");
    let mut bytes = std::fs::read(data("heap-v1.bin")).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, bytes).unwrap();
    let error = Capture::open(&path).unwrap_err().to_string();
    assert!(error.contains("version 9") && error.contains("upgrade"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Damage behind the checksums gives an error or other figures, never a panic.
    #[test]
    fn damage_is_survived(name in prop_oneof![Just("heap-v1.bin"), Just("heap-v2.bin"), Just("heap-v3.bin"), Just("heap-v4.bin")], hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let place = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(data(name)).unwrap();
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        mend(&mut bytes);
        stormlog_heap::fuzz(&bytes, place.path());
    }
}

/// Puts every checksum right.
fn mend(bytes: &mut [u8]) -> Option<()> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let mut at = 20 + word(bytes, 12)?;
    let crc = crc32fast::hash(bytes.get(20..at)?);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    loop {
        let end = at + 24 + word(bytes, at + 8)? + word(bytes, at + 12)?;
        let crc = crc32fast::hash(bytes.get(at + 24..end)?);
        bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        let own = crc32fast::hash(&bytes[at..at + 20]);
        bytes[at + 20..at + 24].copy_from_slice(&own.to_le_bytes());
        at = end;
    }
}
