//! What PyTorch's allocator reported on a real GPU, written as a recording of it: the records that the preloaded library would have written.
#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses its part; a panic is the report")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use stormlog_capture::record::{definition, device_address, kind};

use crate::writer::Writer;

/// The cases that were recorded.
pub const CASES: [&str; 5] = ["train", "streams", "graphs", "oom", "amp"];

/// One report.
pub struct Report {
    /// `a` (allocation), `f` (free) or `o` (out of memory).
    pub kind: char,
    pub address: u64,
    pub size: u64,
    pub allocated: u64,
    pub reserved: u64,
    pub device: [u8; 2],
    pub thread: u64,
}

fn data(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../heap/tests/data/reports").join(file)
}

/// What `torch.cuda.memory_stats()` counted when the program's work had ended.
pub fn counted(case: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data(&format!("{case}.json"))).unwrap()).unwrap()
}

/// The reports of a case in the order of the calls.
pub fn reports(case: &str) -> Vec<Report> {
    let file = std::fs::File::open(data(&format!("{case}.log.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: usize| words[word].parse::<i64>().unwrap().unsigned_abs();
        Report {
            kind: words[0].chars().next().unwrap(),
            address: u64::from_str_radix(words[1].trim_start_matches("0x"), 16).unwrap_or(0),
            size: number(2),
            allocated: number(3),
            reserved: number(4),
            device: [number(5) as u8, number(6) as u8],
            thread: number(7),
        }
    };
    text.lines().map(parse).collect()
}

/// Writes the reports as records: a stream for each thread, a new moment whenever another thread reports, and the end of the program's code where
/// `counted` was counted. With `host` the first thread holds a block of the host more with every fiftieth report.
pub fn write(path: &Path, reports: &[Report], counted: &Value, host: bool) -> Writer {
    let mut streams: BTreeMap<u64, usize> = BTreeMap::new();
    for report in reports {
        let next = streams.len();
        streams.entry(report.thread).or_insert(next);
    }
    let mut writer = Writer::create(path, streams.len() as u32, 0);
    let end = [&counted["allocation.all.allocated"], &counted["allocation.all.freed"]];
    let end = end.map(|count| count.as_u64().unwrap_or(u64::MAX));
    let mut nodes = vec![0; streams.len()];
    let (mut reserved, mut last, mut seen) = (u64::MAX, u64::MAX, [0u64; 2]);
    for (step, report) in reports.iter().enumerate() {
        let stream = streams[&report.thread];
        if nodes[stream] == 0 {
            writer.define_code(stream, 100 + stream as u64, &format!("thread_{stream}"), "train.py", 20);
            nodes[stream] = writer.python_node(stream, 100 + stream as u64, 3, 0);
        }
        if std::mem::replace(&mut last, report.thread) != report.thread || step % 50 == 0 {
            writer.time(stream, 1000 + 10 * step as u64);
        }
        if host && step % 50 == 0 {
            let address = 0x5500_0000_0000 + ((step as u64) << 17);
            writer.allocate(stream, kind::MALLOC, address, 100_000, (nodes[stream], 0));
        }
        let [device, index] = report.device;
        if reserved == u64::MAX {
            writer.define(stream, definition::DEVICE_REPORTS, 1, &[]);
            writer.define_device(stream, 0, [device, index, 0]);
        }
        let (node, address) = (nodes[stream], device_address(0, report.address));
        if report.kind == 'o' {
            writer.device_failed(stream, 0, [report.size, report.allocated, report.reserved], node);
            continue;
        }
        if std::mem::replace(&mut reserved, report.reserved) != report.reserved {
            writer.device_totals(stream, 0, report.allocated, report.reserved);
        }
        if report.kind == 'a' {
            writer.allocate(stream, kind::DEVICE_ALLOCATION, address, report.size, (node, 0));
            seen[0] += 1;
        } else {
            writer.device_free(stream, address, 0);
            seen[1] += 1;
        }
        if seen == end {
            writer.define(stream, definition::CODE_ENDED, 0, &[]);
        }
    }
    writer
}
