//! What is held at a moment as stacks, the shape that flame graphs and their differences are made from.

use rustc_hash::FxHashMap;
use stormlog_model::gpu_category::Category;
use stormlog_model::stacks::{Frame, FrameKind, Holding, NodeId, StackProfile, StackTree};

use super::holders::judge;
use super::snapshot_moment::{NoSuchMark, SnapshotMoment, events_until};
use crate::intern::{FrameId, StackId, Tables};
use crate::recording::Recording;

/// Every live block under its category and its stack; each device is a "thread" of its own.
pub fn stack_profile(recordings: &[Recording<'_>], at: &SnapshotMoment) -> Result<StackProfile, NoSuchMark> {
    let mut held = StackProfile::default();
    let mut nodes = Nodes::default();
    let mut rows: FxHashMap<(NodeId, u32), (u64, u64)> = FxHashMap::default();
    for (thread, recording) in recordings.iter().enumerate() {
        held.threads.push(format!("device {}", recording.device));
        let events = events_until(recording, at)?;
        let segments = recording.state_after(events).segments();
        let tables = &recording.snapshot.tables;
        nodes.known.clear();
        for block in judge(recording, events, &segments) {
            let node = nodes.node(&mut held.tree, tables, block.category, block.stack);
            let sum = rows.entry((node, thread as u32)).or_default();
            *sum = (sum.0.saturating_add(block.size), sum.1 + 1);
        }
    }
    held.rows = rows
        .into_iter()
        .map(|((node, thread), (bytes, count))| Holding { node, thread, bytes, count })
        .collect();
    held.rows.sort_unstable_by_key(|row| (row.node, row.thread));
    Ok(held)
}

/// The nodes of a tree of categories and stacks while it grows.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    frames: FxHashMap<Frame, u32>,
    children: FxHashMap<(NodeId, u32), NodeId>,
    /// Of the stacks of one snapshot.
    known: FxHashMap<(Category, StackId), NodeId>,
}

impl Nodes {
    /// The node of a stack under its category, made where it is new.
    pub(crate) fn node(
        &mut self,
        tree: &mut StackTree,
        tables: &Tables,
        category: Category,
        stack: StackId,
    ) -> NodeId {
        if let Some(node) = self.known.get(&(category, stack)) {
            return *node;
        }
        let purpose = Frame {
            function: category.name().to_owned(),
            file: String::new(),
            line: 0,
            kind: FrameKind::Python,
        };
        let mut node = 0;
        for frame in std::iter::once(purpose).chain(outermost_first(tables, stack)) {
            let frame = *self.frames.entry(frame).or_insert_with_key(|frame| {
                tree.frames.push(frame.clone());
                tree.frames.len() as u32 - 1
            });
            node = *self.children.entry((node, frame)).or_insert_with(|| tree.push(node, frame));
        }
        self.known.insert((category, stack), node);
        node
    }
}

fn outermost_first(tables: &Tables, stack: StackId) -> Vec<Frame> {
    let mut path: Vec<Frame> = tables.stack(stack).map(|id| frame(tables, id)).collect();
    if path.is_empty() {
        path.push(Frame {
            function: "(no Python frames)".to_owned(),
            file: String::new(),
            line: 0,
            kind: FrameKind::Remark,
        });
    }
    path.reverse();
    path
}

fn frame(tables: &Tables, id: FrameId) -> Frame {
    let frame = tables.frame(id);
    let file = tables.text(frame.filename);
    let is_python = file.ends_with(".py") || file.starts_with('<');
    Frame {
        function: tables.text(frame.name).to_owned(),
        file: if file == "??" { String::new() } else { file.to_owned() },
        line: frame.line,
        kind: if is_python { FrameKind::Python } else { FrameKind::Native },
    }
}
