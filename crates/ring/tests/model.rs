//! Logs and rings against the plainest model of them: a list.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::{Owned, drain, window};
use proptest::prelude::*;
use stormlog_ring::{
    AppendError, DefId, Definition, Error, Log, LogConfig, LogReader, LossReason, Ring, RingConfig,
    RingReader, Status,
};

fn records(largest: usize) -> impl Strategy<Value = Vec<Owned>> {
    let payload = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..300),
        1 => (0..largest, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        1 => Just(vec![0; 64]), // zeros must not be taken for free space
    ];
    prop::collection::vec((any::<u8>(), payload), 0..120)
}

fn small_log(dir: &std::path::Path) -> Log {
    Log::create(dir, LogConfig { segment_bytes: 8 << 10, ..LogConfig::default() }).unwrap()
}

fn small_ring(path: &std::path::Path, slots: u64) -> Ring {
    Ring::create(path, RingConfig { slots, definition_bytes: 1024, ..RingConfig::default() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_returns_what_was_appended(records in records(3000)) {
        let dir = tempfile::tempdir().unwrap();
        let log = small_log(dir.path());
        let mut writers = [log.writer().unwrap(), log.writer().unwrap()];
        let mut live = LogReader::open(dir.path()).unwrap();
        let mut followed = Vec::new();
        for (number, (kind, payload)) in records.iter().enumerate() {
            writers[number % 2].append(*kind, payload, &[]).unwrap();
            if number % 7 == 0 {
                followed.extend(drain(&mut live));
            }
        }
        followed.extend(drain(&mut live));
        prop_assert_eq!(&followed, &records);
        drop((log, writers));
        let mut reader = LogReader::open(dir.path()).unwrap();
        prop_assert_eq!(&drain(&mut reader), &records);
        prop_assert_eq!(reader.status(), Status::Closed);
        prop_assert_eq!(reader.stats().damaged + reader.stats().unfinished + reader.stats().truncated, 0);
    }

    #[test]
    fn a_ring_returns_the_newest(records in records(1800), slots in 32u64..70) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let ring = small_ring(&path, slots);
        let mut writer = ring.writer().unwrap();
        let mut model: Vec<(u64, Owned)> = Vec::new();
        let mut head = 0;
        for (kind, payload) in &records {
            writer.append(*kind, payload, &[]).unwrap();
            model.push((head, (*kind, payload.clone())));
            // One word of each slot and one more of the first are not payload.
            head += (payload.len().div_ceil(8) as u64 + 1).div_ceil(31);
        }
        let expected: Vec<Owned> =
            model.into_iter().filter(|(ticket, _)| ticket + slots >= head).map(|(_, record)| record).collect();
        let (found, stats) = window(&mut RingReader::open(&path).unwrap());
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(stats.damaged + stats.unfinished + stats.overwritten, 0);
    }

    #[test]
    fn every_record_finds_its_definitions(picks in prop::collection::vec((0usize..40, 0usize..40), 1..300)) {
        let dir = tempfile::tempdir().unwrap();
        let definitions: Vec<Definition> = (0..40).map(|n| Definition::new(format!("frame {n}").as_bytes())).collect();
        let log = small_log(dir.path());
        let mut writers = [log.writer().unwrap(), log.writer().unwrap()];
        for (number, &(a, b)) in picks.iter().enumerate() {
            let payload = [definitions[a].id().0.to_le_bytes(), definitions[b].id().0.to_le_bytes()].concat();
            writers[number % 2].append(0, &payload, &[&definitions[a], &definitions[b]]).unwrap();
        }
        let (mut reader, mut seen) = (LogReader::open(dir.path()).unwrap(), 0);
        while let Some(record) = reader.next() {
            for (half, pick) in record.payload.chunks(8).zip([picks[seen].0, picks[seen].1]) {
                let id = DefId(u64::from_le_bytes(half.try_into().unwrap()));
                let expected = format!("frame {pick}");
                prop_assert_eq!(record.definitions.get(id), Some(expected.as_bytes()));
            }
            seen += 1;
        }
        prop_assert_eq!(seen, picks.len());
    }
}

#[test]
fn ring_definitions_are_written_once_and_may_run_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let ring = small_ring(&path, 32);
    let (mut one, mut two) = (ring.writer().unwrap(), ring.writer().unwrap());
    let shared = Definition::new(&[1; 400]);
    for _ in 0..50 {
        one.append(1, b"one", &[&shared]).unwrap();
        two.append(2, b"two", &[&shared]).unwrap();
    }
    two.append(2, b"other", &[&Definition::new(&[2; 400])]).unwrap(); // fits only if `shared` is there once
    let refused = two.append(2, b"third", &[&Definition::new(&[3; 400])]);
    assert_eq!(refused, Err(AppendError::DefinitionsFull { bytes: 408 }));
    assert_eq!(two.loss().records, 0);
    let mut reader = RingReader::open(&path).unwrap();
    let mut records = reader.records();
    let record = records.next().unwrap();
    assert_eq!(record.definitions.get(shared.id()), Some(&[1; 400][..]));
    assert_eq!(record.definitions.len(), 2);
}

