//! Strings, frames and stacks, each stored once and named by a small number.
//!
//! A snapshot repeats a few hundred stacks hundreds of thousands of times; interning them by value while
//! reading is what keeps a gigabyte file in a few hundred megabytes.

use std::hash::{BuildHasher, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// A string of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub(crate) u32);

/// A frame of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// A stack of the snapshot: frames, innermost first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// The stack with no frames: none was recorded.
    pub const EMPTY: StackId = StackId(0);

    /// Its place in a table of stacks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// Its place in a table of frames.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One frame as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function name.
    pub name: StrId,
    /// Source file, `??` for unresolved native frames.
    pub filename: StrId,
    /// Line, 0 when unknown.
    pub line: u32,
    /// Keys we do not know, as one JSON object; the empty string when there are none.
    pub extra: StrId,
}

/// Slices of `T` stored end to end, each once.
#[derive(Debug, Clone)]
struct Slices<T> {
    data: Vec<T>,
    ends: Vec<u32>,
    by_hash: FxHashMap<u64, Vec<u32>>,
}

impl<T: Copy + Eq + Hash> Slices<T> {
    fn new() -> Self {
        Slices { data: Vec::new(), ends: Vec::new(), by_hash: FxHashMap::default() }
    }

    fn get(&self, id: u32) -> &[T] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends.get(id - 1).copied().unwrap_or(0) as usize };
        let end = self.ends.get(id).copied().unwrap_or(0) as usize;
        self.data.get(start..end).unwrap_or(&[])
    }

    fn add(&mut self, slice: &[T]) -> u32 {
        let hash = FxBuildHasher.hash_one(slice);
        if let Some(ids) = self.by_hash.get(&hash)
            && let Some(&id) = ids.iter().find(|&&id| self.get(id) == slice)
        {
            return id;
        }
        let id = self.ends.len() as u32;
        self.data.extend_from_slice(slice);
        self.ends.push(self.data.len() as u32);
        self.by_hash.entry(hash).or_default().push(id);
        id
    }
}

/// Every string, frame and stack of one snapshot.
#[derive(Debug, Clone)]
pub struct Tables {
    strings: Slices<u8>,
    frames: Vec<Frame>,
    frame_ids: FxHashMap<Frame, u32>,
    stacks: Slices<u32>,
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    /// Empty, but for the empty string and the empty stack.
    pub fn new() -> Self {
        let mut tables = Tables {
            strings: Slices::new(),
            frames: Vec::new(),
            frame_ids: FxHashMap::default(),
            stacks: Slices::new(),
        };
        tables.stacks.add(&[]);
        tables
    }

    /// The text of a string; bytes that are no UTF-8 are shown as replacement characters by the reader.
    pub fn text(&self, id: StrId) -> &str {
        std::str::from_utf8(self.strings.get(id.0)).unwrap_or("")
    }

    /// A frame.
    pub fn frame(&self, id: FrameId) -> Frame {
        let unknown = Frame { name: StrId(0), filename: StrId(0), line: 0, extra: StrId(0) };
        self.frames.get(id.0 as usize).copied().unwrap_or(unknown)
    }

    /// The frames of a stack, innermost first.
    pub fn stack(&self, id: StackId) -> impl ExactSizeIterator<Item = FrameId> + Clone + '_ {
        self.stacks.get(id.0).iter().map(|&frame| FrameId(frame))
    }

    /// How many distinct stacks there are.
    pub fn stack_count(&self) -> usize {
        self.stacks.ends.len()
    }

    /// How many distinct frames there are.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn raw_stack(&self, id: u32) -> &[u32] {
        self.stacks.get(id)
    }

    /// Bytes of text and frame references held, for the reader's limits.
    pub(crate) fn weight(&self) -> usize {
        self.strings.data.len() + self.stacks.data.len() * 4
    }

    pub(crate) fn add_text(&mut self, text: &str) -> StrId {
        StrId(self.strings.add(text.as_bytes()))
    }

    pub(crate) fn add_frame(&mut self, frame: Frame) -> FrameId {
        let next = self.frames.len() as u32;
        let id = *self.frame_ids.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        FrameId(id)
    }

    pub(crate) fn add_stack(&mut self, frames: &[u32]) -> StackId {
        StackId(self.stacks.add(frames))
    }
}
