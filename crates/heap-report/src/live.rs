//! What each line of the program held, over time, until the program's own code had ended: what a rule needs to tell growth from a working set.
//! Lines that gave everything back are here too. Must never judge.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, NodeId, Origin};

use crate::ask::Answer;
use crate::rows::Place;

/// A line and what it held.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLine {
    /// The line of the program's own code that allocates.
    pub place: Place,
    /// The line that calls it.
    pub caller: Option<Place>,
    /// Microseconds since the start, and the bytes alive then.
    pub live: Vec<(u64, u64)>,
    /// Allocations alive when it held most.
    pub count: u64,
}

impl LiveLine {
    fn most(&self) -> u64 {
        self.live.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Changes {
    /// Bytes and allocations that came (and went) at a moment.
    at: BTreeMap<u32, (i128, i128)>,
    by_node: FxHashMap<NodeId, u64>,
}

/// The `most` lines that held most at some moment, the largest first. Empty where the capture does not know when memory came.
#[must_use]
pub fn live_lines(answer: &Answer, most: usize) -> Vec<LiveLine> {
    let tree = &answer.held.tree;
    let mut lines: FxHashMap<&Frame, Changes> = FxHashMap::default();
    for life in &answer.lives {
        let Some(frame) = tree.responsible_frame(life.node) else { continue };
        let line = lines.entry(frame).or_default();
        let (bytes, count) = (i128::from(life.weight.bytes), i128::from(life.weight.count));
        let come = line.at.entry(life.birth).or_default();
        (come.0, come.1) = (come.0 + bytes, come.1 + count);
        let gone = line.at.entry(life.death).or_default();
        (gone.0, gone.1) = (gone.0 - bytes, gone.1 - count);
        let of_node = line.by_node.entry(life.node).or_default();
        *of_node = of_node.saturating_add(life.weight.bytes);
    }
    let mut found: Vec<LiveLine> =
        lines.into_iter().map(|(frame, line)| live_line(answer, frame, &line)).collect();
    found.sort_by(|a, b| {
        let name = |line: &LiveLine| (line.place.file.clone(), line.place.line, line.place.function.clone());
        b.most().cmp(&a.most()).then_with(|| name(a).cmp(&name(b)))
    });
    found.truncate(most);
    found
}

fn live_line(answer: &Answer, frame: &Frame, line: &Changes) -> LiveLine {
    let tree = &answer.held.tree;
    let mut changes = line.at.iter().peekable();
    let (mut bytes, mut count) = (0_i128, 0_i128);
    let mut highest = (0, 0);
    let moments = answer.moments.iter().zip(0_u32..).take(answer.end + 1);
    let live = moments.map(|(moment, number)| {
        while let Some((_, (came, allocations))) = changes.next_if(|(at, _)| **at <= number) {
            (bytes, count) = (bytes + came, count + allocations);
        }
        highest = highest.max((bytes, count));
        (moment.time_us, u64::try_from(bytes).unwrap_or(0))
    });
    let live = live.collect();
    let largest = line.by_node.iter().max_by_key(|(node, bytes)| (**bytes, std::cmp::Reverse(**node)));
    let node = largest.map_or(0, |(node, _)| *node);
    let callers = tree.stack(node).skip_while(|other| *other != frame).skip(1);
    let caller = callers.filter(|frame| tree.origin(frame) == Origin::User).map(Place::from).next();
    LiveLine { place: Place::from(frame), caller, live, count: u64::try_from(highest.1).unwrap_or(0) }
}
