//! A long training in a bounded capture: the files keep the bound at every step, and what lives on the device is known to the byte.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;
use stormlog_capture::record::{definition, device_address, kind};
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, HeapReadOptions, Mode};
use stormlog_model::memory::Selection;
use writer::Writer;

const BOUND: u64 = 800_000;
const STEPS: u64 = 400;
const ALLOCATIONS_A_STEP: u64 = 700;
const STREAM: usize = 0;

/// Bytes on disk of everything in the directory.
fn used(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

fn options() -> Options {
    let fold = Some(Box::<Aggregate>::default() as Box<_>);
    Options { max_size: Some(BOUND), fold, ..Options::default() }
}

#[test]
fn capture_of_a_long_training_keeps_its_bound_and_every_live_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 512 << 10);
    writer.define(STREAM, definition::DEVICE_REPORTS, 1, &[]);
    writer.define_device(STREAM, 0, [1, 0, 0]);
    for (code, function) in [(1, "parameters"), (2, "forward")] {
        writer.define_code(STREAM, code, function, "train.py", 20);
    }
    let [parameters, forward] = [1, 2].map(|code| writer.python_node(STREAM, code, 3, 0));
    let mut random = 1_u64;
    let mut draw = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let (mut live, mut written) = (BTreeMap::new(), 0_u64);
    let mut held = 0;
    writer.time(STREAM, 1);
    for number in 0..100 {
        let (address, size) = ((1 << 40) + number * 4096, 512 * (1 + number));
        writer.allocate(STREAM, kind::DEVICE_ALLOCATION, device_address(0, address), size, (parameters, 0));
        held += size;
        written += 1;
    }
    let (mut compactor, mut most) = (Compactor::open(&path, options()).unwrap(), 0);
    for step in 0..STEPS {
        writer.time(STREAM, 1000 * (step + 1));
        for _ in 0..ALLOCATIONS_A_STEP {
            let address = (1 << 30) + (draw() % 2000) * 512;
            if live.remove(&address).is_some() {
                writer.device_free(STREAM, device_address(0, address), 0);
            }
            let size = 512 * (1 + draw() % 100_000);
            writer.allocate(STREAM, kind::DEVICE_ALLOCATION, device_address(0, address), size, (forward, 0));
            live.insert(address, size);
            written += 1;
        }
        compactor.step().unwrap();
        most = most.max(used(directory.path()));
    }
    // A size and an address are 28 bits that cannot be guessed: what was written is three times the room that records have.
    assert!(most <= BOUND, "{most} bytes");
    drop(compactor); // killed: what it has written and the live file must do
    Compactor::open(&path, options()).unwrap().finish(json!({"signal": 9})).unwrap();
    assert!(used(directory.path()) <= BOUND);
    let mut heap = Capture::open(&path).unwrap().read(HeapReadOptions::default()).unwrap();
    let [device] = &heap.stats(10, None).devices[..] else { panic!("one device") };
    assert_eq!(device.allocations, written);
    assert_eq!(device.live_bytes, held + live.values().sum::<u64>());
    heap.select(Selection::One("cuda:0".parse().unwrap())).unwrap();
    let lines: BTreeMap<String, u64> = heap
        .profile(Mode::Leaks, None)
        .held
        .by_function()
        .into_iter()
        .map(|entry| (entry.frame.function, entry.own.bytes))
        .collect();
    assert_eq!(lines["parameters"], held);
    assert_eq!(lines["forward"], live.values().sum::<u64>());
}
