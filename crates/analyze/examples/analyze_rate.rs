//! How long the rules take: `cargo run --release -p stormlog-analyze --example analyze_rate [EVENTS [RANKS] | PATH]`.
//!
//! With a path, everything there is read as `stormlog analyze` reads it.
//! Makes the events as it goes (a steady gap with noise and a spike now and then, the input 0.4.3 is quadratic on) and prints
//! seconds and peak memory. Measures, asserts nothing.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and stops at what cannot be"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use stormlog_analyze::{AnalysisOptions, Recording, analyze};
use stormlog_model::{Counter, Counters, Event, Head, Identity, Metadata, Record};
use stormlog_store::{ReadOptions, Source};

const MIB: u64 = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|word| word.parse::<u64>().ok());
    let start = Instant::now();
    let mut recording = Recording::default();
    match arguments.first().filter(|word| Path::new(word).exists()) {
        Some(path) => {
            for source in Source::find(Path::new(path)).unwrap() {
                recording.next_source();
                for event in source.events(&ReadOptions::default()).unwrap() {
                    recording.observe(&event.unwrap());
                }
            }
        }
        None => {
            let (events, ranks) = (number(0).unwrap_or(1_000_000), number(1).unwrap_or(1));
            (0..ranks).for_each(|rank| record(&mut recording, rank, ranks, events));
        }
    }
    let observed = start.elapsed();
    let analysis = analyze(recording, Vec::new(), &AnalysisOptions::default());
    println!(
        "{} events: {:.2} s to take, {:.2} s in all; {} gaps, {} collective stretches, {} findings; peak {}",
        analysis.event_count,
        observed.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        analysis.gaps.len(),
        analysis.collective.len(),
        analysis.findings.len(),
        peak()
    );
}

fn record(recording: &mut Recording, rank: u64, ranks: u64, events: u64) {
    let head = Arc::new(Head {
        session_id: format!("rank-{rank}"),
        event_type: "sample".into(),
        collector: "stormlog.cuda_tracker".into(),
        sampling_interval_ms: 100,
        pid: 1000 + rank as i64,
        host: format!("node-{}", rank / 8),
        identity: Identity {
            job_id: Some("job".into()),
            rank,
            local_rank: rank % 8,
            world_size: ranks.max(1),
        },
        device_id: 0,
    });
    let mut counters = Counters::UNKNOWN;
    for counter in [Counter::Allocated, Counter::Reserved, Counter::Used, Counter::Total] {
        counters.set(counter, Some(80 << 30));
    }
    let metadata = Arc::new(Metadata::read(Record::new(), "stormlog.cuda_tracker", &counters).unwrap());
    for number in 0..events {
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let spike = if number % 50_000 == 25_000 { 3072 } else { 0 };
        counters.set(Counter::Allocated, Some((9000 + number % 512) * MIB));
        counters.set(Counter::Reserved, Some(10_240 * MIB));
        counters.set(Counter::Used, Some((10_240 + 5120 + noise + spike) * MIB));
        recording.observe(&Event {
            timestamp_ns: 1_700_000_000_000_000_000 + number * 100_000_000,
            counters,
            context: None,
            head: Arc::clone(&head),
            metadata: Arc::clone(&metadata),
        });
    }
}

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |value| value.trim().to_owned())
}
