//! The columns as the page's script reads them: differences where that packs well. `assets/timeline/data.js` is the
//! other side.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::pool_history::HeldRange;
use super::{Drawn, Shown};
use crate::analysis::text;
use crate::intern::{FrameId, StackId, StrId};
use crate::recording::Recording;
use crate::snapshot::Snapshot;

fn differences(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut last = 0;
    // Neither addresses nor sizes nor times come near the sign.
    values.map(|value| (value as i64).wrapping_sub(std::mem::replace(&mut last, value as i64))).collect()
}

/// Memory over time, one value for each moment of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TimelineCurves {
    after: Vec<i64>,
    /// Microseconds since `start_us`; empty when the file has no times.
    time: Vec<i64>,
    start_us: Option<i64>,
    active: Vec<i64>,
    allocated: Vec<i64>,
    reserved: Vec<i64>,
    other: Vec<i64>,
}

impl TimelineCurves {
    pub(super) fn new(recording: &Recording<'_>, shown: &Shown, other: &[u64]) -> Self {
        let time_of = |after: u32| {
            let event = recording.snapshot.event(recording.device, after.saturating_sub(1) as usize);
            event.and_then(|event| event.time_us)
        };
        let start = shown.after.iter().find_map(|&after| time_of(after));
        let mut latest = 0;
        // Events of several threads are not quite in order; the page looks moments up by their time.
        let times = shown.after.iter().map(|&after| {
            let since = time_of(after).zip(start).map_or(0, |(time, start)| time.saturating_sub(start));
            latest = latest.max(u64::try_from(since).unwrap_or(0));
            latest
        });
        TimelineCurves {
            time: if start.is_some() { differences(times) } else { Vec::new() },
            after: differences(shown.after.iter().map(|&after| after.into())),
            start_us: start,
            active: differences(shown.totals.iter().map(|totals| totals.active)),
            allocated: differences(shown.totals.iter().map(|totals| totals.allocated)),
            reserved: differences(shown.totals.iter().map(|totals| totals.reserved)),
            other: differences(other.iter().copied()),
        }
    }
}

/// How much blocks take together at each moment.
pub(super) fn heights<'a>(blocks: impl Iterator<Item = &'a Drawn>, moments: u32) -> Vec<u64> {
    let mut changes = vec![0u64; moments as usize + 1];
    for block in blocks {
        for (moment, change) in [(block.born, block.life.size), (block.gone, block.life.size.wrapping_neg())]
        {
            if let Some(sum) = changes.get_mut(moment as usize) {
                *sum = sum.wrapping_add(change);
            }
        }
    }
    changes.pop();
    let mut height = 0u64;
    changes.iter_mut().for_each(|change| {
        height = height.wrapping_add(*change);
        *change = height;
    });
    changes
}

/// How much the blocks that are not drawn take in one home, where that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Crowd {
    home: u16,
    moment: Vec<i64>,
    bytes: Vec<i64>,
}

/// The blocks that are not drawn, home by home.
pub(super) fn crowds(mut folded: Vec<Drawn>, moments: u32) -> Vec<Crowd> {
    folded.sort_by_key(|block| block.home);
    let of_home = |blocks: &[Drawn]| {
        let home = blocks.first()?.home;
        let mut last = 0;
        let steps = heights(blocks.iter(), moments).into_iter().zip(0u64..);
        let (bytes, moment): (Vec<u64>, Vec<u64>) =
            steps.filter(|(bytes, _)| std::mem::replace(&mut last, *bytes) != *bytes).unzip();
        Some(Crowd { home, moment: differences(moment.into_iter()), bytes: differences(bytes.into_iter()) })
    };
    folded.chunk_by(|a, b| a.home == b.home).filter_map(of_home).collect()
}

