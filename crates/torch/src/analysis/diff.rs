//! What differs between two snapshots, by stack and by category; works across processes, runs and ranks.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::decompose::{Decomposition, decompose};
use super::holders::{Judged, judge};
use super::snapshot_moment::{NoSuchMark, SnapshotMoment, events_until};
use super::text;
use crate::recording::Recording;
use stormlog_model::gpu_category::Category;

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
        *sum = sum.saturating_add(bytes);
        *count += 1;
        self.delta_bytes = self.after_bytes.wrapping_sub(self.before_bytes) as i64;
        self.delta_count = self.after_count.wrapping_sub(self.before_count) as i64;
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

/// One device of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceDiff {
    /// Its ordinal.
    pub device: usize,
    /// Everything in the program's hands there.
    pub total: Sides,
    /// The allocator's books of the first.
    pub before: Decomposition,
    /// And of the second.
    pub after: Decomposition,
}

/// Two snapshots compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SnapshotDiff {
    /// The moment of both.
    pub at: SnapshotMoment,
    /// Everything in the program's hands, on all devices.
    pub total: Sides,
    /// The allocator's books of the first, all devices together.
    pub before: Decomposition,
    /// And of the second.
    pub after: Decomposition,
    /// Device by device.
    pub devices: Vec<DeviceDiff>,
    /// By category, the largest change first.
    pub categories: Vec<CategoryDiff>,
    /// By stack, the largest change first; unchanged ones are left out.
    pub stacks: Vec<StackDiff>,
}

/// Compares recordings of devices at the same kind of moment. Stacks count over all devices: rank 3 of one run may have
/// used another device than rank 3 of the other.
pub fn diff(
    before: &[Recording<'_>],
    after: &[Recording<'_>],
    at: &SnapshotMoment,
) -> Result<SnapshotDiff, NoSuchMark> {
    let mut total = Sides::default();
    let mut devices: Vec<DeviceDiff> = Vec::new();
    let mut categories: FxHashMap<Category, Sides> = FxHashMap::default();
    let mut stacks: FxHashMap<String, StackDiff> = FxHashMap::default();
    let sides = before
        .iter()
        .map(|recording| (false, recording))
        .chain(after.iter().map(|recording| (true, recording)));
    for (second, recording) in sides {
        let (blocks, books) = live(recording, at)?;
        let entry = device(&mut devices, recording.device);
        if second {
            entry.after += books
        } else {
            entry.before += books
        }
        let tables = &recording.snapshot.tables;
        let mut names = FxHashMap::default();
        for block in blocks {
            total.add(second, block.size);
            entry.total.add(second, block.size);
            categories.entry(block.category).or_default().add(second, block.size);
            let name = names.entry(block.stack).or_insert_with(|| text::normalised(tables, block.stack));
            let entry = stacks.entry(name.clone()).or_insert_with(|| StackDiff {
                site: text::responsible_frame(tables, block.stack),
                frames: tables.stack(block.stack).map(|frame| text::frame(tables, frame)).collect(),
                sides: Sides::default(),
            });
            entry.sides.add(second, block.size);
        }
    }
    devices.sort_by_key(|entry| entry.device);
    let order = |sides: &Sides| std::cmp::Reverse((sides.delta_bytes.unsigned_abs(), sides.after_bytes));
    let mut categories: Vec<CategoryDiff> =
        categories.into_iter().map(|(category, sides)| CategoryDiff { category, sides }).collect();
    categories.sort_by_key(|entry| (order(&entry.sides), entry.category));
    let mut stacks: Vec<StackDiff> = stacks
        .into_values()
        .filter(|entry| entry.sides.delta_bytes != 0 || entry.sides.delta_count != 0)
        .collect();
    stacks.sort_by(|a, b| order(&a.sides).cmp(&order(&b.sides)).then_with(|| a.frames.cmp(&b.frames)));
    let (mut before, mut after) = (Decomposition::default(), Decomposition::default());
    for entry in &devices {
        before += entry.before;
        after += entry.after;
    }
    Ok(SnapshotDiff { at: at.clone(), total, before, after, devices, categories, stacks })
}

fn device(devices: &mut Vec<DeviceDiff>, device: usize) -> &mut DeviceDiff {
    let index = devices.iter().position(|entry| entry.device == device).unwrap_or_else(|| {
        let (total, before, after) = Default::default();
        devices.push(DeviceDiff { device, total, before, after });
        devices.len() - 1
    });
    &mut devices[index]
}

fn live(recording: &Recording<'_>, at: &SnapshotMoment) -> Result<(Vec<Judged>, Decomposition), NoSuchMark> {
    let events = events_until(recording, at)?;
    let segments = recording.state_after(events).segments();
    Ok((judge(recording, events, &segments), decompose(&segments, &recording.settings, None)))
}
