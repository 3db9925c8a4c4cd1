//! Small trees and readings for tests.

use stormlog_model::memory::Memory;
use stormlog_model::stacks::{Frame, FrameKind, Holding, Holdings, StackTree};

use crate::state::reading::{Heap, Level, Line, MemoryRow, Note, Process, ProcessRow, Reading, Thread};

pub(crate) fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame { function: function.into(), file: file.into(), line, kind: FrameKind::Python }
}

/// `main` calls `load`, which decodes JSON; and imports a module that builds a table.
pub(crate) fn holdings() -> Holdings {
    let mut tree = StackTree::new();
    tree.frames = vec![
        frame("main", "/home/me/train.py", 12),
        frame("load", "/home/me/data.py", 61),
        frame("decode", "/usr/lib/python3.11/json/decoder.py", 353),
        frame("read", "/usr/lib/python3.11/json/scanner.py", 20),
        frame("<module>", "<frozen importlib._bootstrap>", 241),
        frame("helper", "/home/me/helper.py", 3),
    ];
    let main = tree.push(0, 0);
    let load = tree.push(main, 1);
    let decode = tree.push(load, 2);
    let read = tree.push(decode, 3);
    let import = tree.push(main, 4);
    let helper = tree.push(import, 5);
    let unused = tree.push(main, 5);
    let row = |node, thread, bytes, count| Holding { node, thread, bytes, count };
    Holdings {
        rows: vec![
            row(read, 0, 600, 6),
            row(decode, 0, 400, 1),
            row(helper, 1, 300, 30),
            row(unused, 0, 0, 0),
        ],
        tree,
        threads: vec!["MainThread".into(), "loader".into()],
    }
}

pub(crate) fn line(function: &str, file: &str, at: u32, own: u64, total: u64, count: u64) -> Line {
    Line { frame: frame(function, file, at), own_bytes: own, total_bytes: total, count }
}

/// Two processes, of which the first has two threads and four lines.
pub(crate) fn reading() -> Reading {
    const SECOND: u64 = 1_000_000_000;
    let start = 1_700_000_000 * SECOND;
    let lines = vec![
        line("main", "/home/me/train.py", 12, 0, 1600 << 20, 900),
        line("read_all", "/home/me/loader.py", 61, 1024 << 20, 1024 << 20, 40),
        line("build", "/home/me/model.py", 31, 512 << 20, 512 << 20, 12),
        line("put", "/venv/lib/python3.12/site-packages/cache/store.py", 88, 64 << 20, 64 << 20, 800),
    ];
    let thread =
        |id, name: Option<&str>, bytes| Thread { id, name: name.map(str::to_owned), bytes, count: 3 };
    let row = |pid, rank, rss_bytes| ProcessRow {
        pid,
        name: "python train.py".into(),
        rank: Some(rank),
        rss_bytes: Some(rss_bytes),
        is_running: true,
        has_heap: true,
    };
    let note =
        |ago: u64, level, text: &str| Note { at_ns: start + (60 - ago) * SECOND, level, text: text.into() };
    Reading {
        title: "2026-11-15T10-22-31Z-train-4f2a".into(),
        at_ns: start + 60 * SECOND,
        processes: vec![row(4711, 0, 1800 << 20), row(4712, 1, 90 << 20)],
        output: None,
        chosen: Some(Process {
            pid: 4711,
            ended: None,
            seconds: Some(60.0),
            rss: (0..60).map(|at| (start + at * SECOND, (200 + at * 27) << 20)).collect(),
            rss_peak: Some(1801 << 20),
            heap: Some(Heap {
                memory: Memory::Host,
                memories: vec![MemoryRow { memory: Memory::Host, bytes: 1600 << 20, peak_bytes: 1700 << 20 }],
                reserved: None,
                curve: (0..60).map(|at| (start + at * SECOND, (at * 27) << 20)).collect(),
                bytes: 1600 << 20,
                count: 12_852,
                peak: 1700 << 20,
                is_sampled: false,
                behind_seconds: None,
                threads: vec![thread(100, Some("MainThread"), 1500 << 20), thread(101, None, 100 << 20)],
                thread: None,
                lines,
            }),
            notes: vec![
                note(30, Level::Info, "phase forward entered"),
                note(12, Level::Warning, "memory reaches its limit in 4 min"),
            ],
            phase: Some("train / forward".into()),
            trouble: None,
        }),
    }
}
