//! Who held the memory at one moment, by stack and by category.

use rustc_hash::FxHashMap;
use serde::Serialize;

use stormlog_model::gpu_category::Category;

use super::categories::Judge;
use super::text;
use crate::intern::StackId;
use crate::recording::Recording;
use crate::snapshot::BlockState;
use crate::track::TrackedSegment;

/// The blocks of one stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holder {
    /// Bytes held, rounding and slack included.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// The frame to look at: the program's own where there is one.
    pub site: Option<String>,
    /// The whole stack, innermost first; empty when none was recorded.
    pub frames: Vec<String>,
    /// What most of it was for.
    pub category: Category,
    /// Whether it was there before recording started.
    pub before_recording: bool,
}

/// The blocks of one category.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CategoryShare {
    /// What for.
    pub category: Category,
    /// Bytes held.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// Part of all bytes held, from 0 to 1.
    pub share: f64,
}

/// A live block with its category.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) stack: StackId,
    pub(crate) size: u64,
    pub(crate) category: Category,
    pub(crate) before_recording: bool,
}

/// Every live block after `events` events.
pub(crate) fn judge(recording: &Recording<'_>, events: usize, segments: &[TrackedSegment]) -> Vec<Judged> {
    let live = || {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| matches!(block.state, BlockState::Allocated | BlockState::PendingFree))
    };
    let mut judge = Judge::new(recording, events, live().map(|block| block.addr));
    live()
        .map(|block| {
            let born =
                block.event.and_then(|event| recording.snapshot.event(recording.device, event as usize));
            let category = judge.category(block, born.as_ref());
            Judged { stack: block.stack, size: block.size, category, before_recording: block.event.is_none() }
        })
        .collect()
}

pub(crate) fn by_stack(recording: &Recording<'_>, blocks: &[Judged], most: usize) -> Vec<Holder> {
    let mut groups: FxHashMap<(StackId, Category, bool), (u64, u64)> = FxHashMap::default();
    for block in blocks {
        let group = groups.entry((block.stack, block.category, block.before_recording)).or_default();
        group.0 += block.size;
        group.1 += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|&((stack, category, _), (bytes, _))| {
        (std::cmp::Reverse(bytes), stack, category)
    });
    let tables = &recording.snapshot.tables;
    let holder = |((stack, category, before_recording), (bytes, count))| Holder {
        bytes,
        count,
        site: text::responsible_frame(tables, stack),
        frames: tables.stack(stack).map(|frame| text::frame(tables, frame)).collect(),
        category,
        before_recording,
    };
    groups.into_iter().take(most).map(holder).collect()
}

pub(crate) fn by_category(blocks: &[Judged]) -> Vec<CategoryShare> {
    let mut sums: FxHashMap<Category, (u64, u64)> = FxHashMap::default();
    for block in blocks {
        let sum = sums.entry(block.category).or_default();
        sum.0 += block.size;
        sum.1 += 1;
    }
    let total: u64 = blocks.iter().map(|block| block.size).sum();
    let mut shares: Vec<CategoryShare> = sums
        .into_iter()
        .map(|(category, (bytes, count))| CategoryShare {
            category,
            bytes,
            count,
            share: bytes as f64 / total.max(1) as f64,
        })
        .collect();
    shares.sort_unstable_by_key(|share| (std::cmp::Reverse(share.bytes), share.category));
    shares
}
