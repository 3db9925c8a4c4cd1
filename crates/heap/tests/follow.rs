//! A capture followed while it is written says at every look what one that is read whole says, whichever process compacts it meanwhile.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::path::Path;

use serde_json::json;
use stormlog_capture::record::kind;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, Follow, HeapReadOptions, Mode};
use writer::{Dice, Writer};

const STREAMS: usize = 4;

/// Some thousand allocations and frees across threads, one a tick, from `step` on.
fn go_on(
    writer: &mut Writer,
    nodes: &[u32],
    living: &mut Vec<u64>,
    dice: &mut Dice,
    steps: std::ops::Range<u64>,
) {
    for step in steps {
        let stream = dice.roll(STREAMS as u64) as usize;
        writer.time(stream, 1000 + step * 1000);
        if living.is_empty() || dice.roll(10) < 6 {
            let address = 0x10_0000 + step * 64;
            writer.allocate(stream, kind::MALLOC, address, 1 + dice.roll(5000), (nodes[stream], 0));
            living.push(address);
        } else {
            let index = dice.roll(living.len() as u64) as usize;
            writer.free(stream, kind::FREE, living.swap_remove(index));
        }
    }
}

fn compare(follow: &mut Follow, path: &Path) {
    follow.look(u64::MAX).unwrap();
    let whole = Capture::open(path).unwrap().read(HeapReadOptions::default()).unwrap();
    let heap = follow.heap();
    assert_eq!(heap.live(), whole.live());
    assert_eq!(heap.peak_bytes(), whole.peak_bytes());
    assert_eq!(heap.lines(Mode::Leaks, None), whole.lines(Mode::Leaks, None));
    assert_eq!(heap.by_thread(Mode::Leaks), whole.by_thread(Mode::Leaks));
    assert!(heap.live().bytes > 0);
    let sum = |thread| heap.lines(Mode::Leaks, thread).iter().map(|entry| entry.own.bytes).sum::<u64>();
    let threads = heap.by_thread(Mode::Leaks);
    assert_eq!(threads.iter().map(|share| sum(Some(share.thread))).sum::<u64>(), sum(None));
    assert_eq!(sum(None), heap.live().bytes);
    let profile = whole.profile(Mode::Leaks, None).held.by_line();
    for entry in heap.lines(Mode::Leaks, None) {
        let same = profile.iter().find(|other| other.frame == entry.frame).unwrap();
        assert_eq!((same.own, same.total), (entry.own, entry.total));
    }
}

fn followed(options: fn() -> Options) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, STREAMS as u32, 0);
    let nodes: Vec<u32> = (0..STREAMS)
        .map(|stream| {
            writer.define_code(stream, 7, "work", "x.py", 10);
            writer.define_code(stream, 100 + stream as u64, &format!("thread_{stream}"), "x.py", 20);
            let outer = writer.python_node(stream, 7, 0, 0);
            writer.python_node(stream, 100 + stream as u64, 3, outer)
        })
        .collect();
    let (mut living, mut dice) = (Vec::new(), Dice(99));
    let mut follow = Follow::open(&path).unwrap();
    let mut compactor = Compactor::open(&path, options()).unwrap();
    for round in 0..8 {
        go_on(&mut writer, &nodes, &mut living, &mut dice, round * 20_000..(round + 1) * 20_000);
        // Half of the looks come after the compactor has moved what is full, half before.
        if round % 2 == 0 {
            compactor.step().unwrap();
        }
        compare(&mut follow, &path);
        assert_eq!(follow.heap().live().count, living.len() as u64);
    }
    writer.end();
    compactor.finish(json!({"exit_code": 3})).unwrap();
    compare(&mut follow, &path);
    let ending = follow.heap().ending.clone().unwrap();
    assert_eq!(ending["exit_code"], 3);
}

#[test]
fn plain_captures() {
    followed(Options::default);
}

#[test]
fn aggregates() {
    followed(|| Options {
        aggregate: true,
        fold: Some(Box::new(Aggregate::default())),
        ..Options::default()
    });
}

#[test]
fn bounded_captures() {
    followed(|| Options {
        max_size: Some(60_000),
        fold: Some(Box::new(Aggregate::default())),
        ..Options::default()
    });
}
