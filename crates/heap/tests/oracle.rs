//! Random programs of many threads, recorded stream by stream, and read back against a simple count of what really happened.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use stormlog_capture::record::kind;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, HeapReadOptions, Mode, Stats};
use writer::{Dice, Writer};

/// What really happened.
#[derive(Default)]
struct Truth {
    live: BTreeMap<u64, (u64, usize)>,
    now: u64,
    peak: u64,
    peak_time_us: u64,
    at_peak: BTreeMap<usize, u64>,
    total_bytes: u64,
    total_count: u64,
}

impl Truth {
    fn allocate(&mut self, address: u64, size: u64, stream: usize, time: u64) {
        assert!(self.live.insert(address, (size, stream)).is_none());
        self.now += size;
        self.total_bytes += size;
        self.total_count += 1;
        if self.now > self.peak {
            (self.peak, self.peak_time_us) = (self.now, time);
            self.at_peak.clear();
            for (size, stream) in self.live.values() {
                *self.at_peak.entry(*stream).or_default() += size;
            }
        }
    }

    fn free(&mut self, address: u64) {
        self.now -= self.live.remove(&address).unwrap().0;
    }
}

/// A program whose threads free each other's blocks and get each other's addresses. `tick` events share a clock tick.
fn program(writer: &mut Writer, streams: usize, steps: u64, tick: u64, seed: u64) -> Truth {
    let mut truth = Truth::default();
    let mut dice = Dice(seed | 1);
    let mut nodes = Vec::new();
    for stream in 0..streams {
        writer.define_code(stream, 7, "work", "x.py", 10);
        writer.define_code(stream, 100 + stream as u64, &format!("thread_{stream}"), "x.py", 20);
        let outer = writer.python_node(stream, 7, 0, 0);
        nodes.push(writer.python_node(stream, 100 + stream as u64, 3, outer));
    }
    let mut clocks = vec![u64::MAX; streams];
    let mut freed: Vec<u64> = Vec::new();
    for step in 0..steps {
        let stream = dice.roll(streams as u64) as usize;
        let time = 1000 + step / tick * 1000;
        if std::mem::replace(&mut clocks[stream], time) != time {
            writer.time(stream, time);
        }
        let pick = |dice: &mut Dice, truth: &Truth| {
            let index = dice.roll(truth.live.len() as u64) as usize;
            *truth.live.keys().nth(index).unwrap()
        };
        match dice.roll(10) {
            0..=4 => {
                let address = match dice.roll(2) {
                    0 if !freed.is_empty() => freed.pop().unwrap(),
                    _ => 0x10_0000 + step * 64,
                };
                let size = dice.roll(5000);
                truth.allocate(address, size, stream, time);
                writer.allocate(stream, kind::MALLOC, address, size, (nodes[stream], 0));
            }
            5..=8 if !truth.live.is_empty() => {
                let address = pick(&mut dice, &truth);
                truth.free(address);
                writer.free(stream, kind::FREE, address);
                freed.push(address);
            }
            9 if !truth.live.is_empty() => {
                let address = pick(&mut dice, &truth);
                writer.free(stream, kind::REALLOC_TAKE, address);
                if dice.roll(3) == 0 {
                    writer.free(stream, kind::REALLOC_UNDO, address);
                } else {
                    truth.free(address);
                    let (moved, size) = (0x20_0000_0000 + step * 64, dice.roll(9000));
                    truth.allocate(moved, size, stream, time);
                    writer.allocate(stream, kind::REALLOC, moved, size, (nodes[stream], 0));
                }
            }
            _ => {}
        }
    }
    truth
}

fn stats(path: &Path) -> Stats {
    Capture::open(path).unwrap().read(HeapReadOptions::default()).unwrap().stats(10, None)
}

fn check(stats: &Stats, truth: &Truth) {
    check_order(stats, truth);
    assert_eq!(stats.forced_events, 0);
    assert_eq!(stats.live_at_end_bytes, truth.now);
}

