//! Memory that was allocated in a span and still live at its end: by line, with sizes, and whether it keeps growing. Must count every byte once.

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};
use stormlog_heap::Lifetime;
use stormlog_model::stacks::{Frame, NodeId, Origin, StackTree};

use crate::reading::{HeapPoint, HeapQueryResult};
use crate::rows::CodeLocation;

/// How memory grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Again and again, to the end.
    Steady,
    /// Once, or for a while.
    Once,
    /// Not known: individual records are not stored in the capture.
    Unknown,
}

/// A place whose memory stayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leak {
    /// Its largest stack, the innermost frame first.
    pub stack: Vec<CodeLocation>,
    /// Bytes that stayed.
    pub own_bytes: u64,
    /// The same; nothing below it is counted twice.
    pub total_bytes: u64,
    /// Allocations they came in; 0 where they were not counted.
    #[serde(serialize_with = "counted")]
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
    pub place: CodeLocation,
    /// The line that calls it.
    pub caller: Option<CodeLocation>,
}

/// What stayed has blocks: a count of 0 is unknown.
fn counted<S: Serializer>(count: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*count).filter(|count| *count > 0).serialize(serializer)
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

    fn came(&mut self, life: &Lifetime) {
        let came = self.by_birth.entry(life.birth).or_default();
        *came = came.saturating_add(life.weight.bytes);
    }
}

/// What was alive when the program's own code had ended, or at the end: the bytes of `--leaks` in every view, those that keep growing first.
/// Whether they do is known where the capture knows when memory came ([`Reading::knows_when`](crate::Reading::knows_when)).
#[must_use]
pub fn leaks(answer: &HeapQueryResult) -> Vec<Leak> {
    let tree = &answer.held.tree;
    let unknown = no_stack();
    let mut groups: FxHashMap<&Frame, Group> = FxHashMap::default();
    for row in &answer.held.rows {
        let group = groups.entry(tree.responsible_frame(row.node).unwrap_or(&unknown)).or_default();
        group.add(row.node, row.bytes, row.count);
    }
    for life in answer.lives.iter().filter(|life| is_alive(life, answer.end)) {
        if let Some(group) = groups.get_mut(tree.responsible_frame(life.node).unwrap_or(&unknown)) {
            group.came(life);
        }
    }
    let list =
        groups.into_iter().map(|(frame, group)| leak(tree, frame, &group, &answer.moments, answer.end));
    sorted(list)
}

/// What came after `from_us` and was there at `to_us` (the end where that is `None`), those that keep growing first. Only of a capture that knows when
/// memory came; with a `to_us`, of an answer to [`HeapQuery::Span`](crate::HeapQuery::Span): between two moments memory is freed that lived at the
/// first of them.
#[must_use]
pub fn leaks_in_span(answer: &HeapQueryResult, from_us: u64, to_us: Option<u64>) -> Vec<Leak> {
    let HeapQueryResult { held, lives, moments, end, .. } = answer;
    let before = |to_us: u64| moments.iter().rposition(|moment| moment.time_us <= to_us);
    let until = to_us.map_or(Some(*end), before).unwrap_or(0);
    let begin = if from_us == 0 { 0 } else { moments.partition_point(|moment| moment.time_us <= from_us) };
    let unknown = no_stack();
    let frame_of = |node| held.tree.responsible_frame(node).unwrap_or(&unknown);
    let mut groups: FxHashMap<&Frame, Group> = FxHashMap::default();
    if to_us.is_some() {
        for row in &held.rows {
            groups.entry(frame_of(row.node)).or_default().add(row.node, row.bytes, row.count);
        }
    }
    for life in lives.iter().filter(|life| is_alive(life, until) && life.birth as usize >= begin) {
        match to_us {
            Some(_) => groups.get_mut(frame_of(life.node)).into_iter().for_each(|group| group.came(life)),
            None => {
                let group = groups.entry(frame_of(life.node)).or_default();
                group.add(life.node, life.weight.bytes, life.weight.count);
                group.came(life);
            }
        }
    }
    sorted(groups.into_iter().map(|(frame, group)| leak(&held.tree, frame, &group, moments, until)))
}