#[test]
fn too_large_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let log = small_log(&dir.path().join("log"));
    let mut writer = log.writer().unwrap();
    assert!(matches!(writer.append(0, &[0; 5000], &[]), Err(AppendError::TooLarge { .. })));
    writer.append(0, &[0; 2000], &[&Definition::new(&[0; 2000])]).unwrap();
    assert!(
        writer.append(0, &[0; 3000], &[&Definition::new(&[1; 2000])]).is_err(),
        "not even in a segment of its own"
    );
    assert_eq!((writer.loss().records, writer.loss().reason), (2, Some(LossReason::TooLarge)));
    let ring = small_ring(&dir.path().join("ring"), 16);
    let mut writer = ring.writer().unwrap();
    assert_eq!(writer.append(0, &[0; 1000], &[]), Err(AppendError::TooLarge { bytes: 1000, limit: 984 }));
    writer.append(0, &[0; 984], &[]).unwrap();
    assert_eq!(RingReader::open(dir.path().join("ring")).unwrap().loss().bytes, 1000);
    assert_eq!(LogReader::open(dir.path().join("log")).unwrap().loss().records, 2);
}

#[test]
fn closing_ends_trims_and_marks_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log =
        Log::create(dir.path(), LogConfig { label: *b"0123456789abcdef", ..LogConfig::default() }).unwrap();
    let mut writer = log.writer().unwrap();
    let second = writer.clone();
    writer.append(9, b"only", &[]).unwrap();
    let mut reader = LogReader::open(dir.path()).unwrap();
    assert_eq!(reader.status(), Status::Active { pids: vec![std::process::id()] });
    drop((log, writer));
    assert_eq!(reader.status(), Status::Active { pids: vec![std::process::id()] }, "a writer is left");
    drop(second);
    assert_eq!(reader.status(), Status::Closed);
    let segment = dir.path().join("000001.slog");
    assert_eq!(std::fs::metadata(&segment).unwrap().len(), 4096 + 8 * 4);
    assert_eq!(drain(&mut reader), [(9, b"only".to_vec())], "a reader is not disturbed by trimming");
    assert_eq!(&reader.label(), b"0123456789abcdef");
    assert_eq!(drain(&mut LogReader::open(dir.path()).unwrap()).len(), 1);
}

