//! Where the content of a file goes: the terms that every format is read into.
//!
//! Two kinds of formats use it. One lists every allocation and free in order (`allocate`, `free`, `at`); the other lists what stacks held
//! (`hold`). A file never uses both.

use stormlog_model::memory::Memory;
use stormlog_model::stacks::{FrameKind, Weight};

/// A stack: the node of its innermost frame.
pub type Node = u32;
/// The stack of no frames.
pub const ROOT: Node = 0;

/// One place in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A place whose name the file has.
    Code {
        /// Python, native, or a remark.
        kind: FrameKind,
        /// Function, or the address where the file has no name.
        function: &'a str,
        /// Source file or library; empty when unknown.
        file: &'a str,
        /// Line; 0 when unknown.
        line: u32,
    },
    /// A return address in one of the modules.
    Address(u64),
}

/// A loaded library or program.
#[derive(Debug, Clone, Copy)]
pub struct Module<'a> {
    /// Its file.
    pub path: &'a str,
    /// What was added to the addresses in the file.
    pub base: u64,
    /// Its executable segments in memory, start and end.
    pub segments: &'a [(u64, u64)],
    /// Its build id, or nothing.
    pub build_id: &'a [u8],
}

/// Where memory came from.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Whose memory it is.
    pub memory: Memory,
    /// The stack.
    pub node: Node,
    /// The thread's number, 0 when unknown.
    pub thread: u64,
    /// Its name, where the file has one.
    pub thread_name: Option<&'a str>,
}

impl Site<'_> {
    /// A stack of an unknown thread.
    #[must_use]
    pub fn of(memory: Memory, node: Node) -> Self {
        Site { memory, node, thread: 0, thread_name: None }
    }
}

/// What a stack held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// At the peak.
    pub peak: Weight,
    /// At the end.
    pub live: Weight,
    /// All that was ever allocated; `None` where the file does not count it.
    pub total: Option<Weight>,
}

impl Held {
    /// Of a file that knows one moment.
    #[must_use]
    pub fn at_one_moment(weight: Weight, total: Option<Weight>) -> Self {
        Held { peak: weight, live: weight, total }
    }
}

/// The recorded process, as far as the file knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its command line.
    pub command: Vec<String>,
    /// Its number; 0 when unknown.
    pub pid: u32,
    /// When the recording began, nanoseconds since 1970; 0 when unknown.
    pub started_ns: u64,
}

/// Takes the content of a file.
pub trait Sink {
    /// The recorded process.
    fn about(&mut self, about: About);

    /// A module. Addresses that come later belong to the modules that came before.
    fn module(&mut self, module: Module<'_>);

    /// The stack `parent` with one more frame inside.
    fn node(&mut self, parent: Node, step: Step<'_>) -> Node;

    /// What a stack held.
    fn hold(&mut self, site: Site<'_>, held: Held);

    /// How much there was at a moment, where blocks are not known one by one.
    fn level(&mut self, time_us: u64, bytes: u64);

    /// A block comes.
    fn allocate(&mut self, site: Site<'_>, address: u64, size: u64);

    /// A block goes, freed by this thread.
    fn free(&mut self, memory: Memory, thread: u64, address: u64, size: u64);

    /// What a device's allocator has handed out after the next block came or went, and what it holds from the device.
    fn allocator(&mut self, memory: Memory, allocated: u64, reserved: u64);

    /// The clock: microseconds since the start.
    fn at(&mut self, time_us: u64);

    /// Resident memory at this moment.
    fn resident(&mut self, bytes: u64);

    /// A sentence that every view must show: what the file cannot tell.
    fn note(&mut self, sentence: String);
}
