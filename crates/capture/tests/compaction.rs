//! The way from the live file to the finished one: nothing lost, nothing twice, whatever is killed when.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]
#![cfg(feature = "files")]

#[path = "common/writer.rs"]
mod writer;

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use stormlog_capture::file::{Finished, Sample};
use stormlog_capture::op::{Op, Ops};
use stormlog_capture::record::{definition, kind};
use stormlog_capture::source::Source;
use stormlog_capture::{CaptureError, Compactor, Options, layout};
use writer::{Dice, Writer};

/// Every record of every stream, as the capture has them now.
fn records(path: &Path) -> Vec<Vec<Op>> {
    records_by(path, 1000)
}

/// The same, this many at a time.
fn records_by(path: &Path, most: usize) -> Vec<Vec<Op>> {
    let mut source = Source::open(path).unwrap();
    let mut streams: Vec<Vec<Op>> = Vec::new();
    for piece in source.pieces(true).unwrap() {
        streams.resize_with(streams.len().max(piece.stream as usize + 1), Vec::new);
        let mut records = source.read(&piece).unwrap();
        let mut more = true;
        while more {
            let mut ops = Ops::default();
            more = records.next(most, &mut ops).unwrap();
            let count = ops.records();
            ops.unfold(0, |_| true);
            assert_eq!((count, ops.records()), (ops.list.len() as u64, ops.list.len() as u64));
            streams[piece.stream as usize].append(&mut ops.list);
        }
    }
    streams
}

/// A block that comes and goes again and again is said once, and comes back as every single record, however many are requested.
#[test]
fn repetitions_come_back_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    for turn in 0..2000u64 {
        writer.time(0, turn * 4000);
        for _ in 0..turn % 60 {
            writer.allocate(0, kind::MALLOC, 0x5000, 600, (1, 0));
            writer.free(0, kind::FREE, 0x5000);
        }
        // Alike, but not the same: another size, a free that is none of this block, a block that is handed on.
        writer.allocate(0, kind::MALLOC, 0x5000, 601, (1, 0));
        writer.free(0, kind::FREE, 0x5000);
        writer.free(0, kind::FREE, 0x6000);
        writer.allocate(0, kind::REALLOC, 0x5000, 600, (1, 0));
        writer.free(0, kind::REALLOC_TAKE, 0x5000);
    }
    writer.close(0);
    let before = records(&path);
    Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
    for most in [1, 2, 7, 1000, usize::MAX] {
        assert!(records_by(&path, most) == before, "{most} at a time");
    }
    let mut source = Source::open(&path).unwrap();
    let pieces = source.pieces(false).unwrap();
    let mut ops = Ops::default();
    source.read(&pieces[0]).unwrap().next(usize::MAX, &mut ops).unwrap();
    assert!(ops.records() > 5 * ops.list.len() as u64, "{} in {}", ops.records(), ops.list.len());
}

/// A program of two threads that fills several slots.
fn busy(writer: &mut Writer, dice: &mut Dice, steps: u64) {
    let mut live: Vec<u64> = Vec::new();
    let mut fresh = 0x7f00_0000_0000;
    for step in 0..steps {
        let stream = dice.roll(2) as usize;
        if step % 500 == 0 {
            writer.time(stream, step);
        }
        if live.len() > 50 && dice.roll(2) == 0 {
            let address = live.swap_remove(dice.roll(live.len() as u64) as usize);
            writer.free(stream, kind::FREE, address);
        } else {
            fresh += 16 * (1 + dice.roll(9));
            writer.allocate(stream, kind::MALLOC, fresh, dice.roll(5000), (dice.roll(4) as u32, 0));
            live.push(fresh);
        }
    }
}

#[test]
fn compaction_keeps_every_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    let mut dice = Dice(99);
    writer.define_code(0, 5, "work", "x.py", 3);
    let root = writer.python_node(0, 5, 0, 0);
    assert_eq!(root, 1);
    busy(&mut writer, &mut dice, 60_000);
    let before = records(&path);
    assert!(before.iter().all(|ops| ops.len() > 20_000));
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    assert_eq!(records(&path), before, "live and finished file together");
    busy(&mut writer, &mut dice, 20_000);
    let all = records(&path);
    compactor.sample(Sample { time_us: 5, rss: 1 << 20, pss: Some(7), cgroup: None });
    compactor.finish(json!({"exit_code": null, "signal": 9})).unwrap();
    assert!(!writer.path.exists(), "the live file is gone");
    // Of a frame the line is kept, and the table that it was looked up in is not.
    let changed: Vec<(Op, Op)> = std::iter::zip(all.concat(), records(&path).concat())
        .filter(|(before, after)| before != after)
        .collect();
    let [(table, short), (node, line)] = changed[..] else { panic!("{} records changed", changed.len()) };
    assert_eq!(short, Op { python: table.python - 2, ..table });
    assert_eq!(line, Op { kind: kind::NODE_LINE, size: 3 << 1, ..node });
    assert_eq!(
        records(&path).iter().map(Vec::len).collect::<Vec<_>>(),
        all.iter().map(Vec::len).collect::<Vec<_>>()
    );
    let finished = Finished::open(&path).unwrap();
    assert_eq!(
        finished.samples().unwrap(),
        [Sample { time_us: 5, rss: 1 << 20, pss: Some(7), cgroup: None }]
    );
    assert_eq!(finished.ending().unwrap().unwrap()["signal"], 9);
    assert_eq!(finished.header.pid, 4242);
    assert_eq!(finished.header.metadata, br#"{"command":["python","x.py"]}"#);
    let raw: usize = all.iter().map(|ops| ops.len() * 5).sum();
    assert!(finished.sound_bytes() < raw as u64, "{} of {raw}", finished.sound_bytes());
}

