//! What one look at a recording says: plain values between the reader and the screen.

use std::path::PathBuf;

use serde::Serialize;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::{Frame, StackProfile};
use stormlog_story::lanes::ProcessLanes;

use crate::state::series::Series;

/// One look.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// What is looked at, for the first line of the screen.
    pub title: String,
    /// Where it is recorded, if it is.
    pub(crate) path: Option<PathBuf>,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// All processes of it.
    pub processes: Vec<ProcessRow>,
    /// More about one of them.
    pub chosen: Option<Process>,
    /// The last line the program printed, where that goes to a file.
    pub output: Option<String>,
}

impl Reading {
    /// There is more to be read than was read at this look.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let heap = self.chosen.as_ref().and_then(|process| process.heap.as_ref());
        heap.is_some_and(|heap| heap.behind_seconds.is_some())
    }
}

/// A process in the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// Its name or command.
    pub name: String,
    /// Its rank, in a run of many.
    pub rank: Option<u32>,
    /// Resident bytes now, or when last seen.
    pub rss_bytes: Option<u64>,
    /// It still runs.
    pub is_running: bool,
    /// Its heap is recorded.
    pub has_heap: bool,
}

/// One process.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// How it ended; `None` while it runs.
    pub ended: Option<String>,
    /// Seconds it runs or ran, where known.
    pub seconds: Option<f64>,
    /// Resident bytes over time.
    pub(crate) rss: Series,
    /// Highest resident bytes.
    pub rss_peak: Option<u64>,
    /// Its heap, when it is recorded.
    pub heap: Option<Heap>,
    /// Phases and alerts, newest last.
    pub notes: Vec<Note>,
    /// Phases that are open, outermost first.
    pub phase: Option<String>,
    /// What could not be read.
    pub trouble: Option<String>,
    /// Something of it is or was recorded; else it is only looked at.
    pub is_recorded: bool,
    /// Memory over time, alerts and phases, on an axis of milliseconds since 1970; where they were requested.
    pub(crate) lanes: Option<ProcessLanes>,
}

/// One memory of a process: its heap, or what it holds of a device.
#[derive(Debug, Clone, Default)]
pub struct Heap {
    /// Which.
    pub memory: Memory,
    /// Every memory that is recorded, the host's first.
    pub memories: Vec<MemoryRow>,
    /// Bytes that a device's allocator keeps, in use or not; `None` of the host.
    pub reserved: Option<u64>,
    /// Over time.
    pub(crate) curve: Series,
    /// Bytes that live.
    pub bytes: u64,
    /// Blocks they came in.
    pub count: u64,
    /// Most bytes so far.
    pub peak: u64,
    /// Figures are estimates.
    pub is_sampled: bool,
    /// How much of the recording is still to be read; `None` when these are the figures of now.
    pub behind_seconds: Option<f64>,
    /// Threads, largest first.
    pub threads: Vec<Thread>,
    /// The thread whose lines these are; `None` for all.
    pub thread: Option<u64>,
    /// Who holds it, by line.
    pub lines: Vec<Line>,
    /// The moment that was requested, nanoseconds since 1970; `None`: now.
    pub(crate) at_ns: Option<u64>,
    /// The moment nearest to it that the capture distinguishes: these figures are of that one.
    pub(crate) moment_ns: Option<u64>,
    /// Why the moment cannot be shown.
    pub(crate) past_trouble: Option<String>,
    /// The stacks of the same moment, where they were requested.
    pub(crate) stacks: Option<StackProfile>,
}

/// A memory in the list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryRow {
    /// Which.
    pub memory: Memory,
    /// Bytes that live.
    pub bytes: u64,
    /// Most bytes so far.
    pub peak_bytes: u64,
}

/// What a thread holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Kernel thread id.
    pub id: u64,
    /// Its name, where known.
    pub name: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
}

/// A line of code and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where.
    pub frame: Frame,
    /// Bytes allocated right there.
    pub own_bytes: u64,
    /// Bytes allocated there and in what it called.
    pub total_bytes: u64,
    /// Blocks allocated there and in what it called.
    pub count: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// How bad.
    pub level: Level,
    /// The sentence.
    pub text: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Good to know.
    Info,
    /// To be looked at.
    Warning,
    /// To be looked at now.
    Critical,
}

/// What the screen wants to know at the next look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// More about this process; the first one by default.
    pub pid: Option<u32>,
    /// Lines of this thread only.
    pub thread: Option<u64>,
    /// Of this memory; the host's by default, where it is recorded.
    pub memory: Option<Memory>,
    /// Every name at this look, however long they take to find; else those that are found in time.
    pub waits_for_names: bool,
    /// The heap as it was then, nanoseconds since 1970; `None`: now.
    pub at_ns: Option<u64>,
    /// Memory over time, alerts and phases too.
    pub has_lanes: bool,
    /// The stacks too, for a tree or a flame graph.
    pub has_stacks: bool,
}
