//! A capture, read for one question.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;
use stormlog_heap::{Capture, Heap, HeapError, Names, Profile, Stats};
use stormlog_model::stacks::{Holding, Holdings};

use crate::end::End;
use crate::error::ViewError;
use crate::find::{Chosen, find};
use crate::holdings;
use crate::question::Question;

/// How many places the figures list.
const TOP: usize = 10;

/// A capture that was read, and what was asked of it.
pub struct Reading {
    /// Where it is.
    pub chosen: Chosen,
    /// What was asked.
    pub question: Question,
    /// Everything it says.
    pub heap: Heap,
    /// Its figures.
    pub stats: Stats,
    /// How its process ended.
    pub end: End,
    /// Memory over time.
    pub moments: Vec<Moment>,
    /// The answer is the heap at the only moment that was looked at.
    is_moment: bool,
    knows_when: bool,
    /// Tables of symbols are large: each is read once.
    names: RefCell<Names>,
}

/// The heap at one moment: where it was largest within a stretch of time, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the start.
    pub time_us: u64,
    /// Bytes on the heap.
    pub bytes: u64,
    /// Changes of the heap before it; all ones for the end, which no change passes.
    pub(crate) change: u64,
}

/// The answer, and when its memory came and went.
pub struct Answer {
    /// Stacks and what they hold.
    pub held: Holdings,
    /// By which allocators; empty for the heap at a failed request.
    pub allocators: Vec<stormlog_heap::AllocatorShare>,
    /// When, in places of [`Answer::moments`]; empty when nobody asked.
    pub lives: Vec<stormlog_heap::Lifetime>,
    /// Memory over time.
    pub moments: Vec<Moment>,
    /// The moment of [`Answer::moments`] at which the program's own code had ended; the last where that was not seen.
    pub end: usize,
}

impl Reading {
    /// Reads the capture at `path` (of a run: that of `pid`, or of its main process) for `question`.
    pub fn of(path: &Path, pid: Option<u32>, question: Question) -> Result<Reading, ViewError> {
        Reading::with(find(path, pid)?, question, 200, |_| false)
    }

    /// Reads a capture; where `wants_lives` says so, once more to learn when the memory of each stack came and went, told by at most `points`
    /// moments.
    pub fn with(
        chosen: Chosen,
        question: Question,
        points: usize,
        wants_lives: impl FnOnce(&Heap) -> bool,
    ) -> Result<Reading, ViewError> {
        let capture = Capture::open(&chosen.path)?;
        let mut watch = question.watch();
        watch.curve_points = points;
        let mut heap = capture.read(watch.clone())?;
        let mut moments = moments(&heap);
        add_code_end(&mut moments, &heap);
        let mut names = Names::default();
        // Of the first reading: the second does not look for temporary allocations.
        let stats = heap.stats(TOP, Some(&mut names));
        if !stats.has_totals && matches!(question, Question::At(_) | Question::Span(..)) {
            let (path, until_us) = (chosen.path, heap.duration_us());
            return Err(HeapError::Folded { path, until_us }.into());
        }
        let knows_when = stats.has_totals && knows_when(&moments, question);
        let is_failure = question == Question::AtDeath && heap.complete && knows_when;
        let at_failure = heap.last_failure().filter(|_| is_failure);
        let changes: Vec<u64> = match at_failure {
            Some(change) => vec![change],
            None if knows_when && wants_lives(&heap) => moments.iter().map(|moment| moment.change).collect(),
            None => Vec::new(),
        };
        let is_moment = at_failure.is_some();
        if !changes.is_empty() {
            drop(heap);
            watch.moments = changes;
            heap = capture.read(watch)?;
        }
        let names = RefCell::new(names);
        let end = End::of(&heap);
        Ok(Reading { chosen, question, heap, stats, end, moments, is_moment, knows_when, names })
    }

