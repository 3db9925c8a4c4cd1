//! A device's whole trace as columns a page can draw: bounded in size however long the trace is, and exact at every
//! moment it shows.
//!
//! A long trace is shown at fewer moments than it has events: of each run of events the one at which the most was in
//! use, so no peak is lost. Blocks too small and too many to draw are one band, whose height is the sum of them, in
//! all and in each pool.

pub(crate) mod notes;
mod page;
pub(crate) mod pool_history;
mod stacks;

use serde::Serialize;

use stormlog_model::gpu_category::Category;

use crate::analysis::categories::Judge;
use crate::lifetimes::BlockLifetime;
use crate::model::Totals;
use crate::recording::Recording;
use crate::snapshot::PoolId;
use crate::trace::{Action, Event};

use pool_history::HeldRange;
pub use stacks::{ShownMoment, StackLife, StacksOverTime, stacks_over_time};

/// How much of a trace is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineLimits {
    /// Moments; a longer trace is thinned out.
    pub moments: usize,
    /// Blocks; of more, the smallest are one band.
    pub blocks: usize,
    /// Spans the program marked; of more, the shortest are left out.
    pub spans: usize,
}

impl Default for TimelineLimits {
    fn default() -> Self {
        TimelineLimits { moments: 100_000, blocks: 100_000, spans: 4_000 }
    }
}

/// The trace of one device, ready to be drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// The device.
    pub device: usize,
    /// Recorded events.
    pub events: usize,
    /// Events for each moment shown.
    pub events_per_moment: usize,
    /// Blocks below this size are one band; 0 when every block is drawn.
    pub folded_below_bytes: u64,
    /// How many that are.
    pub folded_blocks: u64,
    /// Blocks that came and went between two moments shown.
    pub unseen_blocks: u64,
    pub(crate) moments: page::TimelineCurves,
    pub(crate) blocks: page::Blocks,
    pub(crate) crowds: Vec<page::Crowd>,
    pub(crate) stretches: page::Stretches,
    pub(crate) homes: Vec<HomeName>,
    pub(crate) categories: Vec<&'static str>,
    pub(crate) spans: Vec<notes::Span>,
    /// Moments at which a request failed.
    pub(crate) failures: Vec<u32>,
    pub(crate) stacks: page::Stacks,
}

/// A pool, size class and stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct HomeName {
    pub(crate) pool: PoolId,
    pub(crate) small: bool,
    pub(crate) stream: u64,
}

/// The moments that are shown: the state after this many events.
struct Shown {
    after: Vec<u32>,
    totals: Vec<Totals>,
}

impl Shown {
    fn of(recording: &Recording<'_>, most: usize) -> (Self, usize) {
        let count = recording.snapshot.event_count(recording.device) + 1;
        let per = count.div_ceil(most.max(1));
        let mut shown = Shown { after: Vec::new(), totals: Vec::new() };
        let start = std::iter::once(recording.tracker().totals());
        for (after, now) in start.chain(recording.totals()).enumerate() {
            match shown.totals.last_mut() {
                Some(best) if !after.is_multiple_of(per) => {
                    if now.active > best.active
                        && let Some(last) = shown.after.last_mut()
                    {
                        (*best, *last) = (now, after as u32);
                    }
                }
                _ => {
                    shown.after.push(after as u32);
                    shown.totals.push(now);
                }
            }
        }
        (shown, per)
    }

    /// The first moment that knows of an event; their number if none does.
    fn first_knowing(&self, event: u32) -> u32 {
        self.after.partition_point(|&after| after <= event) as u32
    }

    fn len(&self) -> u32 {
        self.after.len() as u32
    }
}

/// A block, in moments.
struct Drawn {
    life: BlockLifetime,
    born: u32,
    released: u32,
    gone: u32,
    home: u16,
    category: Category,
}

/// The columns of a device's trace.
pub fn timeline(recording: &Recording<'_>, limits: &TimelineLimits) -> Timeline {
    let snapshot = recording.snapshot;
    let (shown, per) = Shown::of(recording, limits.moments);
    let lifetimes = recording.lifetimes();
    let (stretches, homes, home_of) = pool_history::follow(recording, &lifetimes);
    let mut judge = Judge::for_lives(recording);
    let mut drawn: Vec<Drawn> = Vec::new();
    let mut unseen = 0;
    for (life, home) in lifetimes.into_iter().zip(home_of) {
        let moment = |event: Option<u32>| event.map_or(shown.len(), |event| shown.first_knowing(event));
        let born = life.born.map_or(0, |event| shown.first_knowing(event));
        let gone = moment(life.freed);
        if born >= gone {
            unseen += 1;
            continue;
        }
        let at = |event: Option<u32>| snapshot.event(recording.device, event? as usize);
        let category = judge.life(&life, at(life.born).as_ref(), at(life.released).as_ref());
        drawn.push(Drawn { life, born, released: moment(life.released), gone, home, category });
    }
    let (below, folded) = fold(&mut drawn, limits.blocks);
    let other = page::heights(folded.iter(), shown.len());
    let folded_blocks = folded.len() as u64;
    drawn.sort_by_key(|block| block.born);
    let stretches: Vec<HeldRange> = stretches
        .into_iter()
        .map(|stretch| stretch.in_moments(&shown))
        .filter(|stretch| stretch.born < stretch.gone)
        .collect();
    let failed = |(index, event): (usize, Event)| (event.action == Action::Oom).then_some(index as u32);
    let failures = snapshot.trace(recording.device).enumerate().filter_map(failed);
    Timeline {
        device: recording.device,
        events: snapshot.event_count(recording.device),
        events_per_moment: per,
        folded_below_bytes: below,
        folded_blocks,
        unseen_blocks: unseen,
        moments: page::TimelineCurves::new(recording, &shown, &other),
        stacks: page::Stacks::new(snapshot, &mut drawn),
        blocks: page::Blocks::new(&drawn),
        crowds: page::crowds(folded, shown.len()),
        stretches: page::Stretches::new(&stretches),
        homes,
        categories: Category::ALL.iter().map(|category| category.name()).collect(),
        spans: notes::spans(snapshot, recording.device, limits.spans),
        failures: failures.map(|event| shown.first_knowing(event)).take(limits.spans).collect(),
    }
}

/// Takes the smallest blocks out, so that at most `most` are left; the size from which on they stay.
fn fold(drawn: &mut Vec<Drawn>, most: usize) -> (u64, Vec<Drawn>) {
    if drawn.len() <= most {
        return (0, Vec::new());
    }
    let mut sizes: Vec<u64> = drawn.iter().map(|block| block.life.size).collect();
    let place = sizes.len() - most;
    let (_, &mut largest_out, _) = sizes.select_nth_unstable(place - 1);
    // Whole sizes go, so that the page can say which.
    let below = largest_out + 1;
    let folded = drawn.extract_if(.., |block| block.life.size < below).collect();
    (below, folded)
}
