//! Rows for scripts: `{"stack": [{"function", "file", "line"}], "own_bytes", "total_bytes", "count"}`. The names are a promise.
//!
//! A stack is written the innermost frame first; `count` belongs to `own_bytes`, so that both add up to the whole. It is null where a tool did not count.

use rustc_hash::FxHashMap;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use stormlog_model::stacks::{Entry, Frame, NodeId, StackProfile, Weight};

/// A frame in a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct CodeLocation {
    /// Function.
    pub function: String,
    /// File.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
}

impl From<&Frame> for CodeLocation {
    fn from(frame: &Frame) -> Self {
        CodeLocation { function: frame.function.clone(), file: frame.file.clone(), line: frame.line }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its frames, the innermost first.
    pub stack: Vec<CodeLocation>,
    /// Held right there.
    pub own_bytes: u64,
    /// Held there and in what it called.
    pub total_bytes: u64,
    /// Allocations of the own bytes.
    pub count: u64,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_struct("Row", 4)?;
        row.serialize_field("stack", &self.stack)?;
        row.serialize_field("own_bytes", &self.own_bytes)?;
        row.serialize_field("total_bytes", &self.total_bytes)?;
        row.serialize_field("count", &Weight { bytes: self.own_bytes, count: self.count }.counted())?;
        row.end()
    }
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
pub fn stacks(held: &StackProfile) -> Vec<Row> {
    let (own, total) = held.own_and_total();
    let mut nodes: Vec<NodeId> =
        (0..held.tree.len() as NodeId).filter(|node| own[*node as usize] != Weight::default()).collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(own[*node as usize].bytes), *node));
    let row = |node: NodeId| Row {
        stack: held.tree.stack(node).map(CodeLocation::from).collect(),
        own_bytes: own[node as usize].bytes,
        total_bytes: total[node as usize].bytes,
        count: own[node as usize].count,
    };
    nodes.into_iter().map(row).collect()
}

/// By line or function, the largest own share first; recursion counts once.
#[must_use]
pub fn grouped(held: &StackProfile, by: By) -> Vec<Row> {
    if by == By::Stack {
        return stacks(held);
    }
    let entries = if by == By::Function { held.by_function() } else { held.by_line() };
    let mut rows: Vec<Row> = entries
        .iter()
        .map(|Entry { frame, own, total }| Row {
            stack: vec![CodeLocation::from(frame)],
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
    sort(&mut rows);
    rows
}

/// By line or function as statistics have it: `own_bytes` is what the stacks hold whose responsible frame it is, so that memory which a library
/// takes for the program is the program's. Whole stacks as they are.
#[must_use]
pub fn by_responsible_frame(held: &StackProfile, by: By) -> Vec<Row> {
    let mut rows = grouped(held, by);
    if by == By::Stack {
        return rows;
    }
    let place = |frame: &Frame| CodeLocation {
        line: if by == By::Function { 0 } else { frame.line },
        ..CodeLocation::from(frame)
    };
    let (weights, _) = held.own_and_total();
    let mut own: FxHashMap<Vec<CodeLocation>, Weight> = FxHashMap::default();
    for (node, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != Weight::default()) {
        let frame = held.tree.responsible_frame(node as NodeId);
        *own.entry(frame.map(place).into_iter().collect()).or_default() += *weight;
    }
    for row in &mut rows {
        let Weight { bytes, count } = own.remove(&row.stack).unwrap_or_default();
        (row.own_bytes, row.count) = (bytes, count);
    }
    sort(&mut rows);
    rows
}

fn sort(rows: &mut [Row]) {
    rows.sort_by(|one, other| {
        let key = |row: &Row| (row.own_bytes, row.total_bytes);
        key(other).cmp(&key(one)).then_with(|| name(one).cmp(&name(other)))
    });
}

fn name(row: &Row) -> Option<(&str, &str, u32)> {
    row.stack.first().map(|place| (place.file.as_str(), place.function.as_str(), place.line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::{FrameKind, Holding, StackTree};

    /// main:3 (5) → walk:8 (10) → walk:8 (30), and 2 bytes without a stack.
    fn held() -> StackProfile {
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
        StackProfile { rows, tree, threads: vec![] }
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
    fn memory_that_a_library_takes_is_the_programs() {
        let mut held = held();
        held.tree.frames[2].file = "/v/lib/python3.11/site-packages/numpy/core.py".into();
        for by in [By::Line, By::Function] {
            let rows = by_responsible_frame(&held, by);
            let own: Vec<(&str, u64, u64)> = rows
                .iter()
                .map(|row| {
                    let function = row.stack.first().map_or("", |place| place.function.as_str());
                    (function, row.own_bytes, row.total_bytes)
                })
                .collect();
            assert_eq!(own, [("walk", 40, 40), ("main", 5, 45), ("", 2, 2), ("walk", 0, 30)], "{by:?}");
            assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 4, "{by:?}");
        }
        assert_eq!(by_responsible_frame(&held, By::Stack), stacks(&held));
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
