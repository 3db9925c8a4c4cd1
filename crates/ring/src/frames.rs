//! Append-only frames in a chain: the body of a log segment, and the definitions of a ring.
//!
//! A frame is claimed by one compare-and-swap of its first word from zero to *reserved*, which also publishes its
//! length and its writer. So the chain never has a hole: whichever writer dies, and wherever, the next writer and
//! every reader step over what it left. The tail is only a hint that spares walking the chain.
//!
//! Must never return a frame that was not committed whole, and never index with a length it has not checked.

use crate::layout::{END, MAX_PAYLOAD, PID_MASK, checksum, load_bytes, store_bytes, words_for};
use crate::sync::{AtomicU64, Ordering};

const LENGTH: u64 = MAX_PAYLOAD as u64;
const KIND_SHIFT: u32 = 24;
const DEFINITION: u64 = 1 << 32;
const PID_SHIFT: u32 = 40;
const STATE: u64 = 3 << 62;
const RESERVED: u64 = 1 << 62;
const COMMITTED: u64 = 2 << 62;
const USED_BITS: u64 = STATE | PID_MASK << PID_SHIFT | DEFINITION | 0xff << KIND_SHIFT | LENGTH;
/// Words before the payload.
const LEAD: usize = 2;

/// A frame area: its words, and the hint where its free part begins.
#[derive(Clone, Copy)]
pub struct Frames<'a> {
    words: &'a [AtomicU64],
    tail: &'a AtomicU64,
}

/// There is no room for this frame, or the chain has been ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// A claimed frame that its owner has still to fill.
#[must_use = "a reserved frame holds up live readers until it is filled"]
pub struct Reservation {
    at: usize,
    tag: u64,
}

/// What a frame is, beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The caller's record kind.
    pub kind: u8,
    /// Whether the payload is a definition.
    pub definition: bool,
    /// The process that wrote it.
    pub pid: u32,
}

/// What a reader finds at its position.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole frame; its payload is in the reader's buffer and the cursor is behind it.
    Frame(Frame),
    /// A frame its owner has not finished. The cursor stays; `next` is where it may be moved.
    Reserved {
        /// The owner.
        pid: u32,
        /// The position after the frame.
        next: usize,
    },
    /// Something that is not a frame, or not the frame that was written. The cursor is at the next good one.
    Damaged,
    /// Nothing yet.
    Empty,
    /// The chain was ended here; nothing will follow.
    End,
}

/// A reader's position in a frame area.
#[derive(Debug, Clone)]
pub struct Cursor {
    at: usize,
    // Words that may still be spent looking for good frames behind damaged ones, so that a hostile file
    // cannot make one reading take quadratic time.
    effort: usize,
}

enum Word {
    Empty,
    End,
    Frame { length: usize, committed: bool },
    Broken,
}

fn parse(word: u64) -> Word {
    match word & STATE {
        _ if word == 0 => Word::Empty,
        _ if word == END => Word::End,
        state @ (RESERVED | COMMITTED) if word & !USED_BITS == 0 => {
            Word::Frame { length: (word & LENGTH) as usize, committed: state == COMMITTED }
        }
        _ => Word::Broken,
    }
}

impl Frame {
    fn tag(self, length: usize) -> u64 {
        let definition = if self.definition { DEFINITION } else { 0 };
        let pid = u64::from(self.pid) & PID_MASK;
        pid << PID_SHIFT | definition | u64::from(self.kind) << KIND_SHIFT | length as u64
    }

    fn from_tag(tag: u64) -> Self {
        Frame {
            kind: (tag >> KIND_SHIFT) as u8,
            definition: tag & DEFINITION != 0,
            pid: (tag >> PID_SHIFT & PID_MASK) as u32,
        }
    }
}

impl Cursor {
    /// The start of an area of `words` words.
    pub fn start(words: usize) -> Self {
        Cursor { at: 0, effort: words.saturating_mul(8) }
    }

    /// Leaves the current frame permanently. `next` is what [`Step::Reserved`] gave.
    pub fn skip_to(&mut self, next: usize) {
        self.at = next;
    }
}

impl<'a> Frames<'a> {
    /// An area whose hint is `tail`.
    pub fn new(words: &'a [AtomicU64], tail: &'a AtomicU64) -> Self {
        Frames { words, tail }
    }

    /// Words a payload of `length` bytes takes.
    pub fn cost(length: usize) -> usize {
        LEAD + words_for(length)
    }

    /// The most words all frames together can take: one word stays free for the end mark.
    pub fn capacity(&self) -> usize {
        self.words.len().saturating_sub(1)
    }

    /// Writes one frame. Once this returns `Ok`, the frame survives the death of the process.
    pub fn append(&self, frame: Frame, payload: &[u8]) -> Result<(), Full> {
        let reservation = self.reserve(frame, payload.len())?;
        self.fill(reservation, payload);
        Ok(())
    }

