//! Allocator snapshots of PyTorch that were given as paths: memory over time, by stack and by category, of each device. What cannot be read is a sentence.

use std::path::{Path, PathBuf};

use stormlog_model::format_bytes;
use stormlog_render::flamegraph::{FlameGraph, Lifetime, Strip};
use stormlog_torch::{Recording, ShownMoment, StacksOverTime, is_snapshot, load, stacks_over_time};

/// Moments of the axis of time.
const MOMENTS: usize = 400;

/// The snapshots at some paths.
#[derive(Default)]
pub(super) struct Snapshots {
    pub(super) read: Vec<ReadSnapshot>,
    /// What could not be read.
    pub(super) notes: Vec<String>,
}

/// One device of a snapshot.
pub(super) struct ReadSnapshot {
    /// The file's name.
    pub(super) name: String,
    /// `cuda:0`.
    pub(super) memory: String,
    /// When its trace begins and ends; `None` of a trace without times.
    pub(super) span_ns: Option<(u64, u64)>,
    pub(super) peak_bytes: u64,
    pub(super) flame: FlameGraph,
    pub(super) reserved: Vec<u64>,
    pub(super) categories: Vec<(String, Vec<u64>)>,
}

impl Snapshots {
    pub(super) fn at(paths: &[PathBuf]) -> Self {
        let mut found = Snapshots::default();
        for path in paths.iter().filter(|path| is_snapshot(path)) {
            match load(path) {
                Ok(snapshot) => {
                    for recording in Recording::all(&snapshot) {
                        found.read.extend(ReadSnapshot::of(path, &recording));
                    }
                }
                Err(error) => found.notes.push(format!("{}: {error}", path.display())),
            }
        }
        found
    }
}

impl ReadSnapshot {
    /// `None` of a device that holds nothing.
    fn of(path: &Path, recording: &Recording<'_>) -> Option<Self> {
        let StacksOverTime { moments, held, lives, categories } = stacks_over_time(recording, MOMENTS);
        let peak_bytes =
            moments.iter().map(|moment| moment.totals.allocated).max().filter(|most| *most > 0)?;
        let memory = format!("cuda:{}", recording.device);
        let times: Vec<u64> = moments.iter().filter_map(|moment| moment.time_us).collect();
        let span_us = times.first().copied().zip(times.last().copied());
        // Without times the events are the axis.
        let time_ms = |(index, moment): (usize, &ShownMoment)| match (moment.time_us, span_us) {
            (Some(at), Some((first, _))) => (at / 1000).saturating_sub(first / 1000),
            _ => index as u64,
        };
        let name = super::name_of(path);
        let strip = Strip {
            time_ms: moments.iter().enumerate().map(time_ms).collect(),
            heap_bytes: moments.iter().map(|moment| moment.totals.allocated).collect(),
            rss_bytes: None,
            names: ["allocated", "reserved"],
        };
        let spans = lives.iter().map(|life| Lifetime {
            node: life.node,
            thread: 0,
            birth: life.birth,
            death: life.death,
            bytes: life.bytes,
            count: life.count,
        });
        let flame = FlameGraph {
            name: memory.clone(),
            title: format!("{name}: {memory} memory at its peak"),
            facts: vec![("peak".to_owned(), format_bytes(peak_bytes))],
            held,
            strip: Some(strip),
            spans: Some(spans.collect()),
            ..FlameGraph::default()
        };
        Some(ReadSnapshot {
            name,
            memory,
            span_ns: span_us.map(|(from, to)| (from.saturating_mul(1000), to.saturating_mul(1000))),
            peak_bytes,
            flame,
            reserved: moments.iter().map(|moment| moment.totals.reserved).collect(),
            categories: categories
                .into_iter()
                .map(|(category, bytes)| (category.name().to_owned(), bytes))
                .collect(),
        })
    }
}
