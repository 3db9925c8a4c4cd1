//! The flame graph page of a reading.

use stormlog_render::flamegraph::{self, FlameGraph, Lifetime, Strip};

use crate::ask::{Answer, Moment, Reading};
use crate::notes::rss_at;
use crate::source;

/// Moments the plot of memory over time has, unless somebody wants other.
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

/// One self-contained page that shows an answer of `reading`.
#[must_use]
pub fn flamegraph(reading: &Reading, answer: Answer, options: PageOptions) -> String {
    let Answer { held, lives, moments, .. } = answer;
    let source = if options.source { source::lines(&held) } else { Default::default() };
    let spans = lives.iter().map(|life| Lifetime {
        node: life.node,
        thread: life.thread,
        birth: life.birth,
        death: life.death,
        bytes: life.weight.bytes,
        count: life.weight.count,
    });
    let graph = FlameGraph {
        title: format!("{}: memory {}", reading.program(), reading.words()),
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
    };
    flamegraph::page(&graph)
}

fn strip(reading: &Reading, moments: &[Moment]) -> Strip {
    let rss: Vec<Option<u64>> = moments.iter().map(|moment| rss_at(&reading.heap, moment.time_us)).collect();
    Strip {
        time_ms: moments.iter().map(|moment| moment.time_us / 1000).collect(),
        heap_bytes: moments.iter().map(|moment| moment.bytes).collect(),
        rss_bytes: rss.iter().any(Option::is_some).then_some(rss),
    }
}

impl Reading {
    /// What a view without a row says.
    #[must_use]
    pub fn empty(&self) -> String {
        if self.heap.has_totals() && self.heap.allocations() == 0 {
            return self.end.nothing().to_owned();
        }
        format!("No memory was {}: nothing to show here, and nothing to worry about.", self.words())
    }
}
