//! Two answers side by side: bytes and allocations won and lost. Stacks are the same when their functions are, although the lines of a
//! function moved. Must keep both wholes: the differences add up to the difference of the wholes.

use rustc_hash::FxHashMap;
use serde::Serialize;
use stormlog_model::own_code::OwnCode;
use stormlog_model::stacks::{Frame, Holding, NodeId, StackProfile, StackTree};

use crate::rows::{self, By, CodeLocation};

/// Bytes and allocations.
type Pair = (u64, u64);
/// A function and its file.
type Code<'a> = (&'a str, &'a str);

/// Two answers on the stacks of both.
pub struct Diff {
    /// What the second one holds; one row a stack of either.
    pub held: StackProfile,
    /// What the first one held, bytes and allocations, row by row.
    pub before: Vec<(u64, u64)>,
}

/// One row of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiffRow {
    /// Its frames, the innermost first.
    pub stack: Vec<CodeLocation>,
    /// Held right there after.
    pub own_bytes: u64,
    /// Held there and in what it called after.
    pub total_bytes: u64,
    /// Allocations of the own bytes after, where they were counted.
    pub count: Option<u64>,
    /// Own bytes won (or lost).
    pub delta_bytes: i64,
    /// Allocations won (or lost), where both sides counted them.
    pub delta_count: Option<i64>,
    /// Held right there before.
    pub before_bytes: u64,
    /// Allocations of it before, where they were counted.
    pub before_count: Option<u64>,
}

/// Puts `a` and `b` on one tree.
#[must_use]
pub fn diff(a: &StackProfile, b: &StackProfile) -> Diff {
    let mut tree = StackTree::new();
    let mut frames: FxHashMap<Frame, u32> = FxHashMap::default();
    let mut children: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
    let moved = moved_frames(a, b);
    let mut place = |held: &StackProfile, moved: Option<&[Frame]>| -> Vec<NodeId> {
        let mut places = vec![0; held.tree.len()];
        for node in 1..held.tree.len() {
            let id = held.tree.frame[node] as usize;
            let frame = moved.map_or(&held.tree.frames[id], |moved| &moved[id]);
            let frame = *frames.entry(frame.clone()).or_insert_with_key(|frame| {
                tree.frames.push(frame.clone());
                tree.frames.len() as u32 - 1
            });
            let parent = places[held.tree.parent[node] as usize];
            places[node] = *children.entry((parent, frame)).or_insert_with(|| tree.push(parent, frame));
        }
        places
    };
    let in_b = place(b, None);
    let in_a = place(a, Some(&moved));
    // Frames of `a` are named as in `b`, so the package of `b` comes first.
    let known = [&b.tree.own_code, &a.tree.own_code].into_iter().find(|own| **own != OwnCode::default());
    tree.own_code = known.cloned().unwrap_or_default();
    let mut sums: FxHashMap<NodeId, (Pair, Pair)> = FxHashMap::default();
    for row in &a.rows {
        let sum = &mut sums.entry(in_a[row.node as usize]).or_default().0;
        *sum = (sum.0.saturating_add(row.bytes), sum.1.saturating_add(row.count));
    }
    for row in &b.rows {
        let sum = &mut sums.entry(in_b[row.node as usize]).or_default().1;
        *sum = (sum.0.saturating_add(row.bytes), sum.1.saturating_add(row.count));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(node, _)| *node);
    let rows = sums.iter().map(|(node, (_, after))| Holding {
        node: *node,
        thread: 0,
        bytes: after.0,
        count: after.1,
    });
    let rows = rows.collect();
    let before = sums.iter().map(|(_, (before, _))| *before).collect();
    Diff { held: StackProfile { tree, rows, threads: vec!["all".to_owned()] }, before }
}

