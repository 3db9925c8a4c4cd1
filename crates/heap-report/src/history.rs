//! The heap at any moment of a capture, for a cursor that moves in time: the capture is read once, and every moment after that is a sum.
//!
//! The moments are those at which the heap was largest within a stretch of time, as on the page of a flame graph. A capture without individual records
//! has no past; its reader gives an error that says so.

use std::path::Path;

use rustc_hash::FxHashMap;
use stormlog_heap::{HeapError, Lifetime};
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::stacks::{Entry, Frame, FrameKind, Holding, NodeId, StackProfile, Weight};

use crate::error::ViewError;
use crate::find::Chosen;
use crate::heap_query::HeapQuery;
use crate::reading::{HeapPoint, HeapQueryResult, Reading};

/// Moments between which a cursor can distinguish: more than a wide terminal has columns.
const MOMENTS: usize = 400;

/// A capture with the lifetimes of its blocks.
pub struct History {
    reading: Reading,
    /// Made when a memory is asked for the first time.
    answers: Vec<(Memory, HeapQueryResult)>,
}

/// The heap at one moment.
#[derive(Debug, Clone)]
pub struct PastHeap {
    /// Microseconds since the start.
    pub time_us: u64,
    /// Bytes and blocks.
    pub whole: Weight,
    /// Kernel thread id and name of each thread of [`StackProfile::threads`], with what it holds.
    pub threads: Vec<(u64, Option<String>, Weight)>,
    /// Stacks and what they hold.
    pub held: StackProfile,
}

impl History {
    /// Reads a capture, living or finished, twice: for its moments, and for what lived at them.
    pub fn read(path: &Path) -> Result<History, ViewError> {
        let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
        let reading = Reading::with(chosen, HeapQuery::Leaks, MOMENTS, |_| true)?;
        Ok(History { reading, answers: Vec::new() })
    }

    /// Microseconds from the start to the last record that was read.
    #[must_use]
    pub fn until_us(&self) -> u64 {
        self.reading.heap.duration_us()
    }

    /// The heap at the moment that is nearest to a time; of one thread (kernel id) or of all.
    pub fn at(&mut self, memory: Memory, time_us: u64, thread: Option<u64>) -> Result<PastHeap, ViewError> {
        let place = self.place(memory)?;
        let answer = &self.answers[place].1;
        let after = answer.moments.partition_point(|moment| moment.time_us < time_us);
        let far = |at: &usize| answer.moments.get(*at).map(|moment| moment.time_us.abs_diff(time_us));
        let nearest = [after.saturating_sub(1), after].into_iter().filter(|at| far(at).is_some());
        let number = nearest.min_by_key(|at| far(at)).unwrap_or(0);
        let moment = answer.moments.get(number).copied();
        let rows = rows_at(&answer.lives, number);
        let mut weights = vec![Weight::default(); answer.held.threads.len()];
        for row in &rows {
            if let Some(weight) = weights.get_mut(row.thread as usize) {
                *weight += Weight { bytes: row.bytes, count: row.count };
            }
        }
        let shares = self.reading.heap.by_thread(stormlog_heap::Mode::Total);
        let named = |label: &String| shares.iter().find(|share| share.label() == *label);
        let threads = answer.held.threads.iter().zip(&weights).map(|(label, weight)| match named(label) {
            Some(share) => (share.thread, share.name.clone(), *weight),
            None => (0, Some(label.clone()), *weight),
        });
        let threads: Vec<_> = threads.collect();
        let is_asked = |row: &Holding| {
            thread.is_none_or(|id| threads.get(row.thread as usize).is_some_and(|known| known.0 == id))
        };
        let rows: Vec<Holding> = rows.into_iter().filter(is_asked).collect();
        let held =
            StackProfile { tree: answer.held.tree.clone(), rows, threads: answer.held.threads.clone() };
        let time_us = moment.map_or(time_us, |moment: HeapPoint| moment.time_us);
        Ok(PastHeap { time_us, whole: held.whole(), threads, held })
    }

