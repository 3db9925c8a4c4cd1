//! Rows for scripts: `{"stack": [{"function", "file", "line"}], "own_bytes", "total_bytes", "count"}`. The names are a promise.
//!
//! A stack is written the innermost frame first; `count` belongs to `own_bytes`, so that both add up to the whole.

use rustc_hash::FxHashMap;
use serde::Serialize;
use stormlog_model::stacks::{Frame, Holdings, NodeId, Weight};

/// A frame in a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// Function.
    pub function: String,
    /// File.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
}

impl From<&Frame> for Place {
    fn from(frame: &Frame) -> Self {
        Place { function: frame.function.clone(), file: frame.file.clone(), line: frame.line }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its frames, the innermost first.
    pub stack: Vec<Place>,
    /// Held right there.
    pub own_bytes: u64,
    /// Held there and in what it called.
    pub total_bytes: u64,
    /// Allocations of the own bytes.
    pub count: u64,
}

/// What one line, function or stack has to be the same as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A line of a file.
    Line,
    /// A function.
    Function,
    /// A whole stack.
    Stack,
}

/// Every stack that holds something, the largest first.
#[must_use]
pub fn stacks(held: &Holdings) -> Vec<Row> {
    let (own, total) = held.own_and_total();
    let mut nodes: Vec<NodeId> =
        (0..held.tree.len() as NodeId).filter(|node| own[*node as usize] != Weight::default()).collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(own[*node as usize].bytes), *node));
    let row = |node: NodeId| Row {
        stack: held.tree.stack(node).map(Place::from).collect(),
        own_bytes: own[node as usize].bytes,
        total_bytes: total[node as usize].bytes,
        count: own[node as usize].count,
    };
    nodes.into_iter().map(row).collect()
}

/// By line or function, the largest own share first; recursion counts once.
#[must_use]
pub fn grouped(held: &Holdings, by: By) -> Vec<Row> {
    if by == By::Stack {
        return stacks(held);
    }
    let (own, total) = held.own_and_total();
    let mut ids: FxHashMap<Place, u32> = FxHashMap::default();
    let mut rows: Vec<Row> = Vec::new();
    let groups: Vec<u32> = held
        .tree
        .frames
        .iter()
        .map(|frame| {
            let mut place = Place::from(frame);
            if by == By::Function {
                place.line = 0;
            }
            *ids.entry(place).or_insert_with_key(|place| {
                rows.push(Row { stack: vec![place.clone()], own_bytes: 0, total_bytes: 0, count: 0 });
                rows.len() as u32 - 1
            })
        })
        .collect();
    for node in 1..held.tree.len() {
        let group = groups[held.tree.frame[node] as usize];
        let row = &mut rows[group as usize];
        row.own_bytes = row.own_bytes.saturating_add(own[node].bytes);
        row.count = row.count.saturating_add(own[node].count);
        if total[node] != Weight::default() && is_outermost(held, &groups, node) {
            row.total_bytes = row.total_bytes.saturating_add(total[node].bytes);
        }
    }
    if own[0] != Weight::default() {
        rows.push(Row {
            stack: Vec::new(),
            own_bytes: own[0].bytes,
            total_bytes: own[0].bytes,
            count: own[0].count,
        });
    }
    rows.retain(|row| row.own_bytes > 0 || row.total_bytes > 0 || row.count > 0);
    rows.sort_by(|one, other| {
        let key = |row: &Row| (row.own_bytes, row.total_bytes);
        key(other).cmp(&key(one)).then_with(|| name(one).cmp(&name(other)))
    });
    rows
}

fn name(row: &Row) -> Option<(&str, &str, u32)> {
    row.stack.first().map(|place| (place.file.as_str(), place.function.as_str(), place.line))
}

fn is_outermost(held: &Holdings, groups: &[u32], node: usize) -> bool {
    let group = groups[held.tree.frame[node] as usize];
    let mut at = held.tree.parent[node] as usize;
    while at != 0 {
        if groups[held.tree.frame[at] as usize] == group {
            return false;
        }
        at = held.tree.parent[at] as usize;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::{FrameKind, Holding, StackTree};

    /// main:3 (5) → walk:8 (10) → walk:8 (30), and 2 bytes nobody knows the stack of.
    fn held() -> Holdings {
        let mut tree = StackTree::new();
        for (function, line) in [("main", 3), ("walk", 8), ("walk", 9)] {
            tree.frames.push(Frame {
                function: function.into(),
                file: "a.py".into(),
                line,
                kind: FrameKind::Python,
            });
        }
        let main = tree.push(0, 0);
        let walk = tree.push(main, 1);
        let again = tree.push(walk, 2);
        let row = |node, bytes| Holding { node, thread: 0, bytes, count: 1 };
        let rows = vec![row(main, 5), row(walk, 10), row(again, 30), row(0, 2)];
        Holdings { rows, tree, threads: vec![] }
    }

    #[test]
    fn own_shares_add_up_in_every_grouping() {
        for by in [By::Line, By::Function, By::Stack] {
            let rows = grouped(&held(), by);
            assert_eq!(rows.iter().map(|row| row.own_bytes).sum::<u64>(), 47, "{by:?}");
            assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 4, "{by:?}");
        }
    }

    #[test]
    fn recursion_counts_once() {
        let rows = grouped(&held(), By::Function);
        assert_eq!(
            (rows[0].stack[0].function.as_str(), rows[0].own_bytes, rows[0].total_bytes),
            ("walk", 40, 40)
        );
        let stacks = stacks(&held());
        assert_eq!(stacks[0].stack[0].line, 9, "the innermost first");
        assert_eq!(stacks[0].stack[2].function, "main");
    }
}
