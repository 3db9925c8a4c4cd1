//! A capture, read for one query.

use std::cell::{OnceCell, RefCell};
use std::path::Path;

use serde_json::Value;
use stormlog_heap::{Capture, GroupBy, Heap, HeapError, Mode, Names, Profile, Stats};
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::stacks::StackProfile;

use crate::error::ViewError;
use crate::exit_state::End;
use crate::find::{Chosen, find};
use crate::heap_query::{Ask, HeapQuery};

/// How many places the figures list.
const TOP: usize = 10;

/// A capture that was read, and what was asked of it.
pub struct Reading {
    /// Where it is.
    pub chosen: Chosen,
    /// What was asked.
    pub query: HeapQuery,
    /// Everything it says.
    pub heap: Heap,
    /// How its process ended.
    pub end: End,
    /// The first memory of the capture, and the others.
    first: View,
    others: Vec<View>,
    /// Tables of symbols are large: each is read once.
    names: RefCell<Names>,
}

/// What is kept of one memory between two readings.
struct View {
    memory: Memory,
    /// Memory over time.
    moments: Vec<HeapPoint>,
    knows_when: bool,
    /// Its figures, made when they are requested: to name native functions takes long.
    stats: OnceCell<Stats>,
}

impl View {
    /// Of the selected memory.
    fn of(heap: &Heap, query: HeapQuery) -> Self {
        let mut moments = moments(heap);
        add_code_end(&mut moments, heap);
        let knows_when = heap.has_totals() && knows_when(&moments, query);
        View { memory: heap.memory(), moments, knows_when, stats: OnceCell::new() }
    }
}

/// The heap at one moment: where it was largest within a stretch of time, or the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapPoint {
    /// Microseconds since the start.
    pub time_us: u64,
    /// Bytes on the heap.
    pub bytes: u64,
    /// Changes of the heap before it; all ones for the end, which no change passes.
    pub(crate) change: u64,
}

/// The result of a query, and when its memory came and went.
pub struct HeapQueryResult {
    /// Stacks and what they hold.
    pub held: StackProfile,
    /// By which allocators.
    pub allocators: Vec<stormlog_heap::AllocatorShare>,
    /// When, in places of [`HeapQueryResult::moments`]; empty when this was not asked for.
    pub lives: Vec<stormlog_heap::Lifetime>,
    /// Memory over time.
    pub moments: Vec<HeapPoint>,
    /// The moment of [`HeapQueryResult::moments`] at which the program's own code had ended; the last where that was not seen.
    pub end: usize,
}

impl Reading {
    /// Reads the capture at `path` (of a run: that of `pid`, or of its main process) for `query`.
    pub fn of(path: &Path, pid: Option<u32>, ask: impl Into<Ask>) -> Result<Reading, ViewError> {
        Reading::with(find(path, pid)?, ask, 200, |_| false)
    }

    /// Reads a capture whose process has ended and which no compactor works on: no record is copied beforehand.
    pub fn still(path: &Path, ask: impl Into<Ask>) -> Result<Reading, ViewError> {
        let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
        Reading::of_capture(&Capture::open_still(path)?, chosen, ask.into(), 2, |_| false)
    }

    /// Reads a capture; where `wants_lives` says so, once more to learn when the memory of each stack came and went, at a resolution of at most `points`
    /// moments, which the first reading finds.
    pub fn with(
        chosen: Chosen,
        ask: impl Into<Ask>,
        points: usize,
        wants_lives: impl FnOnce(&Heap) -> bool,
    ) -> Result<Reading, ViewError> {
        let capture = Capture::open(&chosen.path)?;
        Reading::of_capture(&capture, chosen, ask.into(), points, wants_lives)
    }