/// What any order that could have been gives. (Two threads that free and allocate an address in one tick may have done so either way round;
/// then only the number of blocks left is certain.)
fn check_order(stats: &Stats, truth: &Truth) {
    assert_eq!(stats.total_allocations, truth.total_count);
    assert_eq!(stats.total_allocated_bytes, truth.total_bytes);
    // The reader looks for an order only so long. What it then had to guess it counts, and nothing is claimed.
    if stats.forced_events == 0 {
        assert_eq!(stats.live_at_end_blocks, truth.live.len() as u64);
        assert_eq!(stats.unknown_frees, 0);
    }
}

#[test]
fn one_event_a_tick_is_exact_to_the_peak() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 5, 0);
    let truth = program(&mut writer, 5, 40_000, 1, 12345);
    writer.end();
    for is_finished in [false, true] {
        if is_finished {
            let mut compactor = Compactor::open(&path, Options::default()).unwrap();
            compactor.step().unwrap();
            compactor.finish(json!({"exit_code": 0})).unwrap();
        }
        let heap = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap();
        let stats = heap.stats(10, None);
        check(&stats, &truth);
        assert_eq!((stats.peak_bytes, stats.peak_time_ns), (truth.peak, truth.peak_time_us * 1000));
        assert!(stats.complete);
        let peak = heap.profile(Mode::Peak, None).held;
        assert_eq!(peak.whole().bytes, truth.peak);
        for (stream, bytes) in &truth.at_peak {
            let name = format!("thread_{stream}");
            let entry = peak.by_function().into_iter().find(|entry| entry.frame.function == name).unwrap();
            assert_eq!(entry.own.bytes, *bytes, "what {name} held at the peak");
            assert_eq!((entry.frame.file.as_str(), entry.total), ("x.py", entry.own));
        }
        let work = peak.by_function().into_iter().find(|entry| entry.frame.function == "work").unwrap();
        assert_eq!((work.own.bytes, work.total.bytes), (0, truth.peak), "one `work` for all streams");
        assert_eq!(heap.curve().iter().map(|point| point.max_bytes).max(), Some(truth.peak));
        assert_eq!(heap.profile(Mode::Leaks, None).held.whole().bytes, truth.now);
        assert_eq!(stats.top_by_size[0].line, 20);
        assert_eq!(stats.by_thread.len(), 5);
    }
}

#[test]
fn aggregate_equals_the_records_and_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 4, 0);
    let truth = program(&mut writer, 4, 60_000, 1, 777);
    let plain = stats(&path);
    let options =
        || Options { aggregate: true, fold: Some(Box::new(Aggregate::default())), ..Options::default() };
    let mut compactor = Compactor::open(&path, options()).unwrap();
    compactor.step().unwrap();
    drop(compactor); // killed: state and live file must do
    let at_death = stats(&path);
    check(&at_death, &truth);
    assert!(!at_death.complete);
    Compactor::open(&path, options()).unwrap().finish(json!({"signal": 9})).unwrap();
    let finished = stats(&path);
    check(&finished, &truth);
    assert_eq!((finished.peak_bytes, finished.peak_time_ns), (plain.peak_bytes, plain.peak_time_ns));
    assert_eq!(finished.top_by_size, plain.top_by_size);
    assert_eq!(finished.size_histogram, plain.size_histogram);
    assert!(!finished.complete);
}

#[test]
fn a_bounded_file_folds_its_oldest_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 3, 0);
    let truth = program(&mut writer, 3, 60_000, 1, 4711);
    let plain = stats(&path);
    let fold = || Some(Box::new(Aggregate::default()) as _);
    let options = Options { max_size: Some(60_000), fold: fold(), ..Options::default() };
    let mut compactor = Compactor::open(&path, options).unwrap();
    compactor.step().unwrap();
    let shrunk = stats(&path);
    check(&shrunk, &truth);
    compactor.finish(json!({"exit_code": 0})).unwrap();
    let bounded = stats(&path);
    check(&bounded, &truth);
    assert_eq!((bounded.peak_bytes, bounded.peak_time_ns), (plain.peak_bytes, plain.peak_time_ns));
    assert_eq!(bounded.top_by_count, plain.top_by_count);
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length < 130_000, "{length} bytes");
}

