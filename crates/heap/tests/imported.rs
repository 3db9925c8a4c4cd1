//! Profiles that other tools wrote, against the figures of those tools' own reports.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use stormlog_heap::{Capture, Heap, HeapError, HeapReadOptions, Mode, Names, Stats};
use stormlog_model::memory::{Memory, Selection};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/data").join(name)
}

fn heap(name: &str) -> Heap {
    Capture::open(&path(name)).unwrap().read(HeapReadOptions::default()).unwrap()
}

fn stats(name: &str) -> Stats {
    heap(name).stats(10, None)
}

/// Bytes of the first place.
fn first(stats: &Stats) -> (u64, u64, &str, u32) {
    let place = &stats.top_by_size[0];
    (place.bytes, place.count, &place.function, place.line)
}

#[test]
fn heaptrack_figures_are_those_of_heaptrack_print() {
    // calls to allocation functions: 201, temporary: 52, peak 4.33M (10^6), leaked 3.67M, peak RSS 8.93M.
    let heap = heap("heaptrack.zst");
    let stats = heap.stats(10, None);
    assert_eq!((stats.total_allocations, stats.temporary_allocations), (201, 52));
    assert_eq!((stats.peak_bytes, stats.leaked_bytes), (4_334_080, 3_670_016));
    assert_eq!(stats.peak_rss_bytes, Some(8_929_280));
    assert_eq!(first(&stats), (3_670_016, 41, "keep(unsigned long)", 7));
    let kept = heap.profile(Mode::Leaks, None).held;
    let deepest = kept.rows.iter().max_by_key(|row| row.bytes).unwrap();
    let stack: Vec<&str> = kept.tree.stack(deepest.node).map(|frame| frame.function.as_str()).collect();
    assert_eq!(&stack[..3], ["keep(unsigned long)", "load()", "main"]);
}

#[test]
fn heaptrack_knows_what_lived_at_a_moment() {
    let options = HeapReadOptions { at_us: Some(1_000_000_000), ..HeapReadOptions::default() };
    let heap = Capture::open(&path("heaptrack.zst")).unwrap().read(options).unwrap();
    let lived: u64 = heap.profile(Mode::At, None).held.rows.iter().map(|row| row.bytes).sum();
    assert_eq!(lived, 3_670_016);
}

#[test]
fn massif_figures_are_those_of_ms_print() {
    let heap = heap("massif.out.gz");
    let stats = heap.stats(10, None);
    assert_eq!((stats.peak_bytes, stats.leaked_bytes), (4_334_080, 3_670_016));
    assert_eq!(first(&stats), (2_621_440, 0, "keep(unsigned long)", 7));
    assert_eq!(
        stats.top_by_size.iter().map(|place| place.bytes).sum::<u64>(),
        stats.peak_bytes,
        "every byte has a place"
    );
    assert_eq!(heap.curve().iter().map(|point| point.max_bytes).max(), Some(stats.peak_bytes));
    let json: serde_json::Value = serde_json::from_str(&stats.json().unwrap()).unwrap();
    assert!(json["peak_blocks"].is_null() && json["total_allocations"].is_null(), "massif counts no blocks");
    assert_eq!(json["imported"], "massif profile");
}

#[test]
fn gperftools_figures_are_those_of_its_own_head() {
    let stats = stats("gperftools.heap.gz");
    assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (3_670_016, 41));
    assert_eq!((stats.total_allocated_bytes, stats.total_allocations), (5_460_968, 200));
}

#[test]
fn jemalloc_figures_are_those_of_jeprof() {
    // jeprof: 3.6 MB in all.
    let stats = stats("jemalloc.heap.gz");
    assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (3_751_936, 42));
    assert!(!stats.has_totals, "prof_accum was off");
}

#[test]
fn go_figures_are_those_of_go_tool_pprof() {
    let stats = stats("go.pb.gz");
    assert_eq!(first(&stats), (2_624_488, 47, "main.keep", 13));
    assert_eq!((stats.leaked_bytes, stats.total_allocated_bytes), (2_640_752, 4_264_280));
}

#[test]
fn jax_profile_is_of_the_device_and_of_python_lines() {
    let mut heap = heap("jax.pb.gz");
    let cuda: Memory = "cuda:0".parse().unwrap();
    assert!(heap.memories().contains(&cuda), "{:?}", heap.memories());
    heap.select(Selection::One(cuda)).unwrap();
    let stats = heap.stats(10, None);
    assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (134_217_728, 2));
    assert!(stats.top_by_size.iter().all(|place| place.file == "<stdin>"), "{:?}", stats.top_by_size);
    assert!(stats.devices[0].categories.is_empty(), "a profile does not know what memory is for");
}

#[test]
fn profiler_trace_of_a_cpu_has_lines_of_python() {
    let stats = stats("kineto-cpu.json.gz");
    assert_eq!((stats.total_allocations, stats.peak_bytes, stats.leaked_bytes), (20, 4_718_592, 4 << 20));
    assert_eq!(first(&stats), (4 << 20, 4, "keep", 4));
}

