//! Writes live files as the recorded program does, by code of its own: the tests' stand-in for the preloaded library.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test program uses its part; a panic is the report"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stormlog_capture::layout::{self, header, slot, slot_state};
use stormlog_capture::record::{NARROW, WIDE, definition, kind, zigzag};

pub struct Writer {
    pub path: PathBuf,
    file: File,
    slots: u32,
    pub streams: Vec<StreamWriter>,
}

#[derive(Default)]
pub struct StreamWriter {
    id: u32,
    thread: u64,
    slot: Option<u32>,
    sequence: u64,
    committed: usize,
    address: u64,
    native_address: u64,
    python: u32,
    native: u32,
    time: u64,
    next_node: u32,
}

impl Writer {
    /// A live file for the capture at `capture`.
    pub fn create(capture: &Path, streams: u32, sample_bytes: u64) -> Writer {
        let path = PathBuf::from(format!("{}{}", capture.display(), layout::LIVE_SUFFIX));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(layout::SLOTS as u64).unwrap();
        let put = |at: usize, bytes: &[u8]| file.write_all_at(bytes, at as u64).unwrap();
        put(header::MAGIC, &layout::LIVE_MAGIC);
        put(header::VERSION, &layout::VERSION.to_le_bytes());
        put(header::SLOT_SIZE, &(layout::SLOT_SIZE as u32).to_le_bytes());
        put(header::PID, &4242u32.to_le_bytes());
        put(header::SAMPLE_BYTES, &sample_bytes.to_le_bytes());
        put(header::CAPTURE_ID, &77u64.to_le_bytes());
        let metadata = br#"{"command":["python","x.py"]}"#;
        put(header::METADATA_LEN, &(metadata.len() as u32).to_le_bytes());
        put(header::METADATA, metadata);
        let streams = (0..streams)
            .map(|id| StreamWriter {
                id,
                thread: 100 + u64::from(id),
                next_node: 1,
                ..StreamWriter::default()
            })
            .collect();
        Writer { path, file, slots: 0, streams }
    }

    pub fn end(&self) {
        self.file.write_all_at(&layout::state::EXITED.to_le_bytes(), header::STATE as u64).unwrap();
    }

    fn take_slot(&mut self) -> u32 {
        let mut states = vec![0; self.slots as usize];
        self.file.read_exact_at(&mut states, layout::DIRECTORY as u64).unwrap();
        let free = states.iter().position(|state| *state == slot_state::FREE);
        let index = free.map_or(self.slots, |index| index as u32);
        if free.is_none() {
            self.slots += 1;
            let length = layout::SLOTS as u64 + u64::from(self.slots) * layout::SLOT_SIZE as u64;
            self.file.set_len(length).unwrap();
            self.file.write_all_at(&self.slots.to_le_bytes(), header::SLOT_COUNT as u64).unwrap();
        }
        self.set_state(index, slot_state::TAKEN);
        index
    }

    fn set_state(&self, index: u32, state: u8) {
        self.file.write_all_at(&[state], layout::DIRECTORY as u64 + u64::from(index)).unwrap();
    }

    fn slot_at(index: u32) -> u64 {
        layout::SLOTS as u64 + u64::from(index) * layout::SLOT_SIZE as u64
    }

    /// Makes room for a record; the stream's references start over in a new chunk.
    fn room(&mut self, stream: usize, bytes: usize) {
        let held = &self.streams[stream];
        if held.slot.is_some() && held.committed + bytes + 64 <= layout::SLOT_SIZE - layout::SLOT_HEADER {
            return;
        }
        self.close(stream);
        let index = self.take_slot();
        let held = &mut self.streams[stream];
        held.slot = Some(index);
        held.committed = 0;
        (held.address, held.native_address, held.python, held.native) = (0, 0, 0, 0);
        let time = std::mem::take(&mut held.time);
        let at = Self::slot_at(index);
        let mut bytes = [0; layout::SLOT_HEADER];
        bytes[slot::MAGIC..][..4].copy_from_slice(&layout::SLOT_MAGIC.to_le_bytes());
        bytes[slot::STREAM..][..4].copy_from_slice(&held.id.to_le_bytes());
        bytes[slot::SEQUENCE..][..8].copy_from_slice(&held.sequence.to_le_bytes());
        bytes[slot::THREAD..][..8].copy_from_slice(&held.thread.to_le_bytes());
        bytes[slot::FIRST_NODE..][..4].copy_from_slice(&held.next_node.to_le_bytes());
        held.sequence += 1;
        self.file.write_all_at(&bytes, at).unwrap();
        self.time(stream, time);
    }