/// Blocks in the order of their birth.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Blocks {
    born: Vec<i64>,
    /// Moments from birth to the free, and on to the end of waiting.
    held: Vec<u32>,
    awaited: Vec<u32>,
    addr: Vec<i64>,
    size: Vec<u64>,
    /// What was not asked for of the size.
    extra: Vec<u64>,
    stack: Vec<u32>,
    home: Vec<u16>,
    category: Vec<u8>,
    /// Events of birth and free, −1 for none.
    born_event: Vec<i64>,
    freed_event: Vec<i64>,
}

impl Blocks {
    pub(super) fn new(drawn: &[Drawn]) -> Self {
        let mut columns = Blocks {
            born: differences(drawn.iter().map(|block| block.born.into())),
            addr: differences(drawn.iter().map(|block| block.life.addr)),
            ..Blocks::default()
        };
        for block in drawn {
            let released = block.released.clamp(block.born, block.gone);
            columns.held.push(released - block.born);
            columns.awaited.push(block.gone - released);
            columns.size.push(block.life.size);
            columns.extra.push(block.life.size.saturating_sub(block.life.requested));
            columns.stack.push(block.life.stack.0);
            columns.home.push(block.home);
            columns.category.push(block.category as u8);
            columns.born_event.push(block.life.born.map_or(-1, i64::from));
            columns.freed_event.push(block.life.freed.map_or(-1, i64::from));
        }
        columns
    }
}

/// Memory held from the driver, in no particular order.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Stretches {
    born: Vec<u32>,
    held: Vec<u32>,
    addr: Vec<i64>,
    size: Vec<u64>,
    home: Vec<u16>,
    expandable: Vec<u8>,
}

impl Stretches {
    pub(super) fn new(stretches: &[HeldRange]) -> Self {
        Stretches {
            born: stretches.iter().map(|stretch| stretch.born).collect(),
            held: stretches.iter().map(|stretch| stretch.gone - stretch.born).collect(),
            addr: differences(stretches.iter().map(|stretch| stretch.addr)),
            size: stretches.iter().map(|stretch| stretch.size).collect(),
            home: stretches.iter().map(|stretch| stretch.home).collect(),
            expandable: stretches.iter().map(|stretch| stretch.expandable.into()).collect(),
        }
    }
}

/// The stacks the blocks refer to, innermost frame first; the first is the empty one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Stacks {
    stacks: Vec<Vec<u32>>,
    function: Vec<u32>,
    file: Vec<u32>,
    line: Vec<u32>,
    /// 1 for frames of the program itself.
    own: Vec<u8>,
    strings: Vec<String>,
}

impl Stacks {
    /// Renumbers the stacks of the blocks: a page has only what it shows.
    pub(super) fn new(snapshot: &Snapshot, drawn: &mut [Drawn]) -> Self {
        let tables = &snapshot.tables;
        let mut columns = Stacks { stacks: vec![Vec::new()], ..Stacks::default() };
        let mut stacks: FxHashMap<StackId, u32> = FxHashMap::from_iter([(StackId::EMPTY, 0)]);
        let mut frames: FxHashMap<FrameId, u32> = FxHashMap::default();
        let mut strings: FxHashMap<StrId, u32> = FxHashMap::default();
        for block in drawn {
            let stack = block.life.stack;
            let next = stacks.len() as u32;
            let number = *stacks.entry(stack).or_insert(next);
            block.life.stack = StackId(number);
            if number < next {
                continue;
            }
            let ids = tables.stack(stack).map(|id| {
                let next = frames.len() as u32;
                let number = *frames.entry(id).or_insert(next);
                if number == next {
                    let frame = tables.frame(id);
                    let mut string = |id: StrId| {
                        let next = strings.len() as u32;
                        let number = *strings.entry(id).or_insert(next);
                        if number == next {
                            columns.strings.push(tables.text(id).to_owned());
                        }
                        number
                    };
                    columns.function.push(string(frame.name));
                    columns.file.push(string(frame.filename));
                    columns.line.push(frame.line);
                    columns.own.push(text::is_own(tables.text(frame.filename)).into());
                }
                number
            });
            let ids = ids.collect();
            columns.stacks.push(ids);
        }
        columns
    }
}