    /// The answer.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        self.answer().held
    }

    /// The answer, and when its memory came and went where that was asked for.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let profile = self.heap.profile(self.question.mode(), Some(&mut *self.names.borrow_mut()));
        let Profile { frames, nodes, threads, shares, mut allocators, mut lifetimes, moments: kept } =
            profile;
        let (tree, threads) = holdings::tree(frames, &nodes, &threads, self.heap.own_code());
        let rows = if self.is_moment {
            allocators.clear();
            let alive = lifetimes.drain(..).filter(|life| life.birth == 0 && life.death > 0);
            alive.map(|life| row(life.node, life.thread, life.weight)).collect()
        } else {
            shares.into_iter().map(|share| row(share.node, share.thread, share.weight)).collect()
        };
        let moments = match lifetimes.is_empty() {
            true => self.moments.clone(),
            false => kept.iter().filter_map(|place| self.moments.get(*place).copied()).collect(),
        };
        let last = moments.len().saturating_sub(1);
        let end = match self.heap.code_end() {
            // Where moments were given up, the nearest one before it is left.
            Some((_, change)) => moments.iter().rposition(|moment| moment.change <= change).unwrap_or(last),
            None => last,
        };
        Answer { held: Holdings { tree, rows, threads }, allocators, lives: lifetimes, moments, end }
    }

    /// The question in words that fit what is known: what still runs has not died, and may yet free what it holds.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.question, &self.end) {
            (Question::AtDeath, End::Running) => "now".to_owned(),
            (Question::Leaks, End::Running) => "not freed so far".to_owned(),
            (Question::Leaks, _) if self.heap.code_end().is_some() => {
                "alive when the program's own code had ended".to_owned()
            }
            (question, _) => question.words(),
        }
    }

    /// What the user would call the program.
    #[must_use]
    pub fn program(&self) -> String {
        match command(&self.heap) {
            command if command.is_empty() => {
                let name = self.chosen.path.file_name().unwrap_or(self.chosen.path.as_os_str());
                stormlog_model::text::short_name(&name.to_string_lossy())
            }
            command => crate::find::program(&command),
        }
    }

    /// Whether the capture tells when memory came and went. One that keeps no single records (`--aggregate`, `--max-size`) does not.
    #[must_use]
    pub fn knows_when(&self) -> bool {
        self.knows_when
    }

    /// Whether the answer is the heap at a request that failed.
    pub(crate) fn is_at_failure(&self) -> bool {
        self.is_moment
    }
}

/// The command line of the recorded program.
pub(crate) fn command(heap: &Heap) -> Vec<String> {
    let about: Value = serde_json::from_slice(&heap.header.metadata).unwrap_or_default();
    let words = about["command"].as_array().into_iter().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a command line starts Python.
pub(crate) fn is_python(command: &[String]) -> bool {
    let name = command.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    name.is_some_and(|name| name.starts_with("python"))
}

fn row(node: u32, thread: u32, weight: stormlog_heap::Weight) -> Holding {
    Holding { node, thread, bytes: weight.bytes, count: weight.count }
}

fn moments(heap: &Heap) -> Vec<Moment> {
    let points = heap.curve().iter();
    let mut list: Vec<Moment> = points
        .map(|point| Moment { time_us: point.time_us, bytes: point.max_bytes, change: point.max_change })
        .collect();
    let end = heap.curve().last().map_or(0, |point| point.bytes);
    // No change has this number: it never passes before the end.
    list.push(Moment { time_us: heap.duration_us(), bytes: end, change: u64::MAX });
    list
}

/// The moment at which the program's own code had ended, among the others.
fn add_code_end(moments: &mut Vec<Moment>, heap: &Heap) {
    let Some((time_us, change)) = heap.code_end().filter(|(_, change)| *change > 0) else { return };
    let at = moments.partition_point(|moment| moment.change < change);
    let is_there = moments.get(at).is_some_and(|moment| moment.change == change);
    if !is_there {
        moments.insert(at, Moment { time_us, bytes: heap.leaked().bytes, change });
    }
}

/// What was folded away cannot be told apart any more; and temporary allocations are no state of the heap.
fn knows_when(moments: &[Moment], question: Question) -> bool {
    !matches!(question, Question::Temporary(_))
        && moments.iter().all(|moment| moment.change > 0 || moment.bytes == 0)
}
