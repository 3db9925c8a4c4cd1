//! What was allocated in a span and still lived at its end: who, how much, and whether it keeps growing. Must count every byte once.

use rustc_hash::FxHashMap;
use serde::Serialize;
use stormlog_event::stacks::{Frame, FrameKind, NodeId, Origin, StackTree};
use stormlog_heap::passes_on;

use crate::ask::{Answer, Moment};
use crate::rows::Place;

/// How memory grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Again and again, to the end.
    Steady,
    /// Once, or for a while.
    Once,
    /// Nobody knows: the capture keeps no single records.
    Unknown,
}

/// A place whose memory stayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leak {
    /// Its largest stack, the innermost frame first.
    pub stack: Vec<Place>,
    /// Bytes that stayed.
    pub own_bytes: u64,
    /// The same; nothing below it is counted twice.
    pub total_bytes: u64,
    /// Allocations they came in.
    pub count: u64,
    /// How it grew.
    pub pattern: Pattern,
    /// Bytes a second that came after the first ones, to the end of the span; where that is known.
    pub growth_bytes_per_second: Option<f64>,
    /// Seconds after the start when the first of it came, at the latest.
    pub first_seconds: Option<f64>,
    /// And the last.
    pub last_seconds: Option<f64>,
    /// The line of the program's own code that allocates.
    pub place: Place,
    /// The line that calls it.
    pub caller: Option<Place>,
}

/// The moment whose memory is meant when nobody names one. A program that ends on its own frees what it held while it takes itself down, and
/// that is no answer: then it is the last moment before the final fall.
#[must_use]
pub fn settled(moments: &[Moment], ended_well: bool) -> u64 {
    let mut at = moments.len().saturating_sub(1);
    while ended_well && at > 0 && moments[at - 1].bytes >= moments[at].bytes {
        at -= 1;
    }
    moments.get(at).map_or(0, |moment| moment.time_us)
}

#[derive(Default)]
struct Group {
    bytes: u64,
    count: u64,
    by_birth: FxHashMap<u32, u64>,
    by_node: FxHashMap<NodeId, u64>,
}

impl Group {
    fn add(&mut self, node: NodeId, bytes: u64, count: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.count = self.count.saturating_add(count);
        let held = self.by_node.entry(node).or_default();
        *held = held.saturating_add(bytes);
    }
}

/// What came after `from_us` and was there at `to_us`, those that keep growing first. Of a capture that does not know when memory came
/// ([`Reading::knows_when`](crate::Reading::knows_when)): all that was there at the end.
#[must_use]
pub fn leaks(answer: &Answer, from_us: u64, to_us: u64) -> Vec<Leak> {
    let Answer { held, lives, moments } = answer;
    let nobody =
        Frame { function: "(no stack)".into(), file: String::new(), line: 0, kind: FrameKind::Remark };
    if lives.is_empty() {
        let mut groups: FxHashMap<&Frame, Group> = FxHashMap::default();
        for row in &held.rows {
            let group = groups.entry(own_line(&held.tree, row.node).unwrap_or(&nobody)).or_default();
            group.add(row.node, row.bytes, row.count);
        }
        return sorted(groups.into_iter().map(|(frame, group)| leak(&held.tree, frame, &group, moments, 0)));
    }
    let Some(end) = moments.iter().rposition(|moment| moment.time_us <= to_us) else { return Vec::new() };
    let begin = if from_us == 0 { 0 } else { moments.partition_point(|moment| moment.time_us <= from_us) };
    let mut groups: FxHashMap<&Frame, Group> = FxHashMap::default();
    for life in lives {
        let is_there = life.birth as usize <= end && life.death as usize > end;
        if !is_there || (life.birth as usize) < begin {
            continue;
        }
        let group = groups.entry(own_line(&held.tree, life.node).unwrap_or(&nobody)).or_default();
        group.add(life.node, life.weight.bytes, life.weight.count);
        let came = group.by_birth.entry(life.birth).or_default();
        *came = came.saturating_add(life.weight.bytes);
    }
    sorted(groups.into_iter().map(|(frame, group)| leak(&held.tree, frame, &group, moments, end)))
}

fn sorted(leaks: impl Iterator<Item = Leak>) -> Vec<Leak> {
    let mut list: Vec<Leak> = leaks.collect();
    list.sort_by(|one, other| {
        let name = |leak: &Leak| (leak.place.file.clone(), leak.place.line, leak.place.function.clone());
        let steady = |leak: &Leak| leak.pattern == Pattern::Steady;
        let rate = |leak: &Leak| leak.growth_bytes_per_second.filter(|_| steady(leak)).unwrap_or(0.0);
        steady(other)
            .cmp(&steady(one))
            .then(rate(other).total_cmp(&rate(one)))
            .then(other.own_bytes.cmp(&one.own_bytes))
            .then_with(|| name(one).cmp(&name(other)))
    });
    list
}

fn leak(tree: &StackTree, frame: &Frame, group: &Group, moments: &[Moment], end: usize) -> Leak {
    let seconds =
        |moment: u32| moments.get(moment as usize).map_or(0.0, |moment| moment.time_us as f64 / 1e6);
    let births = group.by_birth.keys();
    // Without a birth nobody knows when it came.
    let (first, last) = (births.clone().min().copied(), births.max().copied());
    let growth = first.map(|first| {
        let later = group.bytes.saturating_sub(group.by_birth.get(&first).copied().unwrap_or(0));
        let rest = seconds(end as u32) - seconds(first);
        if rest > 0.0 { later as f64 / rest } else { 0.0 }
    });
    let largest = group.by_node.iter().max_by_key(|(node, bytes)| (**bytes, std::cmp::Reverse(**node)));
    let node = largest.map_or(0, |(node, _)| *node);
    let place = Place::from(frame);
    let own = tree.stack(node).skip_while(|other| *other != frame).skip(1);
    let caller = own.filter(|frame| frame.origin() == Origin::User).map(Place::from).next();
    Leak {
        stack: tree.stack(node).map(Place::from).collect(),
        own_bytes: group.bytes,
        total_bytes: group.bytes,
        count: group.count,
        pattern: first.map_or(Pattern::Unknown, |first| pattern(group, first, end as u32)),
        growth_bytes_per_second: growth,
        first_seconds: first.map(seconds),
        last_seconds: last.map(seconds),
        place,
        caller,
    }
}

/// Steady: something came in each third of the time since the first of it, and no moment brought half of it.
fn pattern(group: &Group, first: u32, end: u32) -> Pattern {
    let third = (end.saturating_sub(first)) / 3;
    let came = |from: u32, to: u32| group.by_birth.keys().any(|birth| (from..=to).contains(birth));
    let most = group.by_birth.values().max().copied().unwrap_or(0);
    let is_steady = third > 0
        && came(first, first + third)
        && came(first + third + 1, first + 2 * third)
        && came(first + 2 * third + 1, end)
        && most <= group.bytes / 2;
    if is_steady { Pattern::Steady } else { Pattern::Once }
}

/// The innermost line of the program's own code; without one the innermost of Python, then of whoever does not just pass a request on,
/// then of all.
fn own_line(tree: &StackTree, node: NodeId) -> Option<&Frame> {
    let stack = || tree.stack(node);
    stack()
        .find(|frame| frame.origin() == Origin::User)
        .or_else(|| stack().find(|frame| frame.kind == FrameKind::Python))
        .or_else(|| stack().find(|frame| !passes_on(&frame.function, &frame.file)))
        .or_else(|| stack().next())
}
