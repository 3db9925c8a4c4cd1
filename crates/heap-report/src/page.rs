//! The flame graph page of a reading.

use stormlog_model::memory::Selection;
use stormlog_render::flamegraph::{self, FlameGraph, Lifetime, Strip};

use crate::error::ViewError;
use crate::notes::rss_at;
use crate::reading::{HeapPoint, HeapQueryResult, Reading};
use crate::source;

/// Moments the plot of memory over time has, unless another number is requested.
pub const MOMENTS: usize = 200;
/// A second reading of more allocations than this takes a while: it is made when asked for.
const QUICK: u64 = 4_000_000;

/// Whether a second reading, for the spans of the plot, is hardly noticed.
#[must_use]
pub fn is_quick(heap: &stormlog_heap::Heap) -> bool {
    heap.allocations() <= QUICK
}

/// How the page starts.
#[derive(Debug, Clone, Copy)]
pub struct PageOptions {
    /// With the leaves on top.
    pub inverted: bool,
    /// With source lines from the disk.
    pub source: bool,
}

/// One self-contained page that shows what `shape` makes of the answers of `reading`: of the selected memory first, and a switch to each other
/// memory of the capture.
pub fn flamegraph(
    reading: &mut Reading,
    shape: impl Fn(HeapQueryResult) -> HeapQueryResult,
    options: PageOptions,
) -> Result<String, ViewError> {
    let selected = reading.heap.selection();
    let graphs = graphs(reading, shape, options)?;
    let start = graphs.iter().position(|(selection, _)| *selection == selected).unwrap_or(0);
    let graphs: Vec<FlameGraph> = graphs.into_iter().map(|(_, graph)| graph).collect();
    Ok(flamegraph::pages(&graphs, start))
}

/// A graph of each memory of the capture, and of what is selected where that is several.
pub fn graphs(
    reading: &mut Reading,
    shape: impl Fn(HeapQueryResult) -> HeapQueryResult,
    options: PageOptions,
) -> Result<Vec<(Selection, FlameGraph)>, ViewError> {
    let selected = reading.heap.selection();
    let mut selections: Vec<Selection> = reading.heap.memories().into_iter().map(Selection::One).collect();
    if !selections.contains(&selected) {
        selections.insert(0, selected);
    }
    let mut graphs = Vec::new();
    for selection in selections {
        reading.select(selection)?;
        graphs.push((selection, graph(reading, shape(reading.answer()), options)));
    }
    reading.select(selected)?;
    Ok(graphs)
}

fn graph(reading: &Reading, answer: HeapQueryResult, options: PageOptions) -> FlameGraph {
    let HeapQueryResult { held, lives, moments, .. } = answer;
    let source = if options.source { source::lines(&held) } else { Default::default() };
    let spans = lives.iter().map(|life| Lifetime {
        node: life.node,
        thread: life.thread,
        birth: life.birth,
        death: life.death,
        bytes: life.weight.bytes,
        count: life.weight.count,
    });
    FlameGraph {
        name: match reading.heap.selection() {
            Selection::One(memory) => memory.title(),
            Selection::All => "All".to_owned(),
        },
        title: reading.title(),
        subtitle: reading.header(),
        facts: reading.facts(),
        notes: reading.notes(),
        empty: reading.empty(),
        strip: Some(strip(reading, &moments)),
        spans: (!lives.is_empty()).then(|| spans.collect()),
        before: None,
        inverted: options.inverted,
        source,
        held,
    }
}

fn strip(reading: &Reading, moments: &[HeapPoint]) -> Strip {
    let reserved = reading.heap.reserved_curve();
    let is_device = reading.heap.memory().is_device();
    let beside = |moment: &HeapPoint| match is_device {
        true => {
            let after = reserved.partition_point(|point| point.time_us <= moment.time_us);
            after.checked_sub(1).map(|index| reserved[index].max_bytes)
        }
        false => rss_at(&reading.heap, moment.time_us),
    };
    let beside: Vec<Option<u64>> = moments.iter().map(beside).collect();
    Strip {
        time_ms: moments.iter().map(|moment| moment.time_us / 1000).collect(),
        heap_bytes: moments.iter().map(|moment| moment.bytes).collect(),
        rss_bytes: beside.iter().any(Option::is_some).then_some(beside),
        names: if is_device { ["allocated", "reserved"] } else { ["heap", "resident"] },
    }
}

impl Reading {
    /// What a view without a row says.
    #[must_use]
    pub fn empty(&self) -> String {
        if self.heap.has_totals() && self.heap.allocations() == 0 {
            return self.end.nothing().to_owned();
        }
        format!("No memory was {}: there is nothing to show.", self.words())
    }
}
