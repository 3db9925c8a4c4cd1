//! What the tests share: the recordings, and what the allocator itself counted while they were made.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::PathBuf;

use serde_json::Value;
use stormlog_torch::{Snapshot, load};

pub fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

pub fn snapshot(name: &str) -> Snapshot {
    load(&data().join(format!("{name}.pickle.gz"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The recordings that come with counters.
pub fn counted() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert_eq!(names.len(), 24);
    names
}

pub fn all() -> Vec<String> {
    let mut names = counted();
    names.extend(["gpt-train", "gpt-leak", "gpt-oom"].map(str::to_owned));
    names
}

pub fn counters(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(data().join(format!("{name}.json"))).unwrap()).unwrap()
}

pub fn counter(counters: &Value, key: &str) -> u64 {
    counters["stats"][key].as_u64().unwrap_or_else(|| panic!("no counter {key}"))
}

/// The memory fraction's limit in bytes, where one was set.
pub fn limit(counters: &Value) -> Option<u64> {
    let fraction: f64 = counters["fraction"].as_str().unwrap().parse().ok()?;
    Some((fraction * counters["mem_get_info"][1].as_u64().unwrap() as f64) as u64)
}

/// Everything a snapshot says, as text: equal texts, equal snapshots, whatever the tables' order.
pub fn spelled_out(snapshot: &Snapshot) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let text = |id| snapshot.tables.text(id);
    let stack = |id| {
        let frames = snapshot.tables.stack(id).map(|frame| {
            let frame = snapshot.tables.frame(frame);
            format!("{}:{} {} {}", text(frame.filename), frame.line, text(frame.name), text(frame.extra))
        });
        frames.collect::<Vec<_>>().join(";")
    };
    for device in 0..snapshot.device_count() {
        for event in snapshot.trace(device) {
            let context = snapshot.context(&event);
            writeln!(
                out,
                "{device} {} {:x} {} {:?} {:?} {} {:?} {} {} {} [{}]",
                snapshot.action_text(&event),
                event.addr,
                event.size,
                event.time_us,
                event.device_free,
                context.stream,
                context.pool,
                text(context.compile_context),
                text(context.user_metadata),
                text(context.extra),
                stack(event.stack),
            )
            .unwrap();
        }
    }
    for segment in &snapshot.segments {
        let mut plain = segment.clone();
        plain.blocks = 0..0;
        plain.stack = stormlog_torch::StackId::EMPTY;
        writeln!(out, "{plain:?} [{}]", stack(segment.stack)).unwrap();
        for block in snapshot.blocks_of(segment) {
            let stack = stack(block.stack);
            writeln!(
                out,
                "  {:x} {} {} {:?} [{stack}]",
                block.address, block.size, block.requested, block.state
            )
            .unwrap();
        }
    }
    for note in &snapshot.annotations {
        writeln!(out, "{} {} {} {}", text(note.name), note.start, note.device, note.time_us).unwrap();
    }
    writeln!(out, "{:?} {:?}", snapshot.settings, snapshot.extra).unwrap();
    out
}