    fn of_capture(
        capture: &Capture,
        chosen: Chosen,
        Ask { query, memory }: Ask,
        points: usize,
        wants_lives: impl FnOnce(&Heap) -> bool,
    ) -> Result<Reading, ViewError> {
        let mut options = query.options();
        options.curve_points = points;
        let mut heap = capture.read(options.clone())?;
        let selection = memory.unwrap_or_else(|| heap.selection());
        let mut memories = heap.memories().into_iter();
        heap.select(Selection::One(memories.next().unwrap_or_default()))?;
        let (first, mut others) = (View::of(&heap, query), Vec::new());
        for memory in memories {
            heap.select(Selection::One(memory))?;
            others.push(View::of(&heap, query));
        }
        heap.select(selection)?;
        if !heap.has_totals() && matches!(query, HeapQuery::At(_) | HeapQuery::Span(..)) {
            let (path, until_us) = (chosen.path, heap.duration_us());
            return Err(HeapError::Folded { path, until_us }.into());
        }
        if let Some(imported) = heap.imported.as_ref().filter(|imported| !imported.has_blocks)
            && matches!(query, HeapQuery::Temporary(_))
        {
            return Err(HeapError::NoMoments { path: chosen.path, format: imported.format }.into());
        }
        let mut names = Names::default();
        let views = || std::iter::once(&first).chain(&others);
        if views().any(|view| view.knows_when) && wants_lives(&heap) {
            for view in views() {
                heap.select(Selection::One(view.memory))?;
                // The second reading does not look for temporary allocations.
                let _ = view.stats.set(heap.stats(TOP, Some(&mut names)));
            }
            drop(heap);
            for view in views().filter(|view| view.knows_when) {
                let changes = view.moments.iter().map(|moment| moment.change).collect();
                match view.memory {
                    Memory::Host => options.moments = changes,
                    device => options.device_moments.push((device, changes)),
                }
            }
            heap = capture.read(options)?;
            heap.select(selection)?;
        }
        let (names, end) = (RefCell::new(names), End::of(&heap));
        Ok(Reading { chosen, query, heap, end, first, others, names })
    }

    /// Runs the same query on another memory, or of all.
    pub fn select(&mut self, selection: Selection) -> Result<(), ViewError> {
        Ok(self.heap.select(selection)?)
    }

    /// What is kept of the memory that figures are of.
    fn view(&self) -> &View {
        let memory = self.heap.memory();
        self.others.iter().find(|view| view.memory == memory).unwrap_or(&self.first)
    }

    /// Memory over time.
    #[must_use]
    pub fn moments(&self) -> &[HeapPoint] {
        &self.view().moments
    }

