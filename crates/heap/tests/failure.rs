//! The heap at the last request that got no memory, known from one reading: it is what a program had that stopped there.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::collections::BTreeMap;

use serde_json::json;
use stormlog_capture::record::kind;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, Heap, HeapReadOptions, Mode};
use writer::{Dice, Writer};

const SITES: u32 = 7;

fn by_function(heap: &Heap, mode: Mode) -> BTreeMap<String, u64> {
    let entries = heap.profile(mode, None).held.by_function().into_iter();
    entries.filter(|entry| entry.own.bytes > 0).map(|entry| (entry.frame.function, entry.own.bytes)).collect()
}

/// Blocks and mappings come and go; now and then a request fails.
#[test]
fn heap_at_the_last_failure_is_what_lived_then() {
    for seed in 1..20 {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("heap.bin");
        let mut writer = Writer::create(&path, 1, 0);
        for site in 1..=SITES {
            writer.define_code(0, u64::from(site), &format!("f{site}"), "x.py", 10);
            assert_eq!(writer.python_node(0, u64::from(site), 0, 0), site);
        }
        let mut dice = Dice(seed);
        let mut live: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
        let mut at_failure = None;
        for step in 1..400u64 {
            if step % 20 == 0 {
                writer.time(0, step * 100);
            }
            let (site, size) = (1 + dice.roll(SITES.into()) as u32, 8 + dice.roll(5000));
            match dice.roll(20) {
                0 if step < 300 => {
                    writer.failed(0, kind::MALLOC, 12, 1 << 40, site);
                    let mut held: BTreeMap<String, u64> = BTreeMap::new();
                    live.values()
                        .for_each(|(site, size)| *held.entry(format!("f{site}")).or_default() += size);
                    at_failure = Some(held);
                }
                1..=8 if !live.is_empty() => {
                    let address = *live.keys().nth(dice.roll(live.len() as u64) as usize).unwrap();
                    live.remove(&address);
                    writer.free(0, kind::FREE, address);
                }
                // The same block again and again: stored as a repetition.
                9..=11 => {
                    for _ in 0..5 {
                        writer.allocate(0, kind::MALLOC, 0x9000_0000, size, (site, 0));
                        writer.free(0, kind::FREE, 0x9000_0000);
                    }
                }
                _ => {
                    writer.allocate(0, kind::MALLOC, step << 13, size, (site, 0));
                    live.insert(step << 13, (site, size));
                }
            }
        }
        writer.close(0);
        writer.end();
        let expected = at_failure.unwrap();
        let read = || Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap();
        assert_eq!(by_function(&read(), Mode::Failure), expected, "live, seed {seed}");
        Compactor::open(&path, Options::default()).unwrap().finish(json!({"exit_code": 1})).unwrap();
        assert_eq!(by_function(&read(), Mode::Failure), expected, "finished, seed {seed}");
    }
}

#[test]
fn failure_whose_records_were_folded_is_not_known() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    writer.define_code(0, 1, "work", "x.py", 10);
    writer.python_node(0, 1, 0, 0);
    writer.allocate(0, kind::MALLOC, 1 << 20, 100, (1, 0));
    writer.failed(0, kind::MALLOC, 12, 1 << 40, 1);
    writer.close(0);
    writer.end();
    let fold = Some(Box::<Aggregate>::default() as Box<_>);
    let options = Options { aggregate: true, fold, ..Options::default() };
    Compactor::open(&path, options).unwrap().finish(json!({"exit_code": 1})).unwrap();
    let heap = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap();
    assert!(!heap.knows_failure());
    assert_eq!(heap.stats(1, None).failed_request_count, 1);
}