    /// The stream's chunk is full.
    pub fn close(&mut self, stream: usize) {
        if let Some(index) = self.streams[stream].slot.take() {
            self.set_state(index, slot_state::FULL);
        }
    }

    fn put(&mut self, stream: usize, kind: u8, flag: bool, numbers: [u64; 4], payload: &[u8]) {
        let wide =
            |value: u64| WIDE.iter().position(|len| *len == 8 || value < 1 << (8 * len)).unwrap() as u16;
        let narrow = |value: u64| NARROW.iter().position(|len| value < 1 << (8 * len)).unwrap() as u16;
        let [a, b, c, d] = numbers;
        let codes = [wide(a), wide(b), narrow(c), narrow(d)];
        let control = u16::from(kind)
            | codes[0] << 5
            | codes[1] << 8
            | codes[2] << 11
            | codes[3] << 13
            | u16::from(flag) << 15;
        let mut bytes = control.to_le_bytes().to_vec();
        let lengths = [
            WIDE[codes[0] as usize],
            WIDE[codes[1] as usize],
            NARROW[codes[2] as usize],
            NARROW[codes[3] as usize],
        ];
        for (value, length) in numbers.iter().zip(lengths) {
            bytes.extend_from_slice(&value.to_le_bytes()[..usize::from(length)]);
        }
        bytes.extend_from_slice(payload);
        let held = &mut self.streams[stream];
        let at = Self::slot_at(held.slot.unwrap());
        let here = at + (layout::SLOT_HEADER + held.committed) as u64;
        held.committed += bytes.len();
        self.file.write_all_at(&bytes, here).unwrap();
        let committed = (self.streams[stream].committed as u64).to_le_bytes();
        self.file.write_all_at(&committed, at + slot::COMMITTED as u64).unwrap();
    }

    fn address(&mut self, stream: usize, address: u64) -> (u64, bool) {
        let held = &mut self.streams[stream];
        let last = std::mem::replace(&mut held.address, address >> 3);
        if address.is_multiple_of(8) {
            (zigzag((address >> 3).wrapping_sub(last) as i64), false)
        } else {
            (address, true)
        }
    }

    fn nodes(&mut self, stream: usize, python: u32, native: u32) -> (u64, u64) {
        let held = &mut self.streams[stream];
        let difference = |now: u32, last: &mut u32| {
            let difference = now.wrapping_sub(*last) as i32;
            *last = now;
            zigzag(i64::from(difference))
        };
        (difference(python, &mut held.python), difference(native, &mut held.native))
    }

    pub fn allocate(&mut self, stream: usize, kind: u8, address: u64, size: u64, nodes: (u32, u32)) {
        self.room(stream, 32);
        let (a, flag) = self.address(stream, address);
        let (c, d) = self.nodes(stream, nodes.0, nodes.1);
        self.put(stream, kind, flag, [a, size, c, d], &[]);
    }

    pub fn free(&mut self, stream: usize, kind: u8, address: u64) {
        self.room(stream, 32);
        let (a, flag) = self.address(stream, address);
        self.put(stream, kind, flag, [a, 0, 0, 0], &[]);
    }

    /// The end of a block on a device; `size` 0 where it is not given.
    pub fn device_free(&mut self, stream: usize, address: u64, size: u64) {
        self.room(stream, 32);
        let (a, flag) = self.address(stream, address);
        self.put(stream, kind::DEVICE_FREE, flag, [a, size, 0, 0], &[]);
    }