#[test]
fn profiler_trace_of_a_gpu_agrees_with_the_allocator() {
    let mut heap = heap("kineto-gpu.json.gz");
    let cuda: Memory = "cuda:0".parse().unwrap();
    heap.select(Selection::One(cuda)).unwrap();
    let stats = heap.stats(10, None);
    // Sums of `Bytes`, the largest and the last `Total Allocated`, the largest `Total Reserved`.
    assert_eq!((stats.total_allocations, stats.total_allocated_bytes), (80, 72_785_920));
    assert_eq!((stats.peak_bytes, stats.live_at_end_bytes), (73_305_600, 73_110_016));
    assert_eq!(stats.devices[0].peak_reserved_bytes, Some(75_497_472));
    assert_eq!(stats.devices[0].before_recording_bytes, 2_897_920);
}

#[test]
fn heapprofd_profile_is_the_last_dump() {
    let stats = stats("heapprofd.pftrace");
    assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (2 * (2_621_440 + 512), 82));
    assert_eq!(stats.total_allocated_bytes, 2 * (2_621_440 + 1_638_400 + 512));
    assert_eq!(stats.pid, 77);
    assert_eq!(first(&stats), (2 * 2_621_440, 80, "keep(unsigned long)", 0));
    let unnamed = stats.top_by_size.last().unwrap();
    assert_eq!((unnamed.function.as_str(), unnamed.file.as_str()), ("0x50", "/usr/bin/demo"));
}

#[test]
fn sanitizer_leaks_are_by_the_line_that_allocated() {
    for name in ["sanitizer.txt", "sanitizer.xml"] {
        let stats = stats(name);
        assert_eq!(stats.memory, "cuda:0/driver".parse().unwrap());
        assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (1_052_576, 2), "{name}");
        let (bytes, count, function, line) = first(&stats);
        assert_eq!((bytes, count, line), (1_052_576, 2, 4), "{name}: {function}");
        assert!(function.starts_with("leaky"), "{name}: {function}");
    }
}

#[test]
fn profile_of_one_moment_refuses_a_question_about_time() {
    let options = HeapReadOptions { at_us: Some(5), ..HeapReadOptions::default() };
    let error = Capture::open(&path("go.pb.gz")).unwrap().read(options).unwrap_err();
    assert!(matches!(error, HeapError::NoMoments { .. }), "{error}");
    assert!(error.to_string().ends_with("use --peak or --leaks"), "{error}");
}

/// Is in a profile by its address alone.
#[inline(never)]
fn imported_test_function(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

#[test]
fn addresses_are_named_from_the_files_in_the_memory_map() {
    let address = imported_test_function as *const () as u64 + 4;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let text = format!(
        "heap profile: 1: 7 [1: 7] @ heapprofile\n 1: 7 [1: 7] @ {address:#x}\n\nMAPPED_LIBRARIES:\n{maps}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile");
    std::fs::write(&file, text).unwrap();
    let heap = Capture::open(&file).unwrap().read(HeapReadOptions::default()).unwrap();
    let stats = heap.stats(1, Some(&mut Names::default()));
    assert_eq!(first(&stats).2, "imported::imported_test_function");
    assert_eq!(imported_test_function(1), 2);
}

/// The export of a real profile, as nsys wrote it: a database is not read compressed.
fn nsight() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path("nsight.sqlite.gz")).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    let database = place.path().join("report.sqlite");
    std::fs::write(&database, bytes).unwrap();
    (place, database)
}

#[test]
fn nsight_figures_are_those_of_the_program_that_was_profiled() {
    const MIB: u64 = 1 << 20;
    let (_place, database) = nsight();
    let mut heap = Capture::open(&database).unwrap().read(HeapReadOptions::default()).unwrap();
    let device = heap.memories().into_iter().find(|memory| *memory != Memory::Host).unwrap();
    heap.select(Selection::One(device)).unwrap();
    let stats = heap.stats(10, None);
    // 1 to 10 MiB together, before 1, 3, 5, 7 and 9 MiB were freed; then 3 MiB of managed memory.
    assert_eq!((stats.peak_bytes, stats.total_allocations), (55 * MIB, 11));
    assert_eq!((stats.leaked_bytes, stats.leaked_blocks), (33 * MIB, 6));
    assert_eq!(first(&stats), (55 * MIB, 10, "cudaMalloc", 0));
    heap.select(Selection::One(Memory::Host)).unwrap();
    let stats = heap.stats(10, None);
    assert_eq!((stats.peak_bytes, stats.leaked_blocks), (5 * MIB, 1));
    assert_eq!(first(&stats), (5 * MIB, 1, "pinned memory", 0));
}

#[test]
fn nsight_export_that_was_cut_or_changed_is_an_error_and_never_a_panic() {
    let (place, database) = nsight();
    let whole = std::fs::read(&database).unwrap();
    let damaged = place.path().join("damaged.sqlite");
    let mut number = 7_usize;
    for round in 0..100 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 40 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (number >> 20) % if round % 2 == 0 { bytes.len() } else { 4096 * 4 };
            bytes[at] = (number >> 9) as u8;
        }
        if round % 3 == 0 {
            bytes.truncate((number >> 16) % whole.len());
        }
        std::fs::write(&damaged, &bytes).unwrap();
        if let Ok(heap) = Capture::open(&damaged).and_then(|capture| capture.read(HeapReadOptions::default()))
        {
            heap.stats(10, None);
        }
    }
}