fn is_alive(life: &Lifetime, at: usize) -> bool {
    life.birth as usize <= at && life.death as usize > at
}

fn no_stack() -> Frame {
    Frame::remark("(no stack)")
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

fn leak(tree: &StackTree, frame: &Frame, group: &Group, moments: &[HeapPoint], end: usize) -> Leak {
    let seconds =
        |moment: u32| moments.get(moment as usize).map_or(0.0, |moment| moment.time_us as f64 / 1e6);
    let births = group.by_birth.keys();
    // Without a birth its time is unknown.
    let (first, last) = (births.clone().min().copied(), births.max().copied());
    let growth = first.map(|first| {
        let later = group.bytes.saturating_sub(group.by_birth.get(&first).copied().unwrap_or(0));
        let rest = seconds(end as u32) - seconds(first);
        if rest > 0.0 { later as f64 / rest } else { 0.0 }
    });
    let largest = group.by_node.iter().max_by_key(|(node, bytes)| (**bytes, std::cmp::Reverse(**node)));
    let node = largest.map_or(0, |(node, _)| *node);
    let place = CodeLocation::from(frame);
    let own = tree.stack(node).skip_while(|other| *other != frame).skip(1);
    let caller = own.filter(|frame| tree.origin(frame) == Origin::User).map(CodeLocation::from).next();
    Leak {
        stack: tree.stack(node).map(CodeLocation::from).collect(),
        own_bytes: group.bytes,
        total_bytes: group.bytes,
        count: group.count,
        pattern: first.map_or(Pattern::Unknown, |first| pattern(group, first, end as u32, moments)),
        growth_bytes_per_second: growth,
        first_seconds: first.map(seconds),
        last_seconds: last.map(seconds),
        place,
        caller,
    }
}

/// Growth shorter than this is one piece of work, whatever else the program did.
const SHORTEST_US: u64 = 250_000;
/// Growth over this time counts however long the program ran before it.
const LONG_US: u64 = 60_000_000;
/// Changes of the heap per second from which on a loop is taken to do nothing else in between.
const BUSY: u64 = 200;
/// Equal parts of the time since the first of it.
const PARTS: u64 = 6;

/// Steady: something came in each part of the time since the first of it, no moment brought half of it, and that time is half of the program's at
/// least. What a program makes in one go, however large and slowly, is not steady: nothing else happens to the heap meanwhile.
fn pattern(group: &Group, first: u32, end: u32, moments: &[HeapPoint]) -> Pattern {
    let time = |moment: u32| moments.get(moment as usize).map_or(0, |moment| moment.time_us);
    let (begin, end) = (time(first), time(end));
    let length = end.saturating_sub(begin);
    let most = group.by_birth.values().max().copied().unwrap_or(0);
    let is_short = length < SHORTEST_US || length < (end / 2).min(LONG_US);
    if is_short || most > group.bytes / 2 || is_one_piece(group, moments, length) {
        return Pattern::Once;
    }
    let mut parts = [false; PARTS as usize];
    for birth in group.by_birth.keys() {
        let part = (time(*birth).saturating_sub(begin)).saturating_mul(PARTS) / length.max(1);
        parts[part.min(PARTS - 1) as usize] = true;
    }
    if parts.iter().all(|came| *came) { Pattern::Steady } else { Pattern::Once }
}

/// Whether at least half of what happened to the heap between the first and the last of it was this, without a pause.
fn is_one_piece(group: &Group, moments: &[HeapPoint], length_us: u64) -> bool {
    let known = |moment: u32| {
        let before = moments.get(..=moment as usize).unwrap_or(moments);
        before.iter().rev().map(|moment| moment.change).find(|change| *change != u64::MAX)
    };
    let births = group.by_birth.keys();
    let (Some(first), Some(last)) = (births.clone().min(), births.max()) else { return false };
    let changes = known(*last).unwrap_or(0).saturating_sub(known(*first).unwrap_or(0));
    changes > 0
        && group.count.saturating_mul(2) >= changes
        && changes.saturating_mul(1_000_000) >= length_us.saturating_mul(BUSY)
}
