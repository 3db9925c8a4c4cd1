//! Makes graphs small enough for a page: fewer moments, fewer stacks. Must never change what lived at a moment that stays.

use std::borrow::Cow;

use crate::flamegraph::{FlameGraph, Lifetime, Limits, Strip};

/// From everything that a page can draw to what fits beside anything.
pub(super) const STEPS: [Limits; 7] = [
    Limits { nodes: 60_000, moments: usize::MAX, share: 1e-6 },
    Limits { nodes: 20_000, moments: 200, share: 1e-5 },
    Limits { nodes: 8_000, moments: 120, share: 1e-4 },
    Limits { nodes: 3_000, moments: 60, share: 5e-4 },
    Limits { nodes: 1_000, moments: 40, share: 2e-3 },
    Limits { nodes: 300, moments: 24, share: 5e-3 },
    Limits { nodes: 100, moments: 12, share: 1e-2 },
];

/// The graph with at most about `most` moments: evenly chosen ones, the highest and the last.
pub(super) fn coarse(graph: &FlameGraph, most: usize) -> Cow<'_, FlameGraph> {
    let (Some(strip), Some(spans)) = (&graph.strip, &graph.spans) else { return Cow::Borrowed(graph) };
    let count = strip.time_ms.len();
    if count <= most || most < 2 {
        return Cow::Borrowed(graph);
    }
    let highest = (0..count).max_by_key(|at| strip.heap_bytes.get(*at)).unwrap_or(0);
    let mut kept: Vec<usize> = (0..most).map(|step| step * (count - 1) / (most - 1)).collect();
    kept.push(highest);
    kept.sort_unstable();
    kept.dedup();
    let pick = |values: &[u64]| kept.iter().filter_map(|at| values.get(*at).copied()).collect();
    let strip = Strip {
        time_ms: pick(&strip.time_ms),
        heap_bytes: pick(&strip.heap_bytes),
        rss_bytes: strip
            .rss_bytes
            .as_ref()
            .map(|values| kept.iter().filter_map(|at| values.get(*at).copied()).collect()),
        names: strip.names,
    };
    // A block is alive at a moment that stays if and only if it was before: each end moves to the next moment that stays.
    let place = |at: u32| kept.partition_point(|kept| *kept < at as usize) as u32;
    let moved =
        spans.iter().map(|life| Lifetime { birth: place(life.birth), death: place(life.death), ..*life });
    let spans = moved.filter(|life| life.birth < life.death).collect();
    Cow::Owned(FlameGraph { strip: Some(strip), spans: Some(spans), ..graph.clone() })
}

/// What of a graph is not in the page, in words.
pub(super) fn left_out(whole: &FlameGraph, shown: &FlameGraph, limits: Limits) -> Vec<String> {
    let mut words = Vec::new();
    let moments = |graph: &FlameGraph| graph.strip.as_ref().map_or(0, |strip| strip.time_ms.len());
    if moments(shown) < moments(whole) {
        words.push(format!("{} of {} moments are in this page", moments(shown), moments(whole)));
    }
    if limits != STEPS[0] {
        words.push(format!("stacks below {} of the memory are drawn as (smaller)", percent(limits.share)));
    }
    words
}

fn percent(share: f64) -> String {
    let digits = format!("{:.4}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}
