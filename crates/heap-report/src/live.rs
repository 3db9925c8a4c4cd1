//! What each line of the program held, over time, until the program's own code had ended: what a rule needs to tell growth from a working set.
//! Lines that gave everything back are here too. What a line keeps of a module that it imports is there from the start: an import takes as long as the
//! machine is busy, and is not growth. Must never judge.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, NodeId, Origin, StackTree};

use crate::reading::HeapQueryResult;
use crate::rows::CodeLocation;

/// A line and what it held.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLine {
    /// The line of the program's own code that allocates.
    pub place: CodeLocation,
    /// The line that calls it.
    pub caller: Option<CodeLocation>,
    /// Microseconds since the start, and the bytes alive then.
    pub live: Vec<(u64, u64)>,
    /// Allocations alive when it held most.
    pub count: u64,
    /// Mean size of the blocks alive then of the stack that holds most of the line: one line may make an array, and import a module on its way.
    pub block_bytes: u64,
}

impl LiveLine {
    fn most(&self) -> u64 {
        self.live.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Changes {
    /// Bytes and allocations that came (and went) at a moment.
    at: BTreeMap<u32, (i128, i128)>,
    by_node: FxHashMap<NodeId, u64>,
}

/// The `most` lines that held most at some moment, the largest first. Empty where the capture does not know when memory came.
#[must_use]
pub fn live_lines(answer: &HeapQueryResult, most: usize) -> Vec<LiveLine> {
    let tree = &answer.held.tree;
    let mut lines: FxHashMap<&Frame, Changes> = FxHashMap::default();
    let mut imports: FxHashMap<NodeId, bool> = FxHashMap::default();
    for life in &answer.lives {
        let Some(frame) = tree.responsible_frame(life.node) else { continue };
        let line = lines.entry(frame).or_default();
        let is_kept = life.death as usize > answer.end;
        let is_import =
            is_kept && *imports.entry(life.node).or_insert_with(|| is_import(tree, life.node, frame));
        let (bytes, count) = (i128::from(life.weight.bytes), i128::from(life.weight.count));
        let come = line.at.entry(if is_import { 0 } else { life.birth }).or_default();
        (come.0, come.1) = (come.0 + bytes, come.1 + count);
        let gone = line.at.entry(life.death).or_default();
        (gone.0, gone.1) = (gone.0 - bytes, gone.1 - count);
        let of_node = line.by_node.entry(life.node).or_default();
        *of_node = of_node.saturating_add(life.weight.bytes);
    }
    let mut found: Vec<(LiveLine, Largest)> =
        lines.into_iter().map(|(frame, line)| live_line(answer, frame, &line)).collect();
    found.sort_by(|(a, _), (b, _)| {
        let name = |line: &LiveLine| (line.place.file.clone(), line.place.line, line.place.function.clone());
        b.most().cmp(&a.most()).then_with(|| name(a).cmp(&name(b)))
    });
    found.truncate(most);
    with_block_sizes(answer, found)
}

/// The stack that holds most of a line, and the moment at which the line held most.
struct Largest {
    node: NodeId,
    at: u32,
}

fn with_block_sizes(answer: &HeapQueryResult, mut found: Vec<(LiveLine, Largest)>) -> Vec<LiveLine> {
    let lines = found.iter().enumerate();
    let of_node: FxHashMap<NodeId, (usize, u32)> =
        lines.map(|(line, (_, largest))| (largest.node, (line, largest.at))).collect();
    let mut sums = vec![(0_u64, 0_u64); found.len()];
    for life in &answer.lives {
        let Some((line, at)) = of_node.get(&life.node) else { continue };
        if let Some((bytes, count)) = sums.get_mut(*line).filter(|_| life.birth <= *at && *at < life.death) {
            *bytes = bytes.saturating_add(life.weight.bytes);
            *count = count.saturating_add(life.weight.count);
        }
    }
    for ((line, _), (bytes, count)) in found.iter_mut().zip(sums) {
        line.block_bytes = bytes / count.max(1);
    }
    found.into_iter().map(|(line, _)| line).collect()
}

/// Whether the import system is between the responsible frame of a stack and the allocation. A program that is itself imported is not meant: its
/// own frames are deeper than the import.
fn is_import(tree: &StackTree, node: NodeId, responsible: &Frame) -> bool {
    let inner = tree.stack(node).take_while(|frame| *frame != responsible);
    inner.into_iter().any(|frame| tree.origin(frame) == Origin::Import)
}

fn live_line(answer: &HeapQueryResult, frame: &Frame, line: &Changes) -> (LiveLine, Largest) {
    let tree = &answer.held.tree;
    let mut changes = line.at.iter().peekable();
    let (mut bytes, mut count) = (0_i128, 0_i128);
    let (mut highest, mut at) = ((0, 0), 0);
    let moments = answer.moments.iter().zip(0_u32..).take(answer.end + 1);
    let live = moments.map(|(moment, number)| {
        while let Some((_, (came, allocations))) = changes.next_if(|(at, _)| **at <= number) {
            (bytes, count) = (bytes + came, count + allocations);
        }
        if (bytes, count) > highest {
            (highest, at) = ((bytes, count), number);
        }
        (moment.time_us, u64::try_from(bytes).unwrap_or(0))
    });
    let live = live.collect();
    let largest = line.by_node.iter().max_by_key(|(node, bytes)| (**bytes, std::cmp::Reverse(**node)));
    let node = largest.map_or(0, |(node, _)| *node);
    let callers = tree.stack(node).skip_while(|other| *other != frame).skip(1);
    let caller = callers.filter(|frame| tree.origin(frame) == Origin::User).map(CodeLocation::from).next();
    let count = u64::try_from(highest.1).unwrap_or(0);
    (LiveLine { place: CodeLocation::from(frame), caller, live, count, block_bytes: 0 }, Largest { node, at })
}

#[cfg(test)]
mod tests {
    use stormlog_heap::Lifetime;
    use stormlog_model::stacks::{FrameKind, StackProfile, Weight};

    use super::*;
    use crate::reading::HeapPoint;

    /// The curve of the one line of a program; each stack, the outermost frame's file first, comes at one of ten moments and stays.
    fn live(stacks: &[&[&str]]) -> Vec<u64> {
        let stays = (10, Weight { bytes: 10, count: 1 });
        let stacks: Vec<_> = stacks.iter().map(|files| (*files, stays)).collect();
        only_line(&stacks).live.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// The one line of a program; each stack comes at one of ten moments and goes at another.
    fn only_line(stacks: &[(&[&str], (u32, Weight))]) -> LiveLine {
        let mut tree = StackTree::default();
        let mut lives = Vec::new();
        for (birth, (files, (death, weight))) in (0..).zip(stacks) {
            let mut node = 0;
            for file in *files {
                let file = (*file).to_owned();
                tree.frames.push(Frame { function: "f".into(), file, line: 1, kind: FrameKind::Python });
                node = tree.push(node, tree.frames.len() as u32 - 1);
            }
            lives.push(Lifetime { node, thread: 0, birth, death: *death, weight: *weight });
        }
        let moments = (0..10).map(|at| HeapPoint { time_us: at, bytes: 0, change: at }).collect();
        let held = StackProfile { tree, rows: Vec::new(), threads: Vec::new() };
        let answer = HeapQueryResult { held, allocators: Vec::new(), lives, moments, end: 9 };
        let mut lines = live_lines(&answer, 5);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    #[test]
    fn size_of_blocks_is_of_the_largest_stack_when_the_line_held_most() {
        let (import, numpy) = ("<frozen importlib._bootstrap>", "/v/lib/python3.11/site-packages/numpy/a.py");
        let array = Weight { bytes: 90_000, count: 1 };
        let (array, small) = ((10, array), (10, Weight { bytes: 2_000, count: 250 }));
        let line = only_line(&[(&["/p/main.py", numpy], array), (&["/p/main.py", import, numpy], small)]);
        assert_eq!((line.count, line.block_bytes), (251, 90_000));
        // A list that grows is allocated again and again; what was freed since does not count.
        let freed = (1, Weight { bytes: 80_000, count: 1 });
        let objects = (10, Weight { bytes: 100_000, count: 2_000 });
        assert_eq!(only_line(&[(&["/p/main.py"], freed), (&["/p/main.py"], objects)]).block_bytes, 50);
    }

    #[test]
    fn import_is_held_from_the_start_and_what_an_imported_program_keeps_is_not() {
        let (import, torch) = ("<frozen importlib._bootstrap>", "/v/lib/python3.11/site-packages/torch/a.py");
        let (own, imported) = (["/p/main.py", torch], ["/p/main.py", import, torch]);
        assert_eq!(live(&[&own, &own, &own])[..4], [10, 20, 30, 30], "calls");
        assert_eq!(live(&[&imported, &imported, &imported])[..4], [30, 30, 30, 30], "an import");
        let program = [torch, import, "/p/main.py"];
        assert_eq!(
            live(&[&program, &program, &program])[..4],
            [10, 20, 30, 30],
            "a program that is imported"
        );
    }
}
