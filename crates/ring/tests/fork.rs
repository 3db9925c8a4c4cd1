//! Writers across `fork`: children continue in the same recording, whatever the parent's threads were doing.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{drain, fork, wait, window};
use stormlog_ring::{Log, LogConfig, LogReader, Ring, RingConfig, RingReader, Status};

fn me() -> u32 {
    std::process::id()
}

#[test]
fn a_child_appends_to_the_same_log_and_is_known_by_its_pid() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path(), LogConfig::default()).unwrap();
    let mut writer = log.writer().unwrap();
    writer.append(1, b"parent", &[]).unwrap();
    let child = fork(|| {
        writer.append(2, b"child", &[]).unwrap();
        let grandchild = fork(|| {
            let mut writer = log.writer().unwrap();
            writer.append(3, b"grandchild", &[]).unwrap();
            std::mem::forget(writer);
        });
        assert_eq!(wait(grandchild), 0);
    });
    assert_eq!(wait(child), 0);
    writer.append(1, b"parent again", &[]).unwrap();
    let mut reader = LogReader::open(dir.path()).unwrap();
    let mut pids = Vec::new();
    while let Some(record) = reader.next() {
        pids.push((record.kind, record.pid));
    }
    assert_eq!([pids[0], pids[1], pids[3]], [(1, me()), (2, child as u32), (1, me())]);
    assert_eq!(pids[2].0, 3);
    assert_eq!(reader.status(), Status::Active { pids: vec![me()] });
    drop((log, writer));
    let mut died = vec![child as u32, pids[2].1];
    died.sort_unstable();
    assert_eq!(reader.status(), Status::Died { pids: died }, "the children did not close it");
}

#[test]
fn a_child_that_closes_leaves_the_parent_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path().join("log"), LogConfig::default()).unwrap();
    let ring = Ring::create(dir.path().join("ring"), RingConfig::default()).unwrap();
    let (mut writer, mut ring_writer) = (log.writer().unwrap(), ring.writer().unwrap());
    let idle = fork(|| drop((log.clone(), writer.clone(), ring.clone())));
    assert_eq!(wait(idle), 0);
    let child = fork(|| {
        let (mut mine, mut other) = (log.writer().unwrap(), log.writer().unwrap());
        mine.append(2, b"mine", &[]).unwrap();
        drop(mine);
        other.append(2, b"other", &[]).unwrap();
        let mut mine = ring.writer().unwrap();
        mine.append(2, b"mine", &[]).unwrap();
    });
    assert_eq!(wait(child), 0);
    writer.append(1, b"parent", &[]).unwrap();
    ring_writer.append(1, b"parent", &[]).unwrap();
    let mut reader = LogReader::open(dir.path().join("log")).unwrap();
    assert_eq!(drain(&mut reader).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [2, 2, 1]);
    let mut ring_reader = RingReader::open(dir.path().join("ring")).unwrap();
    assert_eq!(window(&mut ring_reader).0.len(), 2);
    assert_eq!(reader.status(), Status::Active { pids: vec![me()] });
    drop((log, writer, ring, ring_writer));
    assert_eq!((reader.status(), ring_reader.status()), (Status::Closed, Status::Closed));
}

#[test]
fn a_parent_that_closes_leaves_its_children_alone() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path(), LogConfig::default()).unwrap();
    let mut writer = log.writer().unwrap();
    let go = common::SharedWords::new(&tempfile::tempfile().unwrap(), 1);
    let child = fork(|| {
        while go[0].load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // The segment was ended and trimmed under us, since no process knew that we would write.
        writer.append(2, b"late", &[]).unwrap();
    });
    drop((log, writer));
    go[0].store(1, Ordering::Release);
    assert_eq!(wait(child), 0);
    let mut reader = LogReader::open(dir.path()).unwrap();
    assert_eq!(drain(&mut reader), [(2, b"late".to_vec())]);
    assert_eq!(reader.loss().records, 0);
}

#[test]
fn lock_held_at_the_fork_blocks_no_process() {
    let dir = tempfile::tempdir().unwrap();
    // Segments of a few records, so that the lock is held most of the time.
    let config = LogConfig { segment_bytes: 8 << 10, max_segments: None, ..LogConfig::default() };
    let log = Log::create(dir.path(), config).unwrap();
    let stop = AtomicBool::new(false);
    let (mut inherited, mut children) = (log.writer().unwrap(), Vec::new());
    let done: u64 = thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            let (mut writer, stop) = (log.writer().unwrap(), &stop);
            scope.spawn(move || {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) && done < 4000 {
                    writer.append(1, &[1; 3000], &[]).unwrap();
                    done += 1;
                }
                done
            })
        });
        for _ in 0..100 {
            children.push(fork(|| {
                inherited.clone().append(2, &[1; 3000], &[]).unwrap();
                inherited.append(2, &[2; 3000], &[]).unwrap();
                log.writer().unwrap().append(2, &[3; 3000], &[]).unwrap();
            }));
        }
        for child in &children {
            assert_eq!(wait(*child), 0);
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let (mut reader, mut kinds) = (LogReader::open(dir.path()).unwrap(), [0u64; 3]);
    while let Some(record) = reader.next() {
        kinds[record.kind as usize] += 1;
    }
    assert_eq!(kinds, [0, done, 300]);
}
