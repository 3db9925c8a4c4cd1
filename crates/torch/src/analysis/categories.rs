//! What memory was for, judged by the allocating line, its time, and its end.
//!
//! Rules, not knowledge: what no rule covers is `unknown`, and its share is part of the answer.

use rustc_hash::FxHashMap;
use stormlog_model::gpu_category::{Category, WORKSPACES, category_of_stack};

use crate::intern::{StackId, Tables};
use crate::lifetimes::BlockLifetime;
use crate::recording::Recording;
use crate::snapshot::{BlockState, Snapshot};
use crate::trace::{Action, Event};
use crate::track::TrackedBlock;

/// Decides for the blocks that are live at one moment.
pub(crate) struct Judge<'a> {
    snapshot: &'a Snapshot,
    by_stack: FxHashMap<StackId, Option<Category>>,
    /// The event that asked for each block's end, by address.
    ends: FxHashMap<u64, Event>,
    /// Times of optimizer steps and gradient resets.
    steps: Vec<(i64, i64)>,
    resets: Vec<(i64, i64)>,
}

impl<'a> Judge<'a> {
    /// For the blocks live after `events` events.
    pub(crate) fn new(recording: &Recording<'a>, events: usize, live: impl Iterator<Item = u64>) -> Self {
        let snapshot = recording.snapshot;
        let mut waiting: FxHashMap<u64, ()> = live.map(|addr| (addr, ())).collect();
        let mut ends = FxHashMap::default();
        for index in events..snapshot.event_count(recording.device) {
            if waiting.is_empty() {
                break;
            }
            if let Some(event) = snapshot.event(recording.device, index)
                && matches!(event.action, Action::FreeRequested | Action::Free | Action::FreeCompleted)
                && waiting.remove(&event.addr).is_some()
            {
                ends.insert(event.addr, event);
            }
        }
        Judge { ends, ..Judge::for_lives(recording) }
    }

    /// For whole lives, whose ends are known.
    pub(crate) fn for_lives(recording: &Recording<'a>) -> Self {
        let snapshot = recording.snapshot;
        let spans = |name: &str| spans(snapshot, recording.device, name);
        Judge {
            snapshot,
            by_stack: FxHashMap::default(),
            ends: FxHashMap::default(),
            steps: spans("Optimizer.step"),
            resets: spans("Optimizer.zero_grad"),
        }
    }

    pub(crate) fn category(&mut self, block: &TrackedBlock, born: Option<&Event>) -> Category {
        let end = self.ends.get(&block.addr).copied();
        self.decide(block.stack, block.requested, block.state == BlockState::Allocated, born, end)
    }

    pub(crate) fn life(
        &mut self,
        life: &BlockLifetime,
        born: Option<&Event>,
        end: Option<&Event>,
    ) -> Category {
        self.decide(life.stack, life.requested, true, born, end.copied())
    }

    fn decide(
        &mut self,
        stack: StackId,
        requested: u64,
        in_hands: bool,
        born: Option<&Event>,
        end: Option<Event>,
    ) -> Category {
        let tables = &self.snapshot.tables;
        // Scratch space is taken inside some innocent operation and never given back.
        if end.is_none() && in_hands && WORKSPACES.contains(&requested) && born.is_some() {
            let first = self.by_stack.get(&stack).copied().flatten();
            if first.is_none_or(|category| category == Category::Activations) && !is_setup(tables, stack) {
                return Category::Workspaces;
            }
        }
        if tables.stack(stack).len() > 0 {
            let found = *self.by_stack.entry(stack).or_insert_with(|| by_frames(tables, stack));
            if let Some(category) = found {
                return category;
            }
        }
        let time = born.and_then(|event| event.time_us);
        if within(&self.steps, time) {
            return Category::OptimizerState;
        }
        match (born, tables.stack(stack).len()) {
            // The autograd engine's own thread has no Python frames.
            (Some(_), 0) if self.has_stacks() => self.backward(end),
            _ => Category::Unknown,
        }
    }

    /// What the backward pass made: gradients live until the program drops them, the rest ends within the pass.
    fn backward(&self, end: Option<Event>) -> Category {
        let Some(end) = end else { return Category::Gradients };
        let by_program = self.snapshot.tables.stack(end.stack).len() > 0;
        if by_program || within(&self.resets, end.time_us) || within(&self.steps, end.time_us) {
            Category::Gradients
        } else {
            Category::BackwardTemporaries
        }
    }

    /// Whether stacks were recorded at all.
    fn has_stacks(&self) -> bool {
        self.snapshot.tables.stack_count() > 1
    }
}

fn spans(snapshot: &Snapshot, device: usize, name: &str) -> Vec<(i64, i64)> {
    let mut open = Vec::new();
    let mut spans = Vec::new();
    for note in snapshot.annotations.iter().filter(|note| note.device as usize == device) {
        if !snapshot.tables.text(note.name).starts_with(name) {
            continue;
        }
        if note.start {
            open.push(note.time_us);
        } else if let Some(start) = open.pop() {
            spans.push((start, note.time_us));
        }
    }
    spans.sort_unstable();
    spans
}

fn within(spans: &[(i64, i64)], time: Option<i64>) -> bool {
    let Some(time) = time else { return false };
    let next = spans.partition_point(|span| span.0 <= time);
    next.checked_sub(1).and_then(|index| spans.get(index)).is_some_and(|span| time <= span.1)
}

fn is_setup(tables: &Tables, stack: StackId) -> bool {
    matches!(
        by_frames(tables, stack),
        Some(Category::Parameters | Category::OptimizerState | Category::Communication | Category::Inputs)
    )
}

/// What the frames of a stack say.
fn by_frames(tables: &Tables, stack: StackId) -> Option<Category> {
    let frames = tables.stack(stack).map(|id| {
        let frame = tables.frame(id);
        (tables.text(frame.filename), tables.text(frame.name))
    });
    category_of_stack(frames)
}
