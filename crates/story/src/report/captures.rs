//! The stacks of the processes that matter, read from their captures. What is left out is named.

use std::path::{Path, PathBuf};

use stormlog_heap::DeviceStats;
use stormlog_heap_report::diff::diff;
use stormlog_heap_report::{
    CaptureFile, Chosen, HeapQuery, MOMENTS, PageOptions, Reading, captures, graphs, is_quick,
};
use stormlog_model::memory::{Memory, Selection};
use stormlog_render::flamegraph::FlameGraph;
use stormlog_render::report::{Graph, Parts};

/// Captures whose stacks are in a page, the main process's first and then those with the highest peaks.
const MOST_CAPTURES: usize = 6;

/// The captures of some paths.
#[derive(Default)]
pub(super) struct Captures {
    pub(super) read: Vec<ReadCapture>,
    /// Sentences about those that are not.
    pub(super) notes: Vec<String>,
}

/// One capture: a graph of each memory.
pub(super) struct ReadCapture {
    pub(super) pid: Option<u32>,
    pub(super) program: String,
    /// When it began and ended, nanoseconds since 1970; `None` where it does not say.
    pub(super) span_ns: Option<(u64, u64)>,
    pub(super) graphs: Vec<(Memory, FlameGraph)>,
    /// What the memory of each device is for, at the end of the program's own code.
    pub(super) purposes: Vec<(String, Parts)>,
}

impl Captures {
    pub(super) fn at(paths: &[PathBuf]) -> Self {
        let of = |path: &PathBuf| captures(path).ok();
        let mut found: Vec<CaptureFile> = paths.iter().filter_map(of).flatten().collect();
        found.sort_by_key(|one| (!one.main, std::cmp::Reverse(one.peak_bytes)));
        let mut all = Captures::default();
        if found.len() > MOST_CAPTURES {
            let left = found.len() - MOST_CAPTURES;
            all.notes.push(format!(
                "The stacks of {left} more processes are not in this page; see one with `stormlog flamegraph --pid`."
            ));
        }
        for capture in found.into_iter().take(MOST_CAPTURES) {
            let path = capture.path.clone();
            match ReadCapture::of(capture) {
                Ok(read) => all.read.push(read),
                // A file that the user named and that is not a capture is telemetry; its reader reports what is wrong with it.
                Err(_) if paths.contains(&path) => {}
                Err(error) => all.notes.push(error),
            }
        }
        all
    }
}

impl ReadCapture {
    fn of(capture: CaptureFile) -> Result<Self, String> {
        let mut reading = read(&capture.path)?;
        let (began, length_us) = (reading.started_at_ns(), reading.heap.duration_us());
        let span_ns = (began > 0).then(|| (began, began.saturating_add(length_us.saturating_mul(1000))));
        let options = PageOptions { inverted: false, source: false };
        let made = graphs(&mut reading, |answer| answer, options).map_err(|error| error.to_string())?;
        let one = |(selection, graph)| match selection {
            Selection::One(memory) => Some((memory, graph)),
            Selection::All => None,
        };
        let graphs = made.into_iter().filter_map(one).collect();
        let purposes = reading.stats().devices.iter().filter_map(purpose).collect();
        Ok(ReadCapture { pid: capture.pid, program: capture.program, span_ns, graphs, purposes })
    }
}

/// A device and its categories, the largest first.
fn purpose(device: &DeviceStats) -> Option<(String, Parts)> {
    let mut parts: Parts = device
        .categories
        .iter()
        .map(|(name, amount)| ((*name).replace('_', " "), Some(amount.bytes)))
        .collect();
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    (!parts.is_empty()).then(|| (format!("{} at the end", device.device), parts))
}

fn read(path: &Path) -> Result<Reading, String> {
    let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
    Reading::with(chosen, HeapQuery::Peak, MOMENTS, is_quick).map_err(|error| error.to_string())
}

/// What `graph` holds at its peak more and less than `past` at its own.
pub(super) fn difference(graph: &Graph, past: &FlameGraph, name: &str) -> Graph {
    let both = diff(&past.held, &graph.flame.held);
    let flame = FlameGraph {
        name: graph.flame.name.clone(),
        title: format!("{}: what changed since {name}", graph.memory),
        held: both.held,
        before: Some(both.before),
        ..FlameGraph::default()
    };
    Graph { is_difference: true, flame, ..graph.clone() }
}

/// The most that was held at one moment.
pub(super) fn peak(graph: &FlameGraph) -> u64 {
    graph.strip.as_ref().and_then(|strip| strip.heap_bytes.iter().max().copied()).unwrap_or(0)
}
