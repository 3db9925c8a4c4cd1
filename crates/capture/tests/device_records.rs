//! Records of device memory on their way from the live file to the sealed one: nothing lost, and the host's records packed as well as without them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]
#![cfg(feature = "files")]

#[path = "common/writer.rs"]
mod writer;

use std::path::Path;

use serde_json::json;
use stormlog_capture::op::{Op, Ops};
use stormlog_capture::record::{definition, device_address, device_of, kind, mark};
use stormlog_capture::source::Source;
use stormlog_capture::{Compactor, Options};
use writer::{Dice, Writer};

/// Every record of every stream, and the payloads of its definitions.
fn records(path: &Path) -> Vec<(Op, Vec<u8>)> {
    let mut source = Source::open(path).unwrap();
    let mut all = Vec::new();
    for piece in source.pieces(true).unwrap() {
        let mut records = source.read(&piece).unwrap();
        let mut more = true;
        while more {
            let mut ops = Ops::default();
            more = records.next(777, &mut ops).unwrap();
            ops.unfold(0, |_| true);
            let mut payload = &ops.payload[..];
            for op in &ops.list {
                let length = if op.kind == kind::DEFINITION { op.python as usize } else { 0 };
                let (own, rest) = payload.split_at(length);
                payload = rest;
                all.push((*op, own.to_vec()));
            }
        }
    }
    all
}

/// All but what sealing may change: code objects, and Python frames, which get lines.
fn kept(records: Vec<(Op, Vec<u8>)>) -> Vec<(Op, Vec<u8>)> {
    let is_python = |op: &Op| {
        matches!(op.kind, kind::NODE_PYTHON | kind::NODE_LINE)
            || (op.kind == kind::DEFINITION && op.size == definition::CODE)
    };
    records.into_iter().filter(|(op, _)| !is_python(op)).collect()
}

/// A program of two threads whose host and device memory come and go; without `devices` the same program on the host alone.
fn program(path: &Path, devices: bool) -> u64 {
    let mut writer = Writer::create(path, 2, 0);
    let (mut host, mut card) = (Dice(7), Dice(8));
    let mut nodes = Vec::new();
    for stream in 0..2 {
        writer.define_code(stream, 5, "work", "x.py", 3);
        let frame = writer.python_node(stream, 5, 0, 0);
        nodes.push(frame);
        if devices {
            nodes.push(writer.mark_node(stream, mark::BACKWARD, frame));
            writer.mark_node(stream, mark::BACKWARD_AMBIGUOUS, 0);
            writer.define_device(stream, 3, [1, 0, 0]);
        }
    }
    let (mut on_device, mut written) = (Vec::new(), 0);
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for step in 0..30_000u64 {
        let stream = (step / 300 % 2) as usize;
        if step % 500 == 0 {
            writer.time(stream, step);
        }
        // As the C library allocates, so that its model has something to foresee.
        if blocks.len() > 100 {
            let block = blocks.swap_remove(host.roll(blocks.len() as u64) as usize);
            writer.free(stream, kind::FREE, block.as_ptr() as u64);
        }
        let block: Vec<u8> = Vec::with_capacity(1 + host.roll(2000) as usize);
        writer.allocate(stream, kind::MALLOC, block.as_ptr() as u64, block.capacity() as u64, (1, 0));
        blocks.push(block);
        if !devices || step % 3 != 0 {
            continue;
        }
        written += 1;
        if on_device.len() > 60 && card.roll(2) == 0 {
            let (address, size) = on_device.swap_remove(card.roll(on_device.len() as u64) as usize);
            writer.device_free(stream, address, if step % 2 == 0 { size } else { 0 });
        } else {
            let size = 512 * (1 + card.roll(40));
            let address = device_address(3, 0x7f00_0000_0000 + 0x10_0000 * (step % 600) + 512 * card.roll(9));
            on_device.retain(|(other, _)| *other != address);
            writer.allocate(stream, kind::DEVICE_ALLOCATION, address, size, (1 + card.roll(3) as u32, 0));
            on_device.push((address, size));
        }
        if step % 900 == 0 {
            writer.device_totals(stream, 3, step * 512, step << 12);
            writer.device_failed(stream, 3, [1 << 30, step, step << 12], 1);
            written += 2;
        }
    }
    written
}

#[test]
fn device_records_come_back_from_a_compacted_and_from_a_sealed_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    program(&path, true);
    let before = kept(records(&path));
    let of = |kind: u8| before.iter().filter(|(op, _)| op.kind == kind).count();
    assert!(of(kind::DEVICE_ALLOCATION) > 4000 && of(kind::DEVICE_FREE) > 3000 && of(kind::NODE_MARK) == 4);
    assert!(of(kind::DEFINITION) > 60);
    let on_device = before.iter().filter(|(op, _)| op.kind == kind::DEVICE_ALLOCATION);
    assert!(on_device.clone().all(|(op, _)| op.address >> 63 == 1 && device_of(op.address) == 3));
    let mut compactor = Compactor::open(&path, Options::default()).unwrap();
    compactor.step().unwrap();
    assert!(kept(records(&path)) == before, "live and finished file together");
    compactor.finish(json!({})).unwrap();
    assert!(kept(records(&path)) == before, "the sealed file");
}

/// The C library's allocator is foreseen as well between device records as without them.
#[test]
fn device_records_leave_the_prediction_of_host_addresses_alone() {
    let directory = tempfile::tempdir().unwrap();
    let [without, with] = [false, true].map(|devices| {
        let path = directory.path().join(format!("{devices}.bin"));
        let written = program(&path, devices);
        Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        (std::fs::metadata(&path).unwrap().len(), written)
    });
    let added = with.0.saturating_sub(without.0);
    assert!(added < 6 * with.1, "{added} bytes for {} device records beside {} bytes", with.1, without.0);
}