#[test]
fn a_bound_holds_at_every_step_and_survives_kills() {
    const LIMIT: u64 = 40_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let options = || {
        let fold = Some(Box::new(Aggregate::default()) as _);
        Options { max_size: Some(LIMIT), fold, ..Options::default() }
    };
    let mut writer = Writer::create(&path, 4, 0);
    let (mut dice, mut time, mut now) = (Dice(31), 0, 0);
    let (mut truth, mut living) = (Truth::default(), Vec::new());
    let mut compactor = Compactor::open(&path, options()).unwrap();
    for round in 0..6 {
        for step in 0..20_000 {
            if step % 1500 == 0 {
                (0..4).for_each(|stream| writer.close(stream));
            }
            let stream = dice.roll(4) as usize;
            time += 1;
            writer.time(stream, time);
            if living.len() < 300 || (living.len() < 600 && dice.roll(2) == 0) {
                let (address, size) = (0x10_0000 + time * 4096, 1 + dice.roll(5000));
                writer.allocate(stream, kind::MALLOC, address, size, (0, 0));
                living.push((address, size));
                (truth.total_count, truth.total_bytes, now) =
                    (truth.total_count + 1, truth.total_bytes + size, now + size);
                truth.peak = now.max(truth.peak);
            } else {
                let (address, size) = living.swap_remove(dice.roll(living.len() as u64) as usize);
                writer.free(stream, kind::FREE, address);
                now -= size;
            }
        }
        assert!(compactor.waiting() > 32, "a round is more than waits for others");
        for _ in 0..20 {
            compactor.step().unwrap();
            let length = std::fs::metadata(&path).unwrap().len();
            assert!(length <= LIMIT, "round {round}: {length} bytes");
        }
        assert!(compactor.waiting() < 32, "round {round}: {} slots wait for ever", compactor.waiting());
        if round % 2 == 1 {
            compactor = Compactor::open(&path, options()).unwrap(); // the one before was killed
        }
    }
    let at_death = stats(&path);
    compactor.finish(json!({"signal": 9})).unwrap();
    for stats in [at_death, stats(&path)] {
        assert_eq!(
            (stats.total_allocations, stats.total_allocated_bytes),
            (truth.total_count, truth.total_bytes)
        );
        assert_eq!((stats.peak_bytes, stats.live_at_end_bytes), (truth.peak, now));
        assert_eq!((stats.live_at_end_blocks, stats.forced_events), (living.len() as u64, 0));
    }
    let ending = 1000;
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length <= LIMIT + ending, "{length} bytes");
}

#[test]
fn a_small_bound_holds_for_all_that_was_left_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 3, 0);
    let truth = program(&mut writer, 3, 60_000, 1, 815);
    let plain = stats(&path);
    let length = |max_size| {
        let fold = Some(Box::new(Aggregate::default()) as _);
        let options = Options { max_size, aggregate: max_size.is_none(), fold, ..Options::default() };
        let copy = directory.path().join("copy.bin");
        std::fs::copy(&writer.path, copy.with_extension("bin.live")).unwrap();
        Compactor::open(&copy, options).unwrap().finish(json!({})).unwrap();
        let bounded = stats(&copy);
        check(&bounded, &truth);
        assert_eq!((bounded.peak_bytes, bounded.peak_time_ns), (plain.peak_bytes, plain.peak_time_ns));
        let length = std::fs::metadata(&copy).unwrap().len();
        std::fs::remove_file(copy).unwrap();
        length
    };
    // Nothing but stacks and living blocks, as where no records are kept at all.
    let least = length(None);
    assert!(length(Some(1000)) <= least + 200, "{} instead of {least} bytes", length(Some(1000)));
    assert!(length(Some(2 * least)) <= 2 * least + 200);
}