impl Diff {
    /// The rows, the largest change first; those without one are left out. Lines and functions have what they are responsible for, as in
    /// statistics: memory that moved between two lines of the program has the same innermost frame in a library.
    #[must_use]
    pub fn rows(&self, by: By) -> Vec<DiffRow> {
        let past = self.held.rows.iter().zip(&self.before);
        let past = past.map(|(row, (bytes, count))| Holding { bytes: *bytes, count: *count, ..*row });
        let past = StackProfile { tree: self.held.tree.clone(), rows: past.collect(), threads: vec![] };
        let [past_is_counted, is_counted] = [&past, &self.held].map(|one| one.whole().counted().is_some());
        let mut all: FxHashMap<Vec<CodeLocation>, DiffRow> = FxHashMap::default();
        for row in rows::by_responsible_frame(&past, by) {
            let mut entry = blank(row.stack.clone());
            (entry.before_bytes, entry.before_count) = (row.own_bytes, past_is_counted.then_some(row.count));
            all.insert(row.stack, entry);
        }
        for row in rows::by_responsible_frame(&self.held, by) {
            let entry = all.entry(row.stack.clone()).or_insert_with(|| blank(row.stack.clone()));
            (entry.own_bytes, entry.total_bytes) = (row.own_bytes, row.total_bytes);
            entry.count = is_counted.then_some(row.count);
        }
        let mut list: Vec<DiffRow> = all.into_values().collect();
        for row in &mut list {
            row.delta_bytes = row.own_bytes.wrapping_sub(row.before_bytes) as i64;
            let counts = row.count.zip(row.before_count);
            row.delta_count = counts.map(|(after, before)| after.wrapping_sub(before) as i64);
        }
        list.retain(|row| row.delta_bytes != 0 || row.delta_count.is_some_and(|delta| delta != 0));
        list.sort_by(|one, other| {
            let size =
                |row: &DiffRow| (row.delta_bytes.unsigned_abs(), row.delta_count.map(i64::unsigned_abs));
            let name = |row: &DiffRow| {
                row.stack.first().map(|place| (place.file.clone(), place.line, place.function.clone()))
            };
            size(other).cmp(&size(one)).then_with(|| name(one).cmp(&name(other)))
        });
        list
    }
}

fn blank(stack: Vec<CodeLocation>) -> DiffRow {
    let (own_bytes, total_bytes, before_bytes, delta_bytes) = Default::default();
    // What is not there is in no allocation.
    let (count, before_count, delta_count) = (Some(0), Some(0), None);
    DiffRow { stack, own_bytes, total_bytes, count, delta_bytes, delta_count, before_bytes, before_count }
}

/// The frames of `a` as they are called in `b`, where they are the same code.
fn moved_frames(a: &StackProfile, b: &StackProfile) -> Vec<Frame> {
    let files = moved_files(a, b);
    let mut lines: FxHashMap<Code<'_>, (Vec<u32>, Vec<u32>)> = FxHashMap::default();
    let file_of = |frame: &'_ Frame| files.get(frame.file.as_str()).copied();
    for frame in &a.tree.frames {
        let file = file_of(frame).unwrap_or(&frame.file);
        lines.entry((&frame.function, file)).or_default().0.push(frame.line);
    }
    for frame in &b.tree.frames {
        lines.entry((&frame.function, &frame.file)).or_default().1.push(frame.line);
    }
    let moved: FxHashMap<Code<'_>, FxHashMap<u32, u32>> = lines
        .into_iter()
        .map(|(function, (mut before, mut after))| {
            for list in [&mut before, &mut after] {
                list.sort_unstable();
                list.dedup();
            }
            (function, moved_lines(&before, &after))
        })
        .collect();
    let rename = |frame: &Frame| {
        let file = file_of(frame).unwrap_or(&frame.file);
        let line = moved.get(&(frame.function.as_str(), file)).and_then(|lines| lines.get(&frame.line));
        Frame { file: file.to_owned(), line: line.copied().unwrap_or(frame.line), ..frame.clone() }
    };
    a.tree.frames.iter().map(rename).collect()
}

/// Files that are only in `a`, and the file of the same name that is only in `b`: the program was in another directory.
fn moved_files<'a>(a: &'a StackProfile, b: &'a StackProfile) -> FxHashMap<&'a str, &'a str> {
    let files = |held: &'a StackProfile| -> Vec<&'a str> {
        let mut list: Vec<&str> = held.tree.frames.iter().map(|frame| frame.file.as_str()).collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    let (in_a, in_b) = (files(a), files(b));
    let mut by_name: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
    for file in in_b.iter().filter(|file| in_a.binary_search(file).is_err()) {
        by_name.entry(file.rsplit('/').next().unwrap_or(file)).or_default().push(file);
    }
    let mut moved = FxHashMap::default();
    for file in in_a.iter().filter(|file| in_b.binary_search(file).is_err()) {
        let candidates = by_name.get(file.rsplit('/').next().unwrap_or(file));
        let best = candidates.into_iter().flatten().max_by_key(|other| common_end(file, other));
        if let Some(other) = best {
            moved.insert(*file, *other);
        }
    }
    moved
}

