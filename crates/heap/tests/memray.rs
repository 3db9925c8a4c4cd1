//! Captures that Memray 1.20 wrote of one program in its four ways, against the figures of its own reports.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use stormlog_heap::{Capture, Heap, HeapError, HeapReadOptions, Mode, Stats};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> Heap {
    Capture::open(&data(name)).unwrap().read(HeapReadOptions::default()).unwrap()
}

fn figures(stats: &Stats) -> (u64, u64, u64, u64) {
    (stats.total_allocations, stats.total_allocated_bytes, stats.peak_bytes, stats.live_at_end_bytes)
}

#[test]
fn totals_peak_and_leaks_are_memrays() {
    for (name, expected) in [
        ("memray.bin", (166, 1_424_016, 1_090_326, 101_770)),
        ("memray-native.bin", (166, 1_424_016, 1_090_326, 101_770)),
        ("memray-objects.bin", (2612, 1_654_691, 1_152_303, 162_287)),
    ] {
        let stats = read(name).stats(5, None);
        assert_eq!(figures(&stats), expected, "{name}");
        assert!(stats.complete, "{name}");
        assert_eq!((stats.forced_events, stats.sample_bytes), (0, None), "{name}");
    }
}

#[test]
fn lines_threads_and_stacks_are_there() {
    let heap = read("memray.bin");
    let stats = heap.stats(5, None);
    assert!(
        stats.by_thread.iter().any(|thread| thread.name.as_deref() == Some("worker")),
        "{:?}",
        stats.by_thread
    );
    let leaks = heap.profile(Mode::Leaks, None).held.by_line();
    let own = leaks.iter().find(|entry| entry.frame.file.ends_with("nat.py") && entry.own.bytes > 0).unwrap();
    assert!(own.frame.function.contains("listcomp") || own.frame.function == "f", "{own:?}");
    assert_eq!(own.frame.line, 3);
    assert!(own.own.bytes > 20 * 3000);
    let is_memrays = |function: &str| ["main", "_run_with_file_output"].contains(&function);
    assert!(leaks.iter().all(|entry| !is_memrays(&entry.frame.function)), "Memray's own frames are left out");
    assert!(heap.samples.iter().all(|sample| sample.rss > 1 << 20));
}

#[test]
fn native_frames_keep_their_modules() {
    let heap = read("memray-native.bin");
    assert!(heap.modules().iter().any(|module| module.path.contains("libc.so")));
    let peak = heap.profile(Mode::Peak, None);
    assert!(
        peak.held.tree.frames.iter().any(|frame| frame.function.starts_with("0x") && !frame.file.is_empty())
    );
}

#[test]
fn an_aggregate_has_peak_and_leaks() {
    let heap = read("memray-aggregate.bin");
    let stats = heap.stats(5, None);
    assert_eq!((stats.peak_bytes, stats.live_at_end_bytes), (1_090_326, 101_770));
    let said: serde_json::Value = serde_json::from_str(&stats.json().unwrap()).unwrap();
    assert!(said["total_allocations"].is_null() && said["by_thread"][0]["bytes"].is_null(), "{said}");
    assert_eq!((&said["peak_bytes"], &said["complete"]), (&1_090_326.into(), &true.into()));
    let places = heap.stats(1000, None).top_by_size;
    assert_eq!(places.iter().map(|place| place.bytes).sum::<u64>(), stats.peak_bytes);
    assert_eq!(heap.profile(Mode::Peak, None).held.whole().bytes, stats.peak_bytes);
    assert!(
        heap.profile(Mode::Leaks, None)
            .held
            .by_line()
            .iter()
            .any(|entry| entry.frame.file.ends_with("nat.py"))
    );
}

#[test]
fn unreadable_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.bin");
    std::fs::write(&path, b"memray\0\x0a\0\0\0and so on, in a way of long ago").unwrap();
    let error = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap_err();
    assert!(matches!(error, HeapError::MemrayVersion { version: 10, .. }), "{error}");
    for name in ["memray.bin", "memray-aggregate.bin"] {
        let packed = std::fs::read(data(name)).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut lz4_flex::frame::FrameDecoder::new(&packed[..]), &mut bytes).unwrap();
        // Where its records begin: behind the header, with the program's command line.
        std::fs::write(&path, &bytes[..1000]).unwrap();
        let error = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap_err();
        assert!(matches!(error, HeapError::NothingLeft { .. }), "{name}: {error}");
    }
    let error = Capture::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damage gives an error or fewer records, never a panic.
    #[test]
    fn damage_is_survived(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(), which in 0usize..2) {
        let name = ["memray-native.bin", "memray-aggregate.bin"][which];
        let packed = std::fs::read(data(name)).unwrap();
        // Unpacked, so that the damage reaches the records.
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut lz4_flex::frame::FrameDecoder::new(&packed[..]), &mut bytes).unwrap();
        let index = at.index(bytes.len());
        bytes[index] ^= 1 << bit;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.bin");
        std::fs::write(&path, bytes).unwrap();
        if let Ok(capture) = Capture::open(&path)
            && let Ok(heap) = capture.read(HeapReadOptions::default())
        {
            heap.stats(3, None);
            let _ = heap.profile(Mode::Peak, None).held.by_function();
        }
    }
}