    fn place(&mut self, memory: Memory) -> Result<usize, ViewError> {
        if let Some(place) = self.answers.iter().position(|(known, _)| *known == memory) {
            return Ok(place);
        }
        self.reading.select(Selection::One(memory))?;
        if !self.reading.knows_when() {
            let (path, until_us) = (self.reading.chosen.path.clone(), self.until_us());
            return Err(HeapError::Folded { path, until_us }.into());
        }
        self.answers.push((memory, self.reading.answer()));
        Ok(self.answers.len() - 1)
    }
}

/// What lived at a moment, by stack and thread.
fn rows_at(lives: &[Lifetime], moment: usize) -> Vec<Holding> {
    let moment = u32::try_from(moment).unwrap_or(u32::MAX);
    let mut sums: FxHashMap<(NodeId, u32), Weight> = FxHashMap::default();
    for life in lives.iter().filter(|life| life.birth <= moment && moment < life.death) {
        *sums.entry((life.node, life.thread)).or_default() += life.weight;
    }
    let row = |((node, thread), weight): ((NodeId, u32), Weight)| Holding {
        node,
        thread,
        bytes: weight.bytes,
        count: weight.count,
    };
    let mut rows: Vec<Holding> = sums.into_iter().map(row).collect();
    rows.sort_unstable_by_key(|row| (row.node, row.thread));
    rows
}

impl PastHeap {
    /// By line, the largest total first. Native frames count only where a stack has no other, as in a live view.
    #[must_use]
    pub fn lines(&self) -> Vec<Entry> {
        let tree = &self.held.tree;
        let mut sums: FxHashMap<&Frame, (Weight, Weight, usize)> = FxHashMap::default();
        for (stack, row) in (1..).zip(&self.held.rows) {
            let weight = Weight { bytes: row.bytes, count: row.count };
            let has_python = tree.stack(row.node).any(|frame| frame.kind == FrameKind::Python);
            let shown = tree.stack(row.node).filter(|frame| !has_python || frame.kind != FrameKind::Native);
            for (depth, frame) in shown.enumerate() {
                let (own, total, counted) = sums.entry(frame).or_default();
                if depth == 0 {
                    *own += weight;
                }
                // A recursive function counts once a stack.
                if std::mem::replace(counted, stack) != stack {
                    *total += weight;
                }
            }
        }
        let entry = |(frame, (own, total, _)): (&Frame, (Weight, Weight, usize))| Entry {
            frame: frame.clone(),
            own,
            total,
        };
        let mut entries: Vec<Entry> = sums.into_iter().map(entry).collect();
        entries.sort_by(|one, other| {
            let size = |entry: &Entry| (entry.total.bytes, entry.own.bytes);
            let name = |entry: &Entry| (entry.frame.function.clone(), entry.frame.line);
            size(other).cmp(&size(one)).then_with(|| name(one).cmp(&name(other)))
        });
        entries
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn heap_of_a_past_moment_is_the_one_that_a_reading_for_that_time_gives() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/corpus/recordings/leak_after_imports/rank0-pid20402/heap.bin");
        let mut history = History::read(&path).unwrap();
        let whole = history.until_us();
        let mut last = 0;
        for part in 1..8 {
            let asked = whole * part / 8;
            let past = history.at(Memory::Host, asked, None).unwrap();
            let exact = Reading::of(&path, None, HeapQuery::At(past.time_us)).unwrap();
            let (held, at) = (past.whole.bytes as f64, exact.stack_profile().whole().bytes as f64);
            // The moment is the highest within its microsecond; the other reading is of the end of it.
            assert!((held - at).abs() <= 0.02 * at.max(1.0), "{part}: {held} and {at}");
            assert!(past.time_us >= last);
            last = past.time_us;
            let lines = past.lines();
            assert!(lines.iter().map(|line| line.own.bytes).sum::<u64>() <= past.whole.bytes);
            let one = past.threads.iter().find(|(_, _, weight)| weight.bytes > 0).unwrap();
            let of_one = history.at(Memory::Host, asked, Some(one.0)).unwrap();
            assert_eq!(of_one.whole, one.2);
        }
        assert!(history.at("cuda:0".parse().unwrap(), 1, None).is_err());
    }
}
