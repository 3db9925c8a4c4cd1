//! What is held at a moment as stacks, the shape that flame graphs and their differences are made from.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, FrameKind, Holding, Holdings, NodeId};

use super::holders::judge;
use super::moment::{Moment, NoSuchMark, events_until};
use crate::intern::{FrameId, StackId, Tables};
use crate::recording::Recording;

/// Every live block under its category and its stack; each device is a "thread" of its own.
pub fn holdings(recordings: &[Recording<'_>], at: &Moment) -> Result<Holdings, NoSuchMark> {
    let mut held = Holdings::default();
    let mut frames: FxHashMap<Frame, u32> = FxHashMap::default();
    let mut children: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
    let mut rows: FxHashMap<(NodeId, u32), (u64, u64)> = FxHashMap::default();
    for (thread, recording) in recordings.iter().enumerate() {
        held.threads.push(format!("device {}", recording.device));
        let events = events_until(recording, at)?;
        let segments = recording.state_after(events).segments();
        let tables = &recording.snapshot.tables;
        let mut nodes = FxHashMap::default();
        for block in judge(recording, events, &segments) {
            let node = *nodes.entry((block.category, block.stack)).or_insert_with(|| {
                let purpose = Frame {
                    function: block.category.name().to_owned(),
                    file: String::new(),
                    line: 0,
                    kind: FrameKind::Python,
                };
                let path = std::iter::once(purpose).chain(outermost_first(tables, block.stack));
                path.fold(0, |parent, frame| {
                    let frame = *frames.entry(frame).or_insert_with_key(|frame| {
                        held.tree.frames.push(frame.clone());
                        held.tree.frames.len() as u32 - 1
                    });
                    *children.entry((parent, frame)).or_insert_with(|| held.tree.push(parent, frame))
                })
            });
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
