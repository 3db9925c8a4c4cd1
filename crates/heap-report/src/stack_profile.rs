//! The same memory seen otherwise: without native frames, by thread, from the leaves. Must never change the whole.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, FrameKind, Holding, NodeId, StackProfile, StackTree};

use crate::reading::HeapQueryResult;

/// A tree built by looking for the child each time.
#[derive(Default)]
struct Builder {
    tree: StackTree,
    children: FxHashMap<(NodeId, u32), NodeId>,
}

impl Builder {
    fn with_frames_of(held: &StackProfile) -> Self {
        let mut builder = Builder::default();
        builder.tree.frames.clone_from(&held.tree.frames);
        builder.tree.own_code.clone_from(&held.tree.own_code);
        builder
    }

    fn child(&mut self, parent: NodeId, frame: u32) -> NodeId {
        let tree = &mut self.tree;
        *self.children.entry((parent, frame)).or_insert_with(|| tree.push(parent, frame))
    }

    fn remark(&mut self, text: &str) -> u32 {
        self.tree.frames.push(Frame::remark(text));
        self.tree.frames.len() as u32 - 1
    }
}

impl HeapQueryResult {
    /// Without the frames of C, C++ and Rust; what has no Python frame at all is under a remark.
    #[must_use]
    pub fn python_only(self) -> HeapQueryResult {
        let tree = &self.held.tree;
        let mut builder = Builder::with_frames_of(&self.held);
        let mut places: Vec<NodeId> = vec![0; tree.len()];
        for node in 1..tree.len() {
            let above = places[tree.parent[node] as usize];
            let frame = tree.frame[node];
            let is_native = tree.frames[frame as usize].kind == FrameKind::Native;
            places[node] = if is_native { above } else { builder.child(above, frame) };
        }
        if places.iter().skip(1).any(|place| *place == 0) {
            let remark = builder.remark("(no Python frame)");
            let none = builder.child(0, remark);
            places.iter_mut().skip(1).filter(|place| **place == 0).for_each(|place| *place = none);
        }
        self.moved(builder, |node, _, _| places[node as usize])
    }

    /// Each thread a frame of its own below the root.
    #[must_use]
    pub fn split_threads(self) -> HeapQueryResult {
        let mut builder = Builder::with_frames_of(&self.held);
        let threads = self.held.threads.iter();
        let frames: Vec<u32> = threads.map(|name| builder.remark(name)).collect();
        let paths = Paths::of(&self.held);
        self.moved(builder, |node, thread, builder| {
            let root = frames.get(thread as usize).map_or(0, |frame| builder.child(0, *frame));
            paths.inwards(node).into_iter().fold(root, |at, frame| builder.child(at, frame))
        })
    }

    /// The innermost frames outermost: callers below what they call.
    #[must_use]
    pub fn inverted(self) -> HeapQueryResult {
        let builder = Builder::with_frames_of(&self.held);
        let paths = Paths::of(&self.held);
        self.moved(builder, |node, _, builder| {
            paths.inwards(node).into_iter().rev().fold(0, |at, frame| builder.child(at, frame))
        })
    }

    /// The same memory on another tree; `place` says where a stack of a thread went.
    fn moved(
        self,
        mut builder: Builder,
        mut place: impl FnMut(NodeId, u32, &mut Builder) -> NodeId,
    ) -> HeapQueryResult {
        let mut places: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
        let mut place = |node: NodeId, thread: u32| {
            *places.entry((node, thread)).or_insert_with(|| place(node, thread, &mut builder))
        };
        let mut rows: Vec<Holding> = Vec::with_capacity(self.held.rows.len());
        let mut known: FxHashMap<(NodeId, u32), usize> = FxHashMap::default();
        for row in &self.held.rows {
            let row = Holding { node: place(row.node, row.thread), ..*row };
            let at = *known.entry((row.node, row.thread)).or_insert(rows.len());
            match rows.get_mut(at) {
                Some(sum) => {
                    sum.bytes = sum.bytes.saturating_add(row.bytes);
                    sum.count = sum.count.saturating_add(row.count);
                }
                None => rows.push(row),
            }
        }
        let mut lives = self.lives;
        for life in &mut lives {
            life.node = place(life.node, life.thread);
        }
        let mut allocators = self.allocators;
        for share in &mut allocators {
            share.node = place(share.node, share.thread);
        }
        let held = StackProfile { tree: builder.tree, rows, threads: self.held.threads };
        HeapQueryResult { held, allocators, lives, moments: self.moments, end: self.end }
    }
}

/// The frames of stacks.
struct Paths {
    parent: Vec<NodeId>,
    frame: Vec<u32>,
}

impl Paths {
    fn of(held: &StackProfile) -> Self {
        Paths { parent: held.tree.parent.clone(), frame: held.tree.frame.clone() }
    }

    /// The outermost first.
    fn inwards(&self, node: NodeId) -> Vec<u32> {
        let mut frames = Vec::new();
        let mut at = node as usize;
        while at != 0 {
            frames.push(self.frame[at]);
            at = self.parent[at] as usize;
        }
        frames.reverse();
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::Weight;

    fn answer() -> HeapQueryResult {
        let mut tree = StackTree::new();
        for (function, kind) in
            [("main", FrameKind::Python), ("load", FrameKind::Python), ("malloc_it", FrameKind::Native)]
        {
            tree.frames.push(Frame { function: function.into(), file: "a.py".into(), line: 1, kind });
        }
        let main = tree.push(0, 0);
        let load = tree.push(main, 1);
        let native = tree.push(load, 2);
        let alone = tree.push(0, 2);
        let row = |node, thread, bytes| Holding { node, thread, bytes, count: 1 };
        let held = StackProfile {
            rows: vec![row(load, 0, 10), row(native, 0, 5), row(native, 1, 7), row(alone, 1, 3)],
            tree,
            threads: vec!["one".into(), "two".into()],
        };
        let weight = Weight { bytes: 7, count: 1 };
        let lives = vec![stormlog_heap::Lifetime { node: native, thread: 1, birth: 0, death: 2, weight }];
        HeapQueryResult { held, allocators: vec![], lives, moments: vec![], end: 0 }
    }

    fn text(HeapQueryResult { held, .. }: &HeapQueryResult) -> Vec<String> {
        let stack = |row: &Holding| {
            let names: Vec<&str> = held.tree.stack(row.node).map(|frame| frame.function.as_str()).collect();
            format!("{} {}", names.join("<"), row.bytes)
        };
        held.rows.iter().map(stack).collect()
    }

    #[test]
    fn other_sights_of_the_same_memory() {
        assert_eq!(text(&answer().python_only()), ["load<main 15", "load<main 7", "(no Python frame) 3"]);
        assert_eq!(
            text(&answer().split_threads()),
            ["load<main<one 10", "malloc_it<load<main<one 5", "malloc_it<load<main<two 7", "malloc_it<two 3"]
        );
        assert_eq!(text(&answer().inverted())[1], "main<load<malloc_it 5");
        for other in [answer().python_only(), answer().split_threads(), answer().inverted()] {
            assert_eq!(other.held.whole(), answer().held.whole());
            // Spans are of the same stack as the row they belong to.
            let node =
                other.held.rows.iter().find(|row| (row.thread, row.bytes) == (1, 7)).map(|row| row.node);
            assert_eq!(Some(other.lives[0].node), node);
        }
    }
}