    /// Claims the next `length`-byte frame. `length` is at most [`MAX_PAYLOAD`]; the callers check.
    pub fn reserve(&self, frame: Frame, length: usize) -> Result<Reservation, Full> {
        let tag = frame.tag(length);
        let cost = Self::cost(length);
        let mut at = self.hint();
        loop {
            if at + cost > self.capacity() {
                return Err(Full);
            }
            match self.words[at].compare_exchange(0, RESERVED | tag, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(word) => at = self.after(at, word).ok_or(Full)?,
            }
        }
        // Pairs with `hint`: a thread that starts behind this frame has seen its first word, so that a thread that hears of an append
        // can walk all the way to it.
        self.tail.fetch_max((at + cost) as u64, Ordering::Release);
        Ok(Reservation { at, tag })
    }

    /// Writes the payload of a claimed frame and commits it.
    pub fn fill(&self, Reservation { at, tag }: Reservation, payload: &[u8]) {
        let crc = checksum(at as u64, tag, payload);
        self.words[at + 1].store(u64::from(crc), Ordering::Relaxed);
        store_bytes(&self.words[at + LEAD..], payload);
        // Pairs with the acquiring load in `step`: a thread that sees the frame committed also sees its content.
        self.words[at].store(COMMITTED | tag, Ordering::Release);
    }

    /// Ends the chain and returns the length of what is used, in words, the end mark included.
    pub fn seal(&self) -> usize {
        let mut at = self.hint();
        while let Some(word) = self.words.get(at) {
            match word.compare_exchange(0, END, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) | Err(END) => return at + 1,
                Err(found) => match self.after(at, found) {
                    Some(next) => at = next,
                    None => break,
                },
            }
        }
        self.words.len()
    }

    /// Whether the chain has been ended.
    pub fn is_sealed(&self) -> bool {
        let mut at = self.hint();
        while let Some(word) = self.words.get(at).map(|word| word.load(Ordering::Relaxed)) {
            match self.after(at, word) {
                Some(next) => at = next,
                None => return word == END,
            }
        }
        false
    }

    /// Looks at the cursor's position. A frame's payload replaces the content of `payload`.
    pub fn step(&self, cursor: &mut Cursor, payload: &mut Vec<u8>) -> Step {
        let Some(word) = self.words.get(cursor.at).map(|word| word.load(Ordering::Acquire)) else {
            return Step::Empty;
        };
        match parse(word) {
            Word::Empty => Step::Empty,
            Word::End => Step::End,
            Word::Frame { length, committed } if cursor.at + Self::cost(length) <= self.words.len() => {
                let next = cursor.at + Self::cost(length);
                if !committed {
                    Step::Reserved { pid: Frame::from_tag(word).pid, next }
                } else if self.load(cursor.at, word & !STATE, length, payload) {
                    cursor.at = next;
                    Step::Frame(Frame::from_tag(word))
                } else {
                    self.resync(cursor, payload)
                }
            }
            Word::Frame { .. } | Word::Broken => self.resync(cursor, payload),
        }
    }

    /// Moves the cursor from a damaged place to the next frame that proves itself, or to the end of the area.
    fn resync(&self, cursor: &mut Cursor, payload: &mut Vec<u8>) -> Step {
        for at in cursor.at + 1..self.words.len() {
            let word = self.words[at].load(Ordering::Acquire);
            let (cost, found) = match parse(word) {
                Word::End => (1, true),
                Word::Frame { length, committed: true } if at + Self::cost(length) <= self.words.len() => {
                    (Self::cost(length), self.load(at, word & !STATE, length, payload))
                }
                _ => (1, false),
            };
            cursor.effort = cursor.effort.saturating_sub(cost);
            if found || cursor.effort == 0 {
                cursor.at = if found { at } else { self.words.len() };
                return Step::Damaged;
            }
        }
        cursor.at = self.words.len();
        Step::Damaged
    }

    /// Copies a committed frame's payload out and says whether the checksum proves it.
    fn load(&self, at: usize, tag: u64, length: usize, payload: &mut Vec<u8>) -> bool {
        payload.clear();
        load_bytes(&self.words[at + LEAD..], length, payload);
        self.words[at + 1].load(Ordering::Relaxed) == u64::from(checksum(at as u64, tag, payload))
    }

    fn hint(&self) -> usize {
        self.tail.load(Ordering::Acquire).min(self.words.len() as u64) as usize
    }

    /// The position after the frame at `at`, when `word` is a frame's that ends within the area.
    fn after(&self, at: usize, word: u64) -> Option<usize> {
        match parse(word) {
            Word::Frame { length, .. } => {
                Some(at + Self::cost(length)).filter(|&next| next <= self.words.len())
            }
            Word::Empty | Word::End | Word::Broken => None,
        }
    }
}