#[test]
fn mappings_are_cut_and_failures_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    writer.time(0, 500);
    writer.define_code(0, 1, "load", "/home/me/train.py", 12);
    let node = writer.python_node(0, 1, 0, 0);
    writer.allocate(0, kind::MMAP, 0x7000_0000, 40 * 4096, (node, 0));
    writer.unmap(0, 0x7000_0000 + 4096, 8 * 4096);
    writer.unmap(0, 0x7000_0000 + 30 * 4096, 99 * 4096);
    writer.unmap(0, 0x1000, 4096);
    writer.free(0, kind::FREE, 0xdead0);
    writer.time(0, 700);
    let limits = [1u64 << 30, 900 << 20, u64::MAX].map(u64::to_le_bytes).concat();
    writer.define(0, stormlog_capture::record::definition::LIMITS, 0, &limits);
    writer.failed(0, kind::MALLOC, 12, 907_000_000, node);
    let stats = stats(&path);
    assert_eq!(stats.peak_bytes, 40 * 4096);
    assert_eq!(stats.live_at_end_bytes, (1 + 21) * 4096);
    assert_eq!((stats.live_at_end_blocks, stats.unknown_frees), (1, 2));
    let failed = &stats.failed_requests[0];
    assert_eq!((failed.bytes, failed.errno, failed.time_ns), (907_000_000, 12, 700_000));
    assert_eq!(
        (failed.limit_bytes, failed.address_space_bytes, failed.resident_bytes),
        (Some(1 << 30), Some(900 << 20), None)
    );
    assert_eq!((failed.stack[0].function.as_str(), failed.stack[0].line), ("load", 12));
    assert_eq!(stats.top_by_size[0].function, "load");
    assert!(!stats.complete);
}

#[test]
fn a_span_and_a_moment_are_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    for (time, address, size) in [(1000, 0x10, 100), (2000, 0x20, 30), (3000, 0x30, 7), (5000, 0x40, 1000)] {
        writer.time(0, time);
        writer.allocate(0, kind::MALLOC, address, size, (0, 0));
    }
    writer.time(0, 6000);
    writer.free(0, kind::FREE, 0x20);
    let options =
        HeapReadOptions { at_us: Some(2500), span_us: Some((2000, 4000)), ..HeapReadOptions::default() };
    let heap = Capture::open(&path).unwrap().read(options).unwrap();
    assert_eq!(heap.profile(Mode::At, None).held.whole().bytes, 130);
    assert_eq!(heap.profile(Mode::Span, None).held.whole().bytes, 37);
    assert_eq!(heap.span_peak(), Some((137, 3000)));
    assert_eq!(heap.profile(Mode::Temporary, None).held.whole().bytes, 0);
}

#[test]
fn samples_stand_for_what_was_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mean = 4096u64;
    let mut writer = Writer::create(&path, 1, mean);
    let mut dice = Dice(5);
    let mut truth = (0u64, 0u64);
    writer.time(0, 1);
    for index in 0..200_000u64 {
        let size = [16, 64, 500, 3000, 20_000][dice.roll(5) as usize];
        truth = (truth.0 + size, truth.1 + 1);
        let chance = 1.0 - (-(size as f64) / mean as f64).exp();
        if (dice.roll(1 << 30) as f64 / (1u64 << 30) as f64) < chance {
            writer.allocate(0, kind::MALLOC, 0x1000 + index * 32_768, size, (0, 0));
        }
    }
    let stats = stats(&path);
    let error = stats.standard_error_bytes.unwrap();
    let off = stats.total_allocated_bytes.abs_diff(truth.0);
    assert!(error > 0 && off < 4 * error, "{} for {}, error {error}", stats.total_allocated_bytes, truth.0);
    assert!(off < truth.0 / 33, "within 3 %: {} for {}", stats.total_allocated_bytes, truth.0);
    assert!(
        stats.total_allocations.abs_diff(truth.1) < truth.1 / 10,
        "{} for {}",
        stats.total_allocations,
        truth.1
    );
    assert_eq!(stats.sample_bytes, Some(mean));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Streams that share ticks are put in an order that could have been.
    #[test]
    fn shared_ticks_are_put_in_order(streams in 1usize..7, steps in 1u64..3000, tick in 1u64..400, seed in any::<u64>()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = Writer::create(&path, streams as u32, 0);
        let truth = program(&mut writer, streams, steps, tick, seed);
        let stats = stats(&path);
        check_order(&stats, &truth);
        // As many events as a few threads have in a tick without one address going back and forth all the time.
        if tick <= 16 && streams <= 3 {
            prop_assert_eq!(stats.forced_events, 0);
        }
        if tick == 1 || streams == 1 {
            check(&stats, &truth);
        }
    }
}
