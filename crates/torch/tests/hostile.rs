//! Files that lie, explode, loop or stop: each gets a clear refusal, in little memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

use std::io::Write;

use proptest::prelude::*;
use stormlog_torch::{SnapshotError, fuzz, read};
use support::data;

fn refused(pickle: &[u8]) -> SnapshotError {
    read(pickle).expect_err("must be refused")
}

#[test]
fn code_is_never_run() {
    for (body, name) in [
        (&b"cos\nsystem\n"[..], "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b")R", "REDUCE"),
        (b"}b", "BUILD"),
        (b"(ios\nsystem\n", "INST"),
        (b"(o", "OBJ"),
        (b"))\x81", "NEWOBJ"),
        (b"\x82\x01", "EXT"),
        (b"Q", "PERSID"),
    ] {
        let pickle = [b"\x80\x04", body, b"."].concat();
        match refused(&pickle) {
            SnapshotError::Code { name: found, .. } => assert_eq!(found, name),
            other => panic!("{name}: {other}"),
        }
    }
}

#[test]
fn lengths_that_lie() {
    assert!(matches!(refused(b"\x80\x04X\xff\xff\xff\xff"), SnapshotError::TooLong { .. }));
    assert!(matches!(
        refused(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"),
        SnapshotError::TooLong { .. }
    ));
    assert!(matches!(refused(b"\x80\x04\x8b\xff\xff\xff\x7f"), SnapshotError::TooLong { .. }));
    assert!(matches!(refused(b"\x80\x04\x8a\xff"), SnapshotError::Truncated { .. }));
    assert!(matches!(refused(b"\x80\x04X\xff\xff\xff\x00abc"), SnapshotError::Truncated { .. }));
    let big = [b"\x80\x04\x8a\x0c".as_slice(), &[0x55; 12], b"."].concat();
    assert!(matches!(refused(&big), SnapshotError::TooLong { length: 12, .. }));
}

#[test]
fn memo_bombs() {
    // A slot far ahead would be gigabytes of empty table.
    assert!(matches!(refused(b"\x80\x02Nr\xff\xff\xff\xff."), SnapshotError::Memo { .. }));
    assert!(matches!(refused(b"\x80\x02h\x07."), SnapshotError::Memo { slot: 7, .. }));
    // Each list holds the one before twice: 2^40 values when written out.
    let mut laughs = b"\x80\x02}(X\x08\x00\x00\x00segments]X\x03\x00\x00\x00xyz](NNeq\x01".to_vec();
    for level in 1..40u8 {
        laughs.extend_from_slice(&[b'0', b']', b'(', b'h', level, b'h', level, b'e', b'q', level + 1]);
    }
    laughs.extend_from_slice(b"u.");
    assert!(matches!(refused(&laughs), SnapshotError::TooMany { .. }));
}

#[test]
fn cycles_and_depth() {
    assert!(matches!(refused(b"\x80\x02]q\x00(h\x00e."), SnapshotError::Cycle { .. }));
    assert!(matches!(refused(b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00u."), SnapshotError::Cycle { .. }));
    // Closed through a list that already has contents, so only writing it out can find it.
    let late = b"\x80\x02}(X\x08\x00\x00\x00segments]X\x03\x00\x00\x00xyz]q\x01(Ne(h\x01eu.";
    assert!(matches!(refused(late), SnapshotError::TooDeep { .. } | SnapshotError::TooMany { .. }));

    let mut deep = b"\x80\x02}(X\x08\x00\x00\x00segments]X\x03\x00\x00\x00xyz".to_vec();
    deep.extend(std::iter::repeat_n(b']', 100_000));
    deep.extend(std::iter::repeat_n(b'a', 99_999));
    deep.extend_from_slice(b"u.");
    assert!(matches!(refused(&deep), SnapshotError::TooDeep { .. }));
    let marks = [b"\x80\x02".to_vec(), vec![b'('; 100_000]].concat();
    assert!(matches!(refused(&marks), SnapshotError::TooDeep { .. }));
    let json = "[".repeat(100_000);
    assert!(matches!(refused(json.as_bytes()), SnapshotError::Json(_)));
}

#[test]
fn a_flood_of_values_is_refused_before_it_fills_the_memory() {
    let flood = [b"\x80\x02](".to_vec(), vec![b'N'; 6 << 20], b"e.".to_vec()].concat();
    assert!(matches!(refused(&flood), SnapshotError::TooMany { .. }));
    let mut batches = b"\x80\x02]".to_vec();
    for _ in 0..6000 {
        batches.extend_from_slice(b"(");
        batches.extend(std::iter::repeat_n(b'N', 1000));
        batches.extend_from_slice(b"e");
    }
    batches.extend_from_slice(b".");
    assert!(matches!(refused(&batches), SnapshotError::TooMany { .. }));
}

#[test]
fn json_floods_are_refused_like_pickles() {
    // A list that never ends, in one container and in many.
    let flood = [b"{\"segments\": [".to_vec(), b"0,".repeat(5 << 20)].concat();
    assert!(matches!(refused(&flood), SnapshotError::TooMany { .. }));
    let open = b"[0,".repeat(100);
    let nested = [open, b"0,".repeat(5 << 20)].concat();
    assert!(matches!(refused(&nested), SnapshotError::TooMany { .. }));
    let pairs = [b"{".to_vec(), b"\"a\":0,".repeat(5 << 20)].concat();
    assert!(matches!(refused(&pairs), SnapshotError::TooMany { .. }));
    // A string and a number that never end; quotes that are escaped do not end one.
    let text = [b"{\"segments\": \"".to_vec(), b"\\\"".repeat(10 << 20)].concat();
    assert!(matches!(refused(&text), SnapshotError::TooLong { .. }));
    let number = [b"[".to_vec(), vec![b'7'; 20 << 20]].concat();
    assert!(matches!(refused(&number), SnapshotError::TooLong { .. }));
    // Space is neither: a file with a great deal of it is only wrong at its end.
    let spaces = [b"[".to_vec(), vec![b' '; 20 << 20]].concat();
    assert!(matches!(refused(&spaces), SnapshotError::Json(_)));
}

#[test]
fn compressed_floods_are_refused_however_often_they_are_wrapped() {
    let flood = gzip(&[b"{\"segments\": [".to_vec(), vec![b' '; 65 << 20]].concat());
    let twice = gzip(&flood);
    match refused(&twice) {
        SnapshotError::Unpacked { limit } => assert_eq!(limit, 64 << 20),
        other => panic!("{other}"),
    }
    let pickle = [b"\x80\x02".to_vec(), b"N0".repeat(33 << 20)].concat();
    assert!(matches!(refused(&gzip(&gzip(&pickle))), SnapshotError::Unpacked { .. }));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn other_files_are_named_for_what_they_are() {
    assert!(matches!(refused(b"PK\x03\x04zip"), SnapshotError::NotASnapshot { .. }));
    assert!(matches!(refused(b""), SnapshotError::Truncated { at: 0 }));
    assert!(matches!(refused(b"\x80\x09."), SnapshotError::Protocol { version: 9 }));
    assert!(matches!(refused(b"\x80\x04K\x07."), SnapshotError::Shape { .. }));
    assert!(matches!(refused(b"{\"weights\": [1, 2]}"), SnapshotError::Shape { .. }));
    let many = br#"[{"blocks": [], "total_size": 1, "address": 0, "device": 4000000000}]"#;
    assert!(matches!(refused(many), SnapshotError::TooMany { what: "devices", .. }));
    assert!(matches!(refused(b"{\"segments\": 3}"), SnapshotError::Field { field: "segments", .. }));
    let negative = br#"{"device_traces": [[{"action": "alloc", "addr": 1, "size": -5}]]}"#;
    let message = refused(negative).to_string();
    assert!(message.contains("size") && message.contains("-5"), "{message}");
    assert!(matches!(
        stormlog_torch::load("/nonexistent/snapshot.pickle".as_ref()).unwrap_err(),
        SnapshotError::Open { .. }
    ));
}

fn small_fixture() -> Vec<u8> {
    let file = std::fs::File::open(data().join("graph-s11-default.pickle.gz")).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    bytes
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = small_fixture();
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
    }
    let packed = std::fs::read(data().join("graph-s11-default.pickle.gz")).unwrap();
    for end in (0..packed.len()).step_by(7) {
        assert!(read(&packed[..end]).is_err(), "{end} of {} compressed bytes", packed.len());
    }
}

proptest! {
    #[test]
    fn damaged_recordings_never_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = small_fixture();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        fuzz(&bytes);
    }

    #[test]
    fn random_opcodes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz(&[b"\x80\x04".as_slice(), &body].concat());
        fuzz(&body);
    }

    #[test]
    fn plausible_opcodes_never_panic(body in proptest::collection::vec(prop::sample::select(b"}](ueasNK\x01\x94h\x00\x86t)0121ld.".to_vec()), 0..200)) {
        fuzz(&[b"\x80\x04".as_slice(), &body].concat());
    }
}

/// Events that are well-formed one by one but make no sense together.
fn nonsense() -> impl Strategy<Value = String> {
    let action = prop::sample::select(vec![
        "alloc",
        "free_requested",
        "free_completed",
        "free",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "oom",
        "snapshot",
    ]);
    let size = prop_oneof![
        1u64..4096,
        (1u64..64).prop_map(|n| n << 20),
        (1u64..4).prop_map(|n| n * (20 << 20)),
        any::<u64>()
    ];
    let addr = prop_oneof![
        (0u64..40).prop_map(|n| n << 20),
        (0u64..64).prop_map(|n| (1 << 40) + (n << 19)),
        any::<u64>()
    ];
    let event = (action, addr, size, 0u64..3).prop_map(|(action, addr, size, stream)| {
        format!(
            r#"{{"action": "{action}", "addr": {addr}, "size": {size}, "stream": {stream}, "time_us": 5}}"#
        )
    });
    let block =
        (prop::sample::select(vec!["active_allocated", "inactive", "active_pending_free"]), 1u64..(30 << 20));
    let segment = ((0u64..40).prop_map(|n| n << 20), any::<bool>(), any::<bool>(), proptest::collection::vec(block, 0..4)).prop_map(
        |(address, expandable, small, blocks)| {
            let total: u64 = blocks.iter().map(|(_, size)| size).sum();
            let blocks: Vec<String> =
                blocks.iter().map(|(state, size)| format!(r#"{{"state": "{state}", "size": {size}}}"#)).collect();
            let kind = if small { "small" } else { "large" };
            format!(
                r#"{{"address": {address}, "total_size": {total}, "stream": 0, "device": 0, "segment_type": "{kind}", "is_expandable": {expandable}, "blocks": [{}]}}"#,
                blocks.join(",")
            )
        },
    );
    let settings = prop::sample::select(vec![
        "{}",
        r#"{"expandable_segments": true}"#,
        r#"{"max_split_size": 33554432, "garbage_collection_threshold": 0.5}"#,
        r#"{"expandable_segments": true, "max_split_size": 33554432}"#,
    ]);
    (proptest::collection::vec(event, 0..60), proptest::collection::vec(segment, 0..6), settings).prop_map(
        |(events, segments, settings)| {
            format!(
                r#"{{"device_traces": [[{}]], "segments": [{}], "allocator_settings": {settings}}}"#,
                events.join(","),
                segments.join(",")
            )
        },
    )
}

proptest! {
    #[test]
    fn nonsense_is_analysed_without_a_panic(json in nonsense()) {
        fuzz(json.as_bytes());
    }
}