/// Blocks where this process's own allocator puts them, most of which are foreseen.
#[test]
fn the_addresses_of_a_real_allocator_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    let mut dice = Dice(2026);
    let mut live: Vec<Vec<u8>> = Vec::new();
    for _ in 0..20_000 {
        match dice.roll(5) {
            0..2 if !live.is_empty() => {
                let block = live.swap_remove(dice.roll(live.len() as u64) as usize);
                writer.free(0, kind::FREE, block.as_ptr() as u64);
            }
            2 if !live.is_empty() => {
                let index = dice.roll(live.len() as u64) as usize;
                let block = &mut live[index];
                writer.free(0, kind::REALLOC_TAKE, block.as_ptr() as u64);
                block.reserve_exact(block.capacity() + dice.roll(500) as usize + 1);
                writer.allocate(0, kind::REALLOC, block.as_ptr() as u64, block.capacity() as u64, (0, 0));
            }
            _ => {
                let most = 2 << dice.roll(12);
                let block = Vec::with_capacity(1 + dice.roll(most) as usize);
                writer.allocate(0, kind::MALLOC, block.as_ptr() as u64, block.capacity() as u64, (0, 0));
                live.push(block);
            }
        }
    }
    writer.close(0);
    let before = records(&path);
    assert!(before[0].len() > 20_000);
    Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
    assert!(records(&path) == before);
}

#[test]
fn slots_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    let mut dice = Dice(4);
    busy(&mut writer, &mut dice, 450_000);
    let length = std::fs::metadata(&writer.path).unwrap().len();
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    busy(&mut writer, &mut dice, 300_000);
    assert_eq!(std::fs::metadata(&writer.path).unwrap().len(), length, "no new slots were needed");
    let all = records(&path);
    compactor.finish(json!({})).unwrap();
    assert_eq!(records(&path), all);
}

#[test]
fn a_compactor_killed_between_writing_and_freeing_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    busy(&mut writer, &mut Dice(7), 450_000);
    let all = records(&path);
    let live = std::fs::read(&writer.path).unwrap();
    Compactor::open(&path, Options::default()).unwrap().step().unwrap();
    // The slots as they were: the chunks are in both files now.
    std::fs::write(&writer.path, live).unwrap();
    assert_eq!(records(&path), all);
    // And a torn block at the end, as a kill within a write leaves it.
    let mut bytes = std::fs::read(&path).unwrap();
    let sound = bytes.len() as u64;
    bytes.extend_from_slice(b"SLBK\x01\x01\0\0half a block");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(records(&path), all);
    assert_eq!(Finished::open(&path).unwrap().torn_bytes().unwrap(), 20);
    let next = Compactor::open(&path, Options::default()).unwrap();
    next.finish(json!({})).unwrap();
    assert_eq!(records(&path), all);
    assert!(Finished::open(&path).unwrap().sound_bytes() > sound);
}

/// Descriptors of this process for files of one name.
fn descriptors(path: &Path) -> usize {
    let name = path.to_str().unwrap();
    let held = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = held.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_str().is_some_and(|link| link.starts_with(name))).count()
}

#[test]
fn between_two_steps_a_capture_has_one_descriptor_and_none_when_released() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    let mut dice = Dice(11);
    busy(&mut writer, &mut dice, 1000);
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    assert!(!path.exists(), "there is nothing to write yet");
    busy(&mut writer, &mut dice, 450_000);
    compactor.step().unwrap();
    assert!(path.exists());
    let own = descriptors(&writer.path);
    assert_eq!(descriptors(&path), own, "of the two files of the capture the live one alone is open");
    compactor.release();
    assert_eq!(descriptors(&writer.path), own - 1);
    busy(&mut writer, &mut dice, 450_000);
    compactor.step().unwrap();
    let all = records(&path);
    compactor.finish(json!({})).unwrap();
    assert_eq!(records(&path), all);
}

