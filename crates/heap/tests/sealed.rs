//! A capture that was repacked at its end says what its live file said.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use stormlog_capture::record::{definition, kind};
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Capture, HeapReadOptions, Mode};
use writer::Writer;

/// Everything it says that a record could change.
fn figures(path: &Path) -> Vec<String> {
    let heap = Capture::open(path).unwrap().read(HeapReadOptions::default()).unwrap();
    let stats = heap.stats(1000, None);
    let mut said = vec![format!(
        "{} {} {} {:?} {:?}",
        stats.total_allocations, stats.peak_bytes, stats.unknown_frees, stats.top_by_size, stats.by_thread
    )];
    for mode in [Mode::Peak, Mode::Leaks, Mode::Temporary, Mode::Total] {
        let mut lines: Vec<String> =
            heap.profile(mode, None).held.by_line().iter().map(|entry| format!("{entry:?}")).collect();
        lines.sort();
        said.append(&mut lines);
    }
    said
}

fn code(name: &[u8], width: u8, file: &str, first_line: u32, table: &[u8]) -> Vec<u8> {
    let mut payload = first_line.to_le_bytes().to_vec();
    for (text, width) in [(name, width), (file.as_bytes(), 1)] {
        payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
        payload.push(width);
        payload.extend_from_slice(text);
    }
    payload.extend_from_slice(table);
    payload
}

#[derive(Debug, Clone)]
enum Act {
    Define { stream: usize, id: u64, first_line: u32, file: u8, width: u8, table: Vec<u8> },
    Node { stream: usize, id: u64, instruction: u64, back: u32 },
    Allocate { stream: usize, at: u64, size: u64, back: u32 },
    Free { stream: usize, at: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    // Lines on and back, no line, and bytes that are not a table.
    let entry = prop_oneof![
        (0u8..8, 0u8..64).prop_map(|(units, line)| vec![0xe8 | units, line]),
        (0u8..8, any::<u8>()).prop_map(|(units, column)| vec![0x80 | units, column & 0x7f]),
        (0u8..8).prop_map(|units| vec![0xf8 | units]),
        Just(vec![3]),
    ];
    let table = prop::collection::vec(entry, 0..6).prop_map(|entries| entries.concat());
    prop_oneof![
        1 => (0usize..2, 0u64..6, 1u32..900, 0u8..3, 1u8..6, table).prop_map(
            |(stream, id, first_line, file, width, table)| Act::Define { stream, id, first_line, file, width, table }),
        2 => (0usize..2, 0u64..8, 0u64..40, 0u32..5)
            .prop_map(|(stream, id, instruction, back)| Act::Node { stream, id, instruction, back }),
        6 => (0usize..2, 0u64..40, 1u64..700, 0u32..4)
            .prop_map(|(stream, at, size, back)| Act::Allocate { stream, at, size, back }),
        5 => (0usize..2, 0u64..40).prop_map(|(stream, at)| Act::Free { stream, at }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Code objects defined twice, late, never, in wide text, with tables of any kind: each frame keeps its name and line.
    #[test]
    fn frames_keep_their_lines(acts in prop::collection::vec(act(), 1..400)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let mut writer = Writer::create(&path, 2, 0);
        writer.define(0, definition::PYTHON, 0x030c_01f0, b"3.12.1");
        let mut nodes = [0u32; 2];
        let mut live = std::collections::BTreeSet::new();
        for (time, act) in acts.into_iter().enumerate() {
            // Each in a tick of its own, so that the order of the streams is certain.
            match act {
                Act::Define { stream, id, first_line, file, width, table } => {
                    writer.time(stream, time as u64);
                    writer.define(stream, definition::CODE, id, &code(b"name", width, &format!("{file}.py"), first_line, &table));
                }
                Act::Node { stream, id, instruction, back } => {
                    writer.time(stream, time as u64);
                    nodes[stream] = writer.python_node(stream, id, instruction, nodes[stream].saturating_sub(back));
                }
                Act::Allocate { stream, at, size, back } => {
                    writer.time(stream, time as u64);
                    if live.insert(at) {
                        writer.allocate(stream, kind::MALLOC, at * 4096, size, (nodes[stream].saturating_sub(back), 0));
                    }
                }
                Act::Free { stream, at } => {
                    writer.time(stream, time as u64);
                    if live.remove(&at) {
                        writer.free(stream, kind::FREE, at * 4096);
                    }
                }
            }
        }
        writer.close(0);
        writer.close(1);
        let before = figures(&path);
        Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        prop_assert_eq!(figures(&path), before);
    }
}

/// Of a long capture only the beginning is repacked; what stays as it was names instructions of code objects from the beginning.
#[test]
fn a_long_capture_keeps_the_tables_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    writer.time(0, 1);
    writer.define(0, definition::CODE, 1, &code(b"early", 1, "a.py", 10, &[0xe8, 0, 0xe8, 2, 0xe8, 2]));
    writer.define(0, definition::CODE, 2, &code(b"late", 1, "a.py", 50, &[0xe8, 0, 0xe8, 2, 0xe8, 2]));
    let early = writer.python_node(0, 1, 1, 0);
    writer.allocate(0, kind::MALLOC, 0x1000, 100, (early, 0));
    for turn in 0..560_000u64 {
        writer.allocate(0, kind::MALLOC, 0x2000 + turn % 2 * 0x1000, 50, (early, 0));
        writer.free(0, kind::FREE, 0x2000 + turn % 2 * 0x1000);
    }
    writer.time(0, 2);
    let late = writer.python_node(0, 2, 2, early);
    writer.allocate(0, kind::MALLOC, 0x9000, 1000, (late, 0));
    writer.close(0);
    let before = figures(&path);
    assert!(before.iter().any(|line| line.contains("late") && line.contains("line: 52")), "{before:?}");
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    compactor.finish(json!({})).unwrap();
    assert_eq!(figures(&path), before);
}
