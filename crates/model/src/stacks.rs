//! Stacks with what they hold: the one shape every picture, table and export of memory by code is made from.
//!
//! Pure values. A stack is a node of a tree whose parents come before their children, so one pass in either direction adds
//! things up.

use crate::own_code::OwnCode;

pub use crate::by_frame::Entry;
pub use crate::frame::{Frame, FrameKind, Origin, is_library};

/// A node of a [`StackTree`]; 0 is the root, which is not a frame.
pub type NodeId = u32;

/// All stacks of a recording.
#[derive(Debug, Clone)]
pub struct StackTree {
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// Parent of each node: the caller. Always smaller than the node itself; 0 for the root.
    pub parent: Vec<NodeId>,
    /// Frame of each node; meaningless for the root.
    pub frame: Vec<u32>,
    /// Whose code the frames are, beyond what their paths say.
    pub own_code: OwnCode,
}

impl Default for StackTree {
    fn default() -> Self {
        StackTree::new()
    }
}

impl StackTree {
    /// A tree of nothing but its root.
    #[must_use]
    pub fn new() -> Self {
        StackTree { frames: Vec::new(), parent: vec![0], frame: vec![0], own_code: OwnCode::default() }
    }

    /// Nodes, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Whether there is no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Adds a node below `parent`; nothing checks whether there is one already.
    pub fn push(&mut self, parent: NodeId, frame: u32) -> NodeId {
        let node = self.parent.len() as NodeId;
        self.parent.push(parent);
        self.frame.push(frame);
        node
    }

    /// Whose code a frame is.
    #[must_use]
    pub fn origin(&self, frame: &Frame) -> Origin {
        self.own_code.origin(frame)
    }

    /// The frame of a stack that is responsible for what it holds.
    #[must_use]
    pub fn responsible_frame(&self, node: NodeId) -> Option<&Frame> {
        self.own_code.responsible_frame(self.stack(node))
    }

    /// Frames from `node` outwards: the innermost first.
    pub fn stack(&self, node: NodeId) -> impl Iterator<Item = &Frame> {
        let mut at = node;
        std::iter::from_fn(move || {
            let frame = (at != 0).then(|| self.frame.get(at as usize)).flatten()?;
            at = self.parent.get(at as usize).copied().unwrap_or(0);
            self.frames.get(*frame as usize)
        })
    }
}

/// What one stack holds in one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The stack.
    pub node: NodeId,
    /// Index of the thread.
    pub thread: u32,
    /// Bytes held.
    pub bytes: u64,
    /// Allocations they came in.
    pub count: u64,
}

/// Stacks and what they hold at one moment or over one span.
#[derive(Debug, Clone, Default)]
pub struct StackProfile {
    /// The stacks.
    pub tree: StackTree,
    /// Who holds what.
    pub rows: Vec<Holding>,
    /// Names of the threads.
    pub threads: Vec<String>,
}

/// Bytes and allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

impl Weight {
    /// The allocations where they were counted: some tools record bytes alone.
    #[must_use]
    pub fn counted(self) -> Option<u64> {
        (self.count > 0 || self.bytes == 0).then_some(self.count)
    }
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count = self.count.saturating_add(other.count);
    }
}

impl StackProfile {
    /// Everything together.
    #[must_use]
    pub fn whole(&self) -> Weight {
        let mut sum = Weight::default();
        for row in &self.rows {
            sum += Weight { bytes: row.bytes, count: row.count };
        }
        sum
    }

    /// What each node holds itself, and what it holds with its callees.
    #[must_use]
    pub fn own_and_total(&self) -> (Vec<Weight>, Vec<Weight>) {
        let mut own = vec![Weight::default(); self.tree.len()];
        for row in &self.rows {
            if let Some(weight) = own.get_mut(row.node as usize) {
                *weight += Weight { bytes: row.bytes, count: row.count };
            }
        }
        let mut total = own.clone();
        for node in (1..total.len()).rev() {
            let weight = total[node];
            let parent = self.tree.parent[node] as usize;
            total[parent] += weight;
        }
        (own, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(function: &str, file: &str) -> Frame {
        Frame { function: function.into(), file: file.into(), line: 3, kind: FrameKind::Python }
    }

    #[test]
    fn totals_are_own_and_what_was_called() {
        let mut tree = StackTree::new();
        tree.frames = vec![python("main", "a.py"), python("load", "a.py")];
        let main = tree.push(0, 0);
        let load = tree.push(main, 1);
        let held = StackProfile {
            rows: vec![
                Holding { node: load, thread: 0, bytes: 10, count: 1 },
                Holding { node: main, thread: 0, bytes: 5, count: 2 },
            ],
            tree,
            threads: vec!["main".into()],
        };
        let (own, total) = held.own_and_total();
        assert_eq!(own[main as usize], Weight { bytes: 5, count: 2 });
        assert_eq!(total[main as usize], Weight { bytes: 15, count: 3 });
        assert_eq!(total[0], held.whole());
        assert_eq!(
            held.tree.stack(load).map(|frame| frame.function.as_str()).collect::<Vec<_>>(),
            ["load", "main"]
        );
    }
}