    /// A device: type, index and source of its reports.
    pub fn define_device(&mut self, stream: usize, number: u8, device: [u8; 3]) {
        self.define(stream, definition::DEVICE, number.into(), &device);
    }

    pub fn device_totals(&mut self, stream: usize, number: u8, allocated: u64, reserved: u64) {
        let payload = [allocated.to_le_bytes(), reserved.to_le_bytes()].concat();
        self.define(stream, definition::DEVICE_TOTALS, number.into(), &payload);
    }

    /// A failed request: bytes, allocated, reserved.
    pub fn device_failed(&mut self, stream: usize, number: u8, figures: [u64; 3], python: u32) {
        let mut payload = figures.map(u64::to_le_bytes).concat();
        payload.extend_from_slice(&python.to_le_bytes());
        payload.extend_from_slice(&0u32.to_le_bytes());
        self.define(stream, definition::DEVICE_FAILED, number.into(), &payload);
    }

    pub fn mark_node(&mut self, stream: usize, mark: u64, parent: u32) -> u32 {
        self.room(stream, 32);
        let held = &mut self.streams[stream];
        let node = held.next_node;
        held.next_node += 1;
        self.put(stream, kind::NODE_MARK, false, [mark, 0, u64::from(node - parent), 0], &[]);
        node
    }

    pub fn unmap(&mut self, stream: usize, address: u64, size: u64) {
        self.room(stream, 32);
        let (a, flag) = self.address(stream, address);
        self.put(stream, kind::MUNMAP, flag, [a, size, 0, 0], &[]);
    }

    pub fn failed(&mut self, stream: usize, allocator: u8, errno: u64, size: u64, python: u32) {
        self.room(stream, 32);
        let (c, d) = self.nodes(stream, python, 0);
        self.put(stream, kind::FAILED, false, [u64::from(allocator) + errno * 256, size, c, d], &[]);
    }

    pub fn time(&mut self, stream: usize, time: u64) {
        self.room(stream, 32);
        let time = time.max(self.streams[stream].time);
        let last = std::mem::replace(&mut self.streams[stream].time, time);
        self.put(stream, kind::TIME, false, [time - last, 0, 0, 0], &[]);
    }

    pub fn python_node(&mut self, stream: usize, code: u64, instruction: u64, parent: u32) -> u32 {
        self.room(stream, 32);
        let held = &mut self.streams[stream];
        let node = held.next_node;
        held.next_node += 1;
        self.put(stream, kind::NODE_PYTHON, false, [code, instruction * 2, u64::from(node - parent), 0], &[]);
        node
    }

    pub fn native_node(&mut self, stream: usize, address: u64, parent: u32) -> u32 {
        self.room(stream, 32);
        let held = &mut self.streams[stream];
        let node = held.next_node;
        held.next_node += 1;
        let last = std::mem::replace(&mut held.native_address, address);
        let a = zigzag(address.wrapping_sub(last) as i64);
        self.put(stream, kind::NODE_NATIVE, false, [a, 0, u64::from(node - parent), 0], &[]);
        node
    }

    pub fn define(&mut self, stream: usize, what: u64, id: u64, payload: &[u8]) {
        self.room(stream, payload.len() + 32);
        self.put(stream, kind::DEFINITION, false, [what, id, payload.len() as u64, 0], payload);
    }

    pub fn define_code(&mut self, stream: usize, id: u64, name: &str, file: &str, line: u32) {
        let mut payload = line.to_le_bytes().to_vec();
        for text in [name, file] {
            payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
            payload.push(1);
            payload.extend_from_slice(text.as_bytes());
        }
        // One entry for eight units: the first line itself, without columns.
        payload.extend_from_slice(&[0xef, 0]);
        self.define(stream, definition::CODE, id, &payload);
    }
}

/// A small generator of numbers that only look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}
