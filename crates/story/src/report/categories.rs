//! The lane of a device's memory by what it is for, over time. By the stacks alone: which of the blocks of a backward pass are gradients is known at the end only
//! (`Process::parts`), so both are one line here. Must add up to the device's memory at every moment.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stormlog_heap::category_of_node;
use stormlog_model::gpu_category::Category;
use stormlog_render::report::{Graph, Lane, Line, LineKind};

/// Lines of a lane; smaller categories are one line.
const MOST_LINES: usize = 6;
const REST: &str = "other";
const OF_A_BACKWARD_PASS: &str = "gradients and backward temporaries";

/// The lane of a graph of a device; `None` where it is not known when memory came and went, or where one category has it all.
pub(super) fn lane(graph: &Graph) -> Option<Lane> {
    let (strip, lives) = (graph.flame.strip.as_ref()?, graph.flame.spans.as_ref()?);
    let mut names: FxHashMap<u32, &'static str> = FxHashMap::default();
    let mut changes: BTreeMap<&'static str, Vec<i128>> = BTreeMap::new();
    for life in lives {
        let tree = &graph.flame.held.tree;
        let name = *names.entry(life.node).or_insert_with(|| word(category_of_node(tree, life.node)));
        let change = changes.entry(name).or_insert_with(|| vec![0; strip.time_ms.len() + 1]);
        for (at, bytes) in [(life.birth, i128::from(life.bytes)), (life.death, -i128::from(life.bytes))] {
            if let Some(change) = change.get_mut(at as usize) {
                *change += bytes;
            }
        }
    }
    let curves = changes.into_iter().map(|(name, changes)| (name.to_owned(), curve(&changes)));
    of_curves(graph, &strip.time_ms, curves.collect())
}

/// The lane of curves by category, whose moments are milliseconds since the graph began.
pub(super) fn of_curves(graph: &Graph, time_ms: &[u64], mut curves: Vec<(String, Vec<u64>)>) -> Option<Lane> {
    if curves.len() < 2 {
        return None;
    }
    curves.sort_by_key(|(name, bytes)| (std::cmp::Reverse(bytes.iter().max().copied()), name.clone()));
    if curves.len() > MOST_LINES {
        let rest = curves.split_off(MOST_LINES - 1);
        let sum = (0..time_ms.len()).map(|at| {
            rest.iter()
                .filter_map(|(_, bytes)| bytes.get(at))
                .fold(0, |sum: u64, more| sum.saturating_add(*more))
        });
        curves.push((REST.to_owned(), sum.collect()));
    }
    let time: Vec<u64> = time_ms.iter().map(|at| graph.offset_ms.saturating_add(*at)).collect();
    let line = |(name, mut bytes): (String, Vec<u64>)| {
        bytes.truncate(time.len());
        let name = name.replace('_', " ");
        Line { name, kind: LineKind::Main, time: time.clone(), bytes }
    };
    Some(Lane {
        process: graph.process,
        memory: format!("{} by category", graph.memory),
        title: format!("GPU memory by category, {}", graph.memory),
        lines: curves.into_iter().map(line).collect(),
        ..Lane::default()
    })
}

fn word(category: Category) -> &'static str {
    match category {
        Category::BackwardTemporaries | Category::Gradients => OF_A_BACKWARD_PASS,
        other => other.name(),
    }
}

/// Levels of changes.
fn curve(changes: &[i128]) -> Vec<u64> {
    let levels = changes.iter().scan(0_i128, |level, change| {
        *level += change;
        Some(u64::try_from(*level).unwrap_or(0))
    });
    levels.collect()
}

#[cfg(test)]
mod tests {
    use stormlog_model::stacks::{Frame, FrameKind};
    use stormlog_render::flamegraph::{FlameGraph, Lifetime, Strip};

    use super::*;

    #[test]
    fn lines_of_the_categories_add_up_to_the_memory_of_the_device() {
        let mut flame = FlameGraph::default();
        let stacks =
            [("torch/nn/modules/linear.py", "forward"), ("torch/optim/adam.py", "step"), ("own.py", "f")];
        for (file, function) in stacks {
            let file = format!("/v/lib/python3.11/site-packages/{file}");
            flame.held.tree.frames.push(Frame {
                function: function.into(),
                file,
                line: 1,
                kind: FrameKind::Python,
            });
            flame.held.tree.push(0, flame.held.tree.frames.len() as u32 - 1);
        }
        let life = |node, birth, death, bytes| Lifetime { node, thread: 0, birth, death, bytes, count: 1 };
        flame.spans = Some(vec![life(1, 0, 2, 5), life(2, 1, 3, 7), life(3, 2, 3, 1)]);
        flame.strip =
            Some(Strip { time_ms: vec![0, 10, 20], heap_bytes: vec![5, 12, 8], ..Strip::default() });
        let graph = Graph { memory: "cuda:0".into(), offset_ms: 100, flame, ..Graph::default() };
        let found = lane(&graph).unwrap();
        assert_eq!(found.title, "GPU memory by category, cuda:0");
        assert_eq!(found.lines[0].time, [100, 110, 120]);
        let sums: Vec<u64> = (0..3).map(|at| found.lines.iter().map(|line| line.bytes[at]).sum()).collect();
        assert_eq!(sums, [5, 12, 8], "{found:?}");
        assert!(found.lines.iter().any(|line| line.name == "optimizer state"), "{found:?}");
    }
}
