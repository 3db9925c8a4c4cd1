//! A finished capture that was committed stays readable: the format has one version.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

use std::io::ErrorKind;
use std::path::Path;

use proptest::prelude::*;
use stormlog_capture::CaptureError;
use stormlog_heap::{Capture, HeapError, HeapReadOptions, Mode};

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// CPython 3.11 that made 20 blocks in a thread, kept 50 and dropped 200, each of 3000 bytes.
#[test]
fn committed_capture_has_the_figures_it_was_recorded_with() {
    let heap = Capture::open(&data("heap.bin")).unwrap().read(HeapReadOptions::default()).unwrap();
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
fn other_versions_are_named_and_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("heap.bin");
    let mut bytes = std::fs::read(data("heap.bin")).unwrap();
    for (version, advice) in [(9, "upgrade"), (3, "record it again")] {
        bytes[8] = version;
        std::fs::write(&path, &bytes).unwrap();
        let text = Capture::open(&path).unwrap_err().to_string();
        assert!(text.contains(&format!("version {version}")) && text.contains(advice), "{text}");
    }
}

#[test]
fn capture_errors_are_distinguished() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("heap.bin");
    let error = || match Capture::open(&path).and_then(|capture| capture.read(HeapReadOptions::default())) {
        Err(HeapError::Capture(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(error(), CaptureError::Io { source, .. } if source.kind() == ErrorKind::NotFound));
    std::fs::write(&path, "a text, and not a short one at that").unwrap();
    assert!(matches!(error(), CaptureError::Foreign { .. }));
    let mut bytes = std::fs::read(data("heap.bin")).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(error(), CaptureError::Damaged { .. }));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Capture::open(place.path()), Err(HeapError::NoCapture { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Damage behind the checksums gives an error or other figures, never a panic.
    #[test]
    fn damage_is_survived(hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let place = tempfile::tempdir().unwrap();
        for file in ["heap.bin", "devices.bin"] {
            let mut bytes = std::fs::read(data(file)).unwrap();
            for (at, value) in &hits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            repair(&mut bytes);
            stormlog_heap::fuzz(&bytes, place.path());
        }
    }
}

/// Puts every checksum right.
fn repair(bytes: &mut [u8]) -> Option<()> {
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
