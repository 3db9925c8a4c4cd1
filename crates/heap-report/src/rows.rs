//! Rows for scripts: `{"stack": [{"function", "file", "line"}], "own_bytes", "total_bytes", "count"}`. The names are a promise.
//!
//! A stack is written the innermost frame first; `count` belongs to `own_bytes`, so that both add up to the whole.

use serde::Serialize;
use stormlog_model::stacks::{Entry, Frame, Holdings, NodeId, Weight};

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
    let entries = if by == By::Function { held.by_function() } else { held.by_line() };
    let mut rows: Vec<Row> = entries
        .iter()
        .map(|Entry { frame, own, total }| Row {
            stack: vec![Place::from(frame)],
            own_bytes: own.bytes,
            total_bytes: total.bytes,
            count: own.count,
        })
        .collect();
    let mut without = Weight::default();
    for row in held.rows.iter().filter(|row| row.node == 0) {
        without += Weight { bytes: row.bytes, count: row.count };
    }
    if without != Weight::default() {
        let Weight { bytes, count } = without;
        rows.push(Row { stack: Vec::new(), own_bytes: bytes, total_bytes: bytes, count });
    }
    rows.sort_by(|one, other| {
        let key = |row: &Row| (row.own_bytes, row.total_bytes);
        key(other).cmp(&key(one)).then_with(|| name(one).cmp(&name(other)))
    });
    rows
}

fn name(row: &Row) -> Option<(&str, &str, u32)> {
    row.stack.first().map(|place| (place.file.as_str(), place.function.as_str(), place.line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::{FrameKind, Holding, StackTree};

    /// main:3 (5) → walk:8 (10) → walk:8 (30), and 2 bytes without a stack.
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
