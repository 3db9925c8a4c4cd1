//! What a timeline shows is what was there, however much of the trace is left out.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::Value;
use stormlog_torch::{ExportFormat, Recording, TimelineLimits, export, load, stacks_over_time, timeline};

fn running(column: &Value) -> Vec<i64> {
    let mut sum = 0;
    let add = |value: &Value| {
        sum += value.as_i64().unwrap();
        sum
    };
    column.as_array().unwrap().iter().map(add).collect()
}

fn numbers(column: &Value) -> Vec<i64> {
    column.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

fn data(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pickle.gz"))
}

#[test]
fn blocks_and_segments_add_up_at_every_moment_shown() {
    for name in
        ["gpt-train", "gpt-oom", "streams-s11-expandable", "graph-s11-default", "emptycache-s11-default"]
    {
        let snapshot = load(&data(name)).unwrap();
        let recording = Recording::new(&snapshot, 0);
        let totals: Vec<_> =
            std::iter::once(recording.tracker().totals()).chain(recording.totals()).collect();
        for limits in [TimelineLimits::default(), TimelineLimits { moments: 97, blocks: 50, spans: 3 }] {
            let columns = serde_json::to_value(timeline(&recording, &limits)).unwrap();
            let after = running(&columns["moments"]["after"]);
            let mut used = running(&columns["moments"]["other"]);
            let mut held = vec![0; after.len()];
            let crowds = columns["crowds"].as_array().unwrap();
            let mut crowded = vec![0; after.len()];
            for crowd in crowds {
                let mut starts = running(&crowd["moment"]);
                starts.push(after.len() as i64);
                for (span, bytes) in starts.windows(2).zip(running(&crowd["bytes"])) {
                    (span[0]..span[1]).for_each(|moment| crowded[moment as usize] += bytes);
                }
            }
            assert_eq!(crowded, used, "{name}: what is not drawn is in one of the pools");
            assert_eq!(crowds.is_empty(), columns["folded_blocks"] == 0, "{name}");
            let blocks = &columns["blocks"];
            let sizes = numbers(&blocks["size"]);
            assert!(after.len() <= limits.moments && sizes.len() <= limits.blocks, "{name}");
            let lasts =
                numbers(&blocks["held"]).into_iter().zip(numbers(&blocks["awaited"])).map(|(a, b)| a + b);
            for ((born, last), size) in running(&blocks["born"]).into_iter().zip(lasts).zip(sizes) {
                (born..born + last).for_each(|moment| used[moment as usize] += size);
            }
            let segments = &columns["stretches"];
            let lifetimes = numbers(&segments["born"]).into_iter().zip(numbers(&segments["held"]));
            for ((born, last), size) in lifetimes.zip(numbers(&segments["size"])) {
                (born..born + last).for_each(|moment| held[moment as usize] += size);
            }
            for (moment, &events) in after.iter().enumerate() {
                let now = totals[events as usize];
                assert_eq!(used[moment], now.active as i64, "{name}: in use after {events} events");
                assert_eq!(held[moment], now.reserved as i64, "{name}: held after {events} events");
            }
            let peak = totals.iter().map(|now| now.active).max().unwrap();
            assert_eq!(used.iter().max(), Some(&(peak as i64)), "{name}: the peak is never left out");
        }
    }
}

#[test]
fn exports_have_every_block() {
    let snapshot = load(&data("streams-s11-default")).unwrap();
    let recordings = [Recording::new(&snapshot, 0)];
    let lifetimes = recordings[0].lifetimes();
    let written = |format| {
        let mut out = Vec::new();
        export(&recordings, format, &mut out).unwrap();
        out
    };
    let plain: Value = serde_json::from_slice(&written(ExportFormat::Json)).unwrap();
    let blocks = plain["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), lifetimes.len());
    assert_eq!(blocks[5]["addr"], lifetimes[5].addr);
    assert!(blocks.iter().all(|block| plain["stacks"][block["stack"].as_u64().unwrap() as usize].is_array()));
    let trace: Value = serde_json::from_slice(&written(ExportFormat::Perfetto)).unwrap();
    let count = |phase: &str| {
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).count()
    };
    assert_eq!((count("b"), count("e")), (lifetimes.len(), lifetimes.len()));
    assert_eq!(count("C"), snapshot.event_count(0) + 1);
    assert!(
        trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .all(|event| event["ph"] == "M" || event["ts"].is_i64())
    );
}

#[test]
fn a_block_whose_end_was_not_recorded_ends_where_another_takes_its_place() {
    let alloc = |time: u32| {
        format!(r#"{{"action": "alloc", "addr": 4194304, "size": 1048577, "stream": 0, "time_us": {time}}}"#)
    };
    let segment =
        r#"{"action": "segment_alloc", "addr": 4194304, "size": 20971520, "stream": 0, "time_us": 0}"#;
    let end = r#"{"device": 0, "address": 4194304, "total_size": 20971520, "stream": 0, "segment_type": "large", "blocks": [
        {"address": 4194304, "size": 1049088, "requested_size": 1048577, "state": "active_allocated"},
        {"address": 5243392, "size": 19922432, "requested_size": 0, "state": "inactive"}]}"#;
    let trace = [segment.to_owned(), alloc(1), alloc(2), alloc(3)].join(", ");
    let json = format!(r#"{{"segments": [{end}], "device_traces": [[{trace}]]}}"#);
    let snapshot = stormlog_torch::read(json.as_bytes()).unwrap();
    let lifetimes = Recording::new(&snapshot, 0).lifetimes();
    let ends: Vec<Option<u32>> = lifetimes.iter().map(|life| life.freed).collect();
    assert_eq!(ends, [Some(2), Some(3), None], "{lifetimes:?}");
}

#[test]
fn snapshots_are_distinguished_from_other_files() {
    assert!(stormlog_torch::is_snapshot(&data("gpt-oom")));
    for other in ["Cargo.toml", "src/lib.rs", "tests", "absent", "tests/data/leak-s11-default.json"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(other);
        assert!(!stormlog_torch::is_snapshot(&path), "{other}");
    }
}

#[test]
fn stacks_and_categories_add_up_to_what_is_allocated_at_every_moment() {
    for name in ["gpt-train", "gpt-leak", "gpt-oom", "streams-s11-expandable"] {
        let snapshot = load(&data(name)).unwrap();
        let recording = Recording::new(&snapshot, 0);
        let found = stacks_over_time(&recording, 120);
        assert!(found.moments.len() > 10 && found.moments.len() <= 120, "{name} {}", found.moments.len());
        for (at, moment) in found.moments.iter().enumerate() {
            let alive = found.lives.iter().filter(|life| (life.birth..life.death).contains(&(at as u32)));
            let by_stack: u64 = alive.map(|life| life.bytes).sum();
            let by_category: u64 = found.categories.iter().map(|(_, bytes)| bytes[at]).sum();
            assert_eq!(
                (by_stack, by_category),
                (moment.totals.allocated, moment.totals.allocated),
                "{name} {at}"
            );
        }
        let most = found.moments.iter().map(|moment| moment.totals.allocated).max();
        assert_eq!(Some(found.held.rows.iter().map(|row| row.bytes).sum()), most, "{name}");
    }
}