#[test]
fn ended_and_moved_capture_reads_the_same_before_it_is_completed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    busy(&mut writer, &mut Dice(12), 450_000);
    writer.end();
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    let all = records(&path);
    compactor.end(json!({"exit_code": 3})).unwrap();
    compactor.end(json!({"exit_code": 4})).unwrap();
    let moved = directory.path().join("elsewhere.bin");
    compactor.rename(&moved).unwrap();
    drop(compactor);
    let exit_code =
        |path: &Path| Finished::open(path).unwrap().ending().unwrap().unwrap()["exit_code"].clone();
    assert_eq!((records(&moved) == all, exit_code(&moved)), (true, json!(3)), "the first cause stays");
    Compactor::open(&moved, Options::default()).unwrap().complete().unwrap();
    assert_eq!((records(&moved) == all, exit_code(&moved)), (true, json!(3)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the live file is gone");
}

#[test]
fn a_step_that_is_stopped_leaves_its_records_in_the_live_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    busy(&mut writer, &mut Dice(13), 450_000);
    let all = records(&path);
    let options = Options::default();
    let stop = std::sync::Arc::clone(&options.stop);
    let mut compactor = Compactor::open(&path, options).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    compactor.step().unwrap();
    assert!(!path.exists());
    compactor.finish(json!({})).unwrap();
    assert!(records(&path) == all);
}

#[test]
fn errors_contain_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.bin");
    let missing = Source::open(&path).unwrap_err();
    assert!(matches!(missing, CaptureError::Io { .. }), "{missing}");
    std::fs::write(&path, "hello, this is no capture at all").unwrap();
    let foreign = Source::open(&path).unwrap_err();
    assert!(
        foreign.to_string().ends_with("is not a heap capture; record one with `stormlog run --heap`"),
        "{foreign}"
    );
    let mut newer = b"SLHEAPFN".to_vec();
    newer.extend_from_slice(&9u32.to_le_bytes());
    newer.extend_from_slice(&[0; 40]);
    std::fs::write(&path, newer).unwrap();
    let newer = Source::open(&path).unwrap_err();
    assert!(newer.to_string().contains("version 9") && newer.to_string().contains("upgrade"), "{newer}");
}

fn any_op() -> impl Strategy<Value = Op> {
    let address = prop_oneof![(0u64..64).prop_map(|at| 0x5000 + at * 16), any::<u64>()];
    let free = prop_oneof![
        Just(kind::FREE),
        Just(kind::REALLOC_TAKE),
        Just(kind::PY_FREE),
        Just(kind::REALLOC_UNDO)
    ];
    prop_oneof![
        (1u8..=15, address.clone(), prop_oneof![0u64..600, any::<u64>()], any::<u32>(), 0u32..3).prop_map(
            |(kind, address, size, python, native)| Op {
                kind,
                address,
                size,
                python,
                native,
                ..Op::default()
            }
        ),
        (free, address.clone()).prop_map(|(kind, address)| Op { kind, address, ..Op::default() }),
        (address, any::<u64>()).prop_map(|(address, size)| Op {
            kind: kind::MUNMAP,
            address,
            size,
            ..Op::default()
        }),
        any::<u64>().prop_map(|size| Op { kind: kind::TIME, size, ..Op::default() }),
        (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(address, size, python)| Op {
            kind: kind::FAILED,
            address,
            size,
            python,
            ..Op::default()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any records survive the way through live file, columns and back.
    #[test]
    fn any_records_come_back(ops in proptest::collection::vec(any_op(), 0..800)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = Writer::create(&path, 1, 0);
        let mut time = 0u64;
        for op in &ops {
            match op.kind {
                kind::TIME => { time = time.saturating_add(op.size >> 8); writer.time(0, time) }
                kind::FAILED => writer.failed(0, op.address as u8, op.address >> 40, op.size, op.python),
                kind::MUNMAP => writer.unmap(0, op.address, op.size),
                1..=15 => writer.allocate(0, op.kind, op.address, op.size, (op.python, op.native)),
                _ => writer.free(0, op.kind, op.address),
            }
        }
        writer.define(0, definition::THREAD_NAME, 100, b"main");
        writer.close(0);
        let before = records(&path);
        prop_assert!(before[0].len() >= ops.len());
        Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        prop_assert_eq!(records(&path), before);
    }

    /// A damaged finished file is an error or fewer records, never a panic.
    #[test]
    fn damage_is_survived(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = Writer::create(&path, 2, 0);
        busy(&mut writer, &mut Dice(31), 3000);
        let live = std::fs::read(&writer.path).unwrap();
        Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let index = at.index(bytes.len());
        bytes[index] ^= 1 << bit;
        bytes.truncate(cut.index(bytes.len()) + 1);
        std::fs::write(&path, &bytes).unwrap();
        read_all(&path);
        let mut live = live;
        let index = at.index(layout::SLOTS + 4096);
        live[index] ^= 1 << bit;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(format!("{}.live", path.display()), live).unwrap();
        read_all(&path);
    }
}

fn read_all(path: &Path) {
    let Ok(mut source) = Source::open(path) else { return };
    let Ok(pieces) = source.pieces(true) else { return };
    for piece in pieces {
        if let Ok(mut records) = source.read(&piece) {
            let mut ops = Ops::default();
            while records.next(500, &mut ops) == Some(true) {}
        }
    }
}
