//! A block that comes and goes again and again is stored once with a count: whatever is asked, the answer is that of the single records.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::path::Path;

use serde_json::json;
use stormlog_capture::record::kind;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Capture, Follow, HeapReadOptions, Mode, Stats};
use writer::{Dice, Writer};

fn pairs(writer: &mut Writer, stream: usize, address: u64, size: u64, times: u64) {
    for _ in 0..times {
        writer.allocate(stream, kind::MALLOC, address, size, (1, 0));
        writer.free(stream, kind::FREE, address);
    }
}

fn begin(path: &Path, streams: u32, sample_bytes: u64) -> Writer {
    let mut writer = Writer::create(path, streams, sample_bytes);
    for stream in 0..streams as usize {
        writer.define_code(stream, 7, "work", "x.py", 10);
        assert_eq!(writer.python_node(stream, 7, 0, 0), 1);
    }
    writer
}

/// Everything a capture says, with moments in the midst of everything.
fn answers(path: &Path) -> String {
    let capture = Capture::open(path).unwrap();
    let options = HeapReadOptions {
        at_us: Some(60_000),
        span_us: Some((20_000, 90_000)),
        temporary_threshold: 2,
        ..HeapReadOptions::default()
    };
    let first = capture.read(options.clone()).unwrap();
    // How it ended is known only to the finished file.
    let stats = Stats { ending: None, complete: true, ..first.stats(9, None) };
    let mut said = vec![format!("{stats:?} {:?} {:?}", first.curve(), first.span_peak())];
    let moments = (1..40).map(|turn| turn * 97).chain(first.curve().iter().map(|point| point.max_change));
    let mut moments: Vec<u64> = moments.collect();
    moments.sort_unstable();
    moments.dedup();
    let second = capture.read(HeapReadOptions { moments, ..options }).unwrap();
    for heap in [&first, &second] {
        for mode in [Mode::Peak, Mode::Leaks, Mode::Temporary, Mode::At, Mode::Span, Mode::Total] {
            let profile = heap.profile(mode, None);
            said.push(format!("{:?} {:?}", profile.held, profile.lifetimes));
        }
    }
    said.join("\n")
}

#[test]
fn the_same_answers_with_and_without_counts() {
    for sample_bytes in [0, 4096] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = begin(&path, 3, sample_bytes);
        let mut dice = Dice(5);
        for tick in 1..60u64 {
            for stream in 0..3 {
                writer.time(stream, tick * 2000);
                let own = 0x10_0000 * (stream as u64 + 1);
                pairs(&mut writer, stream, own, 100 + dice.roll(3) * 50, dice.roll(40));
                writer.allocate(stream, kind::MALLOC, own + tick * 512, 200, (1, 0));
                pairs(&mut writer, stream, own, 700, dice.roll(9));
                // An address that all streams use within the tick.
                pairs(&mut writer, stream, 0x9000, 64, 1 + dice.roll(5));
            }
            // What the first allocates the second frees and gets again, and the first frees that.
            writer.allocate(0, kind::MALLOC, 0xa000, 48, (1, 0));
            for _ in 0..3 {
                writer.free(1, kind::FREE, 0xa000);
                writer.allocate(1, kind::MALLOC, 0xa000, 48, (1, 0));
                writer.free(0, kind::FREE, 0xa000);
                writer.allocate(0, kind::MALLOC, 0xa000, 48, (1, 0));
            }
            writer.free(0, kind::FREE, 0xa000);
        }
        (0..3).for_each(|stream| writer.close(stream));
        writer.end();
        let single = answers(&path);
        Compactor::open(&path, Options::default()).unwrap().finish(json!(null)).unwrap();
        let counted = answers(&path);
        let first = single.bytes().zip(counted.bytes()).position(|(one, other)| one != other);
        let near =
            |text: &str| first.map(|at| text[at.saturating_sub(60)..text.len().min(at + 40)].to_owned());
        assert_eq!(
            near(&single),
            near(&counted),
            "where they differ first, with {sample_bytes} bytes a sample"
        );
    }
}

/// A reader that followed a program into the middle of a repetition continues there when it has become a count.
#[test]
fn a_repetition_is_followed_from_its_midst() {
    for half in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = begin(&path, 1, 0);
        writer.time(0, 1000);
        let mut follow = Follow::open(&path).unwrap();
        pairs(&mut writer, 0, 0x5000, 600, 10);
        if half {
            writer.allocate(0, kind::MALLOC, 0x5000, 600, (1, 0));
        }
        follow.look(u64::MAX).unwrap();
        assert_eq!(follow.heap().live().count, u64::from(half));
        if half {
            writer.free(0, kind::FREE, 0x5000);
        }
        pairs(&mut writer, 0, 0x5000, 600, 30);
        writer.allocate(0, kind::MALLOC, 0x8000, 77, (1, 0));
        writer.close(0);
        Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        follow.look(u64::MAX).unwrap();
        let whole = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap().stats(3, None);
        let seen = follow.heap().stats(3, None);
        assert_eq!(whole.total_allocations, 41 + u64::from(half));
        assert_eq!(seen.total_allocations, whole.total_allocations);
        assert_eq!((seen.live_at_end_bytes, seen.live_at_end_blocks), (77, 1));
        assert_eq!(seen.temporary_allocations, whole.temporary_allocations);
        assert_eq!((seen.unknown_frees, seen.forced_events), (0, 0));
    }
}
