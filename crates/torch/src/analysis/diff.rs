//! What differs between two snapshots, by stack and by category; works across processes, runs and ranks.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::categories::Category;
use super::decompose::{Decomposition, decompose};
use super::holders::{Judged, judge};
use super::{peak, text};
use crate::track::Recording;

/// The moment that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// When the most was allocated.
    Peak,
    /// When the snapshot was taken.
    End,
    /// After so many events.
    After(usize),
}

/// Bytes and blocks on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sides {
    /// Bytes in the first.
    pub before_bytes: u64,
    /// Bytes in the second.
    pub after_bytes: u64,
    /// Blocks in the first.
    pub before_count: u64,
    /// Blocks in the second.
    pub after_count: u64,
    /// Second less first.
    pub delta_bytes: i64,
    /// Second less first.
    pub delta_count: i64,
}

impl Sides {
    fn add(&mut self, second: bool, bytes: u64) {
        let (sum, count) = if second {
            (&mut self.after_bytes, &mut self.after_count)
        } else {
            (&mut self.before_bytes, &mut self.before_count)
        };
        *sum += bytes;
        *count += 1;
        self.delta_bytes = self.after_bytes as i64 - self.before_bytes as i64;
        self.delta_count = self.after_count as i64 - self.before_count as i64;
    }
}

/// One stack that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackDiff {
    /// The frame to look at.
    pub site: Option<String>,
    /// The stack, innermost first, as one of the two has it.
    pub frames: Vec<String>,
    /// Bytes and blocks.
    #[serde(flatten)]
    pub sides: Sides,
}

/// One category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CategoryDiff {
    /// Which.
    pub category: Category,
    /// Bytes and blocks.
    #[serde(flatten)]
    pub sides: Sides,
}

/// Two snapshots compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SnapshotDiff {
    /// The moment of both.
    pub at: Moment,
    /// Everything in the program's hands.
    pub total: Sides,
    /// The allocator's books of the first.
    pub before: Decomposition,
    /// And of the second.
    pub after: Decomposition,
    /// By category, the largest change first.
    pub categories: Vec<CategoryDiff>,
    /// By stack, the largest change first; unchanged ones are left out.
    pub stacks: Vec<StackDiff>,
}

/// Compares two recordings at the same kind of moment.
pub fn diff(before: &Recording<'_>, after: &Recording<'_>, at: Moment) -> SnapshotDiff {
    let mut total = Sides::default();
    let mut categories: FxHashMap<Category, Sides> = FxHashMap::default();
    let mut stacks: FxHashMap<String, StackDiff> = FxHashMap::default();
    let mut sides = [Decomposition::default(); 2];
    for (second, recording) in [(false, before), (true, after)] {
        let (blocks, decomposition) = live(recording, at);
        sides[usize::from(second)] = decomposition;
        let tables = &recording.snapshot.tables;
        let mut names = FxHashMap::default();
        for block in blocks {
            total.add(second, block.size);
            categories.entry(block.category).or_default().add(second, block.size);
            let name = names.entry(block.stack).or_insert_with(|| text::normalised(tables, block.stack));
            let entry = stacks.entry(name.clone()).or_insert_with(|| StackDiff {
                site: text::own_frame(tables, block.stack),
                frames: tables.stack(block.stack).map(|frame| text::frame(tables, frame)).collect(),
                sides: Sides::default(),
            });
            entry.sides.add(second, block.size);
        }
    }
    let order = |sides: &Sides| std::cmp::Reverse((sides.delta_bytes.unsigned_abs(), sides.after_bytes));
    let mut categories: Vec<CategoryDiff> =
        categories.into_iter().map(|(category, sides)| CategoryDiff { category, sides }).collect();
    categories.sort_by_key(|entry| (order(&entry.sides), entry.category));
    let mut stacks: Vec<StackDiff> = stacks
        .into_values()
        .filter(|entry| entry.sides.delta_bytes != 0 || entry.sides.delta_count != 0)
        .collect();
    stacks.sort_by(|a, b| order(&a.sides).cmp(&order(&b.sides)).then_with(|| a.frames.cmp(&b.frames)));
    let [before, after] = sides;
    SnapshotDiff { at, total, before, after, categories, stacks }
}

fn live(recording: &Recording<'_>, at: Moment) -> (Vec<Judged>, Decomposition) {
    let count = recording.snapshot.event_count(recording.device);
    let events = match at {
        Moment::Peak => peak::find(recording).allocated_after,
        Moment::End => count,
        Moment::After(events) => events.min(count),
    };
    let segments = recording.state_after(events).segments();
    (judge(recording, events, &segments), decompose(&segments, &recording.settings, None))
}
