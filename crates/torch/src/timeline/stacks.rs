//! A device's memory over time by stack and by purpose, in few moments: what a report draws beside other recordings. Every allocated byte of a shown moment is in
//! a life, and in a category.

use rustc_hash::FxHashMap;
use stormlog_model::gpu_category::Category;
use stormlog_model::stacks::{Holding, NodeId, StackProfile};

use super::Shown;
use crate::analysis::categories::Judge;
use crate::analysis::stacks::Nodes;
use crate::model::Totals;
use crate::recording::Recording;

/// A moment that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownMoment {
    /// Microseconds since 1970, where the trace has times.
    pub time_us: Option<u64>,
    /// The memory then.
    pub totals: Totals,
}

/// Blocks of one stack that came and went between the same moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackLife {
    /// The stack.
    pub node: NodeId,
    /// First moment at which they are allocated.
    pub birth: u32,
    /// First moment at which they are not; the number of moments when they never went.
    pub death: u32,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
}

/// A device's memory over time.
#[derive(Debug, Clone)]
pub struct StacksOverTime {
    /// The moments: of each run of events the one at which the most was in use.
    pub moments: Vec<ShownMoment>,
    /// What was allocated at the fullest of them, under its category and its stack.
    pub held: StackProfile,
    /// When it came and went, by the same stacks.
    pub lives: Vec<StackLife>,
    /// Bytes of each category at each moment, the largest first.
    pub categories: Vec<(Category, Vec<u64>)>,
}

/// The memory of a recording over time, in at most `most` moments.
#[must_use]
pub fn stacks_over_time(recording: &Recording<'_>, most: usize) -> StacksOverTime {
    let (snapshot, device) = (recording.snapshot, recording.device);
    let shown = by_millisecond(recording, Shown::of(recording, most).0);
    let mut held = StackProfile { threads: vec![format!("device {device}")], ..StackProfile::default() };
    let (mut judge, mut nodes) = (Judge::for_lives(recording), Nodes::default());
    let mut sums: FxHashMap<(NodeId, u32, u32), (u64, u64)> = FxHashMap::default();
    let mut changes: FxHashMap<Category, Vec<i128>> = FxHashMap::default();
    for life in recording.lifetimes() {
        let birth = life.born.map_or(0, |event| shown.first_knowing(event));
        let ended = life.released.or(life.freed);
        let death = ended.map_or(shown.len(), |event| shown.first_knowing(event));
        if birth >= death {
            continue;
        }
        let at = |event: Option<u32>| snapshot.event(device, event? as usize);
        let category = judge.life(&life, at(life.born).as_ref(), at(life.released).as_ref());
        let node = nodes.node(&mut held.tree, &snapshot.tables, category, life.stack);
        let sum = sums.entry((node, birth, death)).or_default();
        *sum = (sum.0.saturating_add(life.size), sum.1 + 1);
        let change = changes.entry(category).or_insert_with(|| vec![0; shown.after.len() + 1]);
        change[birth as usize] += i128::from(life.size);
        change[death as usize] -= i128::from(life.size);
    }
    let lives = sums.into_iter().map(|((node, birth, death), (bytes, count))| StackLife {
        node,
        birth,
        death,
        bytes,
        count,
    });
    let mut lives: Vec<StackLife> = lives.collect();
    lives.sort_unstable_by_key(|life| (life.node, life.birth, life.death));
    let fullest = shown.totals.iter().enumerate().max_by_key(|(_, totals)| totals.allocated);
    let fullest = fullest.map_or(0, |(index, _)| index as u32);
    held.rows = at_moment(&lives, fullest);
    let curve = |change: Vec<i128>| {
        let levels = change.into_iter().take(shown.after.len()).scan(0_i128, |level, change| {
            *level += change;
            Some(u64::try_from(*level).unwrap_or(0))
        });
        levels.collect::<Vec<u64>>()
    };
    let mut categories: Vec<(Category, Vec<u64>)> =
        changes.into_iter().map(|(category, change)| (category, curve(change))).collect();
    categories
        .sort_by_key(|(category, bytes)| (std::cmp::Reverse(bytes.iter().max().copied()), category.name()));
    let moment = |(after, totals): (&u32, &Totals)| ShownMoment {
        time_us: time_us(recording, *after),
        totals: *totals,
    };
    let moments = shown.after.iter().zip(&shown.totals).map(moment).collect();
    StacksOverTime { moments, held, lives, categories }
}

/// When the last of this number of events happened.
fn time_us(recording: &Recording<'_>, after: u32) -> Option<u64> {
    let event = recording.snapshot.event(recording.device, (after as usize).saturating_sub(1))?;
    u64::try_from(event.time_us?).ok()
}

/// Of the moments of one millisecond, which an axis of time cannot tell apart, the one at which the most was allocated.
fn by_millisecond(recording: &Recording<'_>, shown: Shown) -> Shown {
    let mut kept = Shown { after: Vec::new(), totals: Vec::new() };
    let mut last = None;
    for (after, totals) in shown.after.into_iter().zip(shown.totals) {
        let at = time_us(recording, after).map(|time| time / 1000);
        match (kept.after.last_mut(), kept.totals.last_mut()) {
            (Some(known), Some(most)) if at.is_some() && at == last => {
                if totals.allocated > most.allocated {
                    (*known, *most) = (after, totals);
                }
            }
            _ => {
                kept.after.push(after);
                kept.totals.push(totals);
            }
        }
        last = at;
    }
    kept
}

fn at_moment(lives: &[StackLife], moment: u32) -> Vec<Holding> {
    let alive = lives.iter().filter(|life| (life.birth..life.death).contains(&moment));
    let mut rows: Vec<Holding> = alive
        .map(|life| Holding { node: life.node, thread: 0, bytes: life.bytes, count: life.count })
        .collect();
    rows.dedup_by(|next, kept| {
        let is_same = next.node == kept.node;
        if is_same {
            kept.bytes = kept.bytes.saturating_add(next.bytes);
            kept.count += next.count;
        }
        is_same
    });
    rows
}