#[test]
fn retention_keeps_the_newest_segments_and_the_losses() {
    let dir = tempfile::tempdir().unwrap();
    let config = LogConfig { segment_bytes: 8 << 10, max_segments: Some(3), ..LogConfig::default() };
    let log = Log::create(dir.path(), config).unwrap();
    let (mut writer, mut idle) = (log.writer().unwrap(), log.writer().unwrap());
    writer.append(0, &[0; 9000], &[]).unwrap_err();
    for number in 0..200u32 {
        writer.append(1, &[&number.to_le_bytes()[..], &[0; 500]].concat(), &[]).unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    idle.append(2, b"late", &[]).unwrap();
    let mut reader = LogReader::open(dir.path()).unwrap();
    let all = drain(&mut reader);
    assert_eq!(all.last().unwrap(), &(2, b"late".to_vec()));
    assert_eq!(&all[all.len() - 2].1[..4], &199u32.to_le_bytes());
    assert_eq!(reader.loss().records, 1, "known although its segment is gone");
    assert_eq!(idle.loss().records, 0);
}

#[test]
fn existing_recording_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let first = small_ring(&path, 32);
    assert!(matches!(Ring::create(&path, RingConfig::default()), Err(Error::Exists { .. })));
    let second = Ring::create(&path, RingConfig { replace: true, ..RingConfig::default() }).unwrap();
    second.writer().unwrap().append(1, b"new", &[]).unwrap();
    assert_eq!(window(&mut RingReader::open(&path).unwrap()).0, [(1, b"new".to_vec())]);
    // The first one's file is gone, and the name is not its own any more.
    let mut writer = first.writer().unwrap();
    assert!(writer.append(1, b"old", &[]).is_err());
    assert_eq!(writer.loss().records, 1);
    let logs = dir.path().join("log");
    let _log = small_log(&logs);
    assert!(matches!(Log::create(&logs, LogConfig::default()), Err(Error::Exists { .. })));
    assert!(matches!(
        Ring::create(dir.path().join("tiny"), RingConfig { slots: 3, ..RingConfig::default() }),
        Err(Error::Config { name: "slots", value: 3, .. })
    ));
}

#[test]
fn only_what_is_new_since_a_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring");
    let mut writer = small_ring(&path, 32).writer().unwrap();
    let mut reader = RingReader::open(&path).unwrap();
    let mut position = 0;
    for round in 0..100u8 {
        writer.append(round, &[round; 300], &[]).unwrap();
        let mut records = reader.records_since(position);
        let record = records.next().unwrap();
        assert_eq!(record.kind, round);
        position = record.position + 1;
        assert!(records.next().is_none());
    }
}

#[test]
fn segments_grow_from_a_small_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        LogConfig { segment_bytes: 64 << 10, first_segment_bytes: Some(8 << 10), ..LogConfig::default() };
    let log = Log::create(dir.path(), config).unwrap();
    let mut writer = log.writer().unwrap();
    let length = |number: u64| {
        std::fs::metadata(dir.path().join(format!("{number:06}.slog"))).map_or(0, |file| file.len())
    };
    assert_eq!((length(1), length(2)), (8 << 10, 0));
    writer.append(1, b"small", &[]).unwrap();
    // Larger than the first three segments.
    let large = vec![7; 30 << 10];
    writer.append(1, &large, &[]).unwrap();
    assert_eq!((writer.segment(), length(4)), (4, 36 << 10));
    let mut reader = LogReader::open(dir.path()).unwrap();
    assert_eq!(reader.next().unwrap().payload, b"small");
    assert_eq!(reader.next().unwrap().payload, large);
}

#[test]
fn an_archive_takes_the_place_of_the_oldest_segments() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path(), LogConfig { segment_bytes: 8 << 10, ..LogConfig::default() }).unwrap();
    let mut writer = log.writer().unwrap();
    let mut written: u64 = 0;
    while writer.segment() < 4 {
        writer.append(1, &written.to_le_bytes(), &[]).unwrap();
        written += 1;
    }
    let mut archive = log.archive(3, 64 << 10).unwrap();
    archive.append(1, b"archived", &[]).unwrap();
    assert!(archive.append(1, &vec![0; 80 << 10], &[]).is_err(), "no room");
    let all = || {
        let mut reader = LogReader::open(dir.path()).unwrap();
        let mut payloads = Vec::new();
        while let Some(record) = reader.next() {
            payloads.push(record.payload.to_vec());
        }
        (payloads, reader.stats().missing_segments)
    };
    assert_eq!(all().0.len() as u64, written, "a draft is not read");
    archive.publish().unwrap();
    let (payloads, missing) = all();
    assert_eq!((payloads[0].as_slice(), missing), (b"archived".as_slice(), 0));
    assert_eq!(payloads.last().unwrap(), &(written - 1).to_le_bytes());
    writer.append(1, b"more", &[]).unwrap();
    assert_eq!(all().0.last().unwrap(), b"more");
}