/// How many parts of two paths are the same, from the end.
fn common_end(one: &str, other: &str) -> usize {
    one.rsplit('/').zip(other.rsplit('/')).take_while(|(one, other)| one == other).count()
}

/// Lines of a function before → after. Most moved together by some number of lines; the rest is matched in order.
fn moved_lines(before: &[u32], after: &[u32]) -> FxHashMap<u32, u32> {
    let mut shifts: FxHashMap<i64, usize> = FxHashMap::default();
    // Functions have few lines that allocate; a generated giant is matched by its lines as they are.
    if before.len().saturating_mul(after.len()) <= 10_000 {
        for one in before {
            for other in after {
                *shifts.entry(i64::from(*other) - i64::from(*one)).or_default() += 1;
            }
        }
    }
    let best =
        shifts.into_iter().max_by_key(|(shift, count)| (*count, std::cmp::Reverse((shift.abs(), *shift))));
    let shift = best.map_or(0, |(shift, _)| shift);
    let mut pairs = FxHashMap::default();
    let mut free: Vec<u32> = after.to_vec();
    let mut left = Vec::new();
    for line in before {
        let target = u32::try_from(i64::from(*line) + shift).ok();
        match target.and_then(|target| free.binary_search(&target).ok()) {
            Some(at) => {
                pairs.insert(*line, free.remove(at));
            }
            None => left.push(*line),
        }
    }
    pairs.extend(left.into_iter().zip(free));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::FrameKind;

    type Stack<'a> = (&'a [(&'a str, &'a str, u32)], u64);

    fn held(stacks: &[Stack<'_>]) -> StackProfile {
        let mut tree = StackTree::new();
        let mut rows = Vec::new();
        for (stack, bytes) in stacks {
            let mut at = 0;
            for (function, file, line) in *stack {
                let (function, file) = ((*function).to_owned(), (*file).to_owned());
                tree.frames.push(Frame { function, file, line: *line, kind: FrameKind::Python });
                let frame = tree.frames.len() as u32 - 1;
                at = tree.push(at, frame);
            }
            rows.push(Holding { node: at, thread: 0, bytes: *bytes, count: 1 });
        }
        StackProfile { tree, rows, threads: vec![] }
    }

    #[test]
    fn moved_lines_are_the_same_line() {
        let a = held(&[
            (&[("main", "/old/train.py", 10), ("load", "/old/train.py", 20)], 100),
            (&[("main", "/old/train.py", 11), ("gone", "/old/train.py", 40)], 30),
        ]);
        let b = held(&[
            (&[("main", "/new/train.py", 11), ("load", "/new/train.py", 21)], 150),
            (&[("main", "/new/train.py", 12), ("fresh", "/new/train.py", 60)], 7),
        ]);
        let diff = diff(&a, &b);
        for by in [By::Line, By::Function, By::Stack] {
            let rows = diff.rows(by);
            let short: Vec<(&str, i64)> =
                rows.iter().map(|row| (row.stack[0].function.as_str(), row.delta_bytes)).collect();
            assert_eq!(short, [("load", 50), ("gone", -30), ("fresh", 7)], "{by:?}");
        }
        assert_eq!(diff.held.whole().bytes, 157);
        assert_eq!(diff.before.iter().map(|pair| pair.0).sum::<u64>(), 130);
    }

    #[test]
    fn the_same_twice_differs_in_nothing() {
        let a = held(&[(&[("f", "a.py", 1)], 5), (&[("f", "a.py", 2), ("g", "b.py", 3)], 6)]);
        assert!(diff(&a, &a).rows(By::Stack).is_empty());
    }

    #[test]
    fn shifts_are_found() {
        assert_eq!(moved_lines(&[10, 11, 20], &[11, 12, 21])[&11], 12);
        assert_eq!(moved_lines(&[10, 20], &[10, 25])[&20], 25);
        assert!(moved_lines(&[10], &[]).is_empty());
    }
}