    /// The figures, with the responsible lines.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.view().stats.get_or_init(|| self.stats_by(GroupBy::Line, TOP))
    }

    /// The figures, with the `top` largest places of one sort. Not of a reading that was made twice, which has [`stats`](Self::stats).
    #[must_use]
    pub fn stats_by(&self, by: GroupBy, top: usize) -> Stats {
        self.heap.stats_by(by, top, Some(&mut *self.names.borrow_mut()))
    }

    /// The answer.
    #[must_use]
    pub fn stack_profile(&self) -> StackProfile {
        self.answer().held
    }

    /// The answer, and when its memory came and went where that was requested.
    #[must_use]
    pub fn answer(&self) -> HeapQueryResult {
        let profile = self.heap.profile(self.mode(), Some(&mut *self.names.borrow_mut()));
        let Profile { held, allocators, lifetimes, moments: kept } = profile;
        let moments = match lifetimes.is_empty() {
            true => self.moments().to_vec(),
            false => kept.iter().filter_map(|place| self.moments().get(*place).copied()).collect(),
        };
        let last = moments.len().saturating_sub(1);
        let end = match self.heap.code_end() {
            // Where moments were given up, the nearest one before it is left.
            Some((_, change)) => moments.iter().rposition(|moment| moment.change <= change).unwrap_or(last),
            None => last,
        };
        HeapQueryResult { held, allocators, lives: lifetimes, moments, end }
    }

    /// As [`answer`](Self::answer) to what was left, of a capture whose records are folded: by a bounded number of looks, each with the largest stacks.
    /// `None` where it keeps none.
    #[must_use]
    pub fn folded_answer(&self) -> Option<HeapQueryResult> {
        let (profile, looks) = self.heap.folded_lives(Some(&mut *self.names.borrow_mut()))?;
        let moments = looks.into_iter().map(|(time_us, bytes)| HeapPoint { time_us, bytes, change: 0 });
        let moments: Vec<HeapPoint> = moments.collect();
        let end = moments.len().saturating_sub(1);
        let Profile { held, allocators, lifetimes: lives, .. } = profile;
        Some(HeapQueryResult { held, allocators, lives, moments, end })
    }

    /// All that was ever allocated, whatever was asked: how often and how much, without when.
    #[must_use]
    pub fn allocated(&self) -> HeapQueryResult {
        let Profile { held, allocators, .. } =
            self.heap.profile(Mode::Total, Some(&mut *self.names.borrow_mut()));
        HeapQueryResult { held, allocators, lives: Vec::new(), moments: Vec::new(), end: 0 }
    }

    /// Where the reader keeps the answer. A program that died of a failed request ran until its exception had released everything.
    fn mode(&self) -> Mode {
        if self.is_at_failure() { Mode::Failure } else { self.query.mode() }
    }

    /// The query in words that fit what is known: what still runs has not died, and may yet free what it holds.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.query, &self.end) {
            (HeapQuery::AtDeath, End::Running) => "now".to_owned(),
            (HeapQuery::Leaks, End::Running) => "not freed so far".to_owned(),
            (HeapQuery::Leaks, _) if self.heap.code_end().is_some() => {
                "alive when the program's own code had ended".to_owned()
            }
            (query, _) => query.words(),
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

    /// When the recording began, nanoseconds since 1970.
    #[must_use]
    pub fn started_at_ns(&self) -> u64 {
        self.heap.header.start_realtime_ns
    }

    /// Whether the capture has the times of allocations and frees. One without individual records (`--aggregate`, `--max-size`) does not.
    #[must_use]
    pub fn knows_when(&self) -> bool {
        self.heap.selection() != Selection::All && self.view().knows_when
    }

    /// The program, and which of its memories is shown where that is not the host's.
    #[must_use]
    pub fn subject(&self) -> String {
        match self.heap.selection() {
            Selection::One(Memory::Host) => self.program(),
            selection => format!("{}, {selection}", self.program()),
        }
    }

    /// What a picture shows: the program, whose memory, which.
    #[must_use]
    pub fn title(&self) -> String {
        let memory = match self.heap.selection() {
            Selection::One(Memory::Host) => "memory".to_owned(),
            Selection::One(device) => format!("{device} memory"),
            Selection::All => "all memory".to_owned(),
        };
        format!("{}: {memory} {}", self.program(), self.words())
    }

    /// Whether the answer is the heap at a request that failed.
    pub(crate) fn is_at_failure(&self) -> bool {
        self.query == HeapQuery::AtDeath && self.heap.complete && self.heap.knows_failure()
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

fn moments(heap: &Heap) -> Vec<HeapPoint> {
    let points = heap.curve().iter();
    let mut list: Vec<HeapPoint> = points
        .map(|point| HeapPoint { time_us: point.time_us, bytes: point.max_bytes, change: point.max_change })
        .collect();
    let end = heap.curve().last().map_or(0, |point| point.bytes);
    // No change has this number: it never passes before the end.
    list.push(HeapPoint { time_us: heap.duration_us(), bytes: end, change: u64::MAX });
    list
}

/// The moment at which the program's own code had ended, among the others.
fn add_code_end(moments: &mut Vec<HeapPoint>, heap: &Heap) {
    let Some((time_us, change)) = heap.code_end().filter(|(_, change)| *change > 0) else { return };
    let at = moments.partition_point(|moment| moment.change < change);
    let is_there = moments.get(at).is_some_and(|moment| moment.change == change);
    if !is_there {
        moments.insert(at, HeapPoint { time_us, bytes: heap.leaked().bytes, change });
    }
}

/// Folded records cannot be distinguished any more, and temporary allocations are not a state of the heap.
fn knows_when(moments: &[HeapPoint], query: HeapQuery) -> bool {
    !matches!(query, HeapQuery::Temporary(_))
        && moments.iter().all(|moment| moment.change > 0 || moment.bytes == 0)
}
