//! Bounds on what a small file can grow to before a parser sees it: bytes that unpack to a flood, a JSON text without an end.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::rc::Rc;

use crate::error::SnapshotError;

/// No function name, path or note is longer.
pub(super) const MAX_STRING: u64 = 16 << 20;
/// Values that belong to containers which are still being read. Traces are folded as they are read, so an honest file has a few thousand.
pub(super) const MAX_PENDING: usize = 4 << 20;
/// What any compressed file may unpack to.
const ALWAYS_UNPACKED: u64 = 64 << 20;
/// What each byte of the file may unpack to beyond that. JSON repeats its stacks with every event and reaches a few hundred.
const UNPACKED_PER_BYTE: u64 = 1000;

/// The bytes of the file itself read so far.
#[derive(Clone)]
pub(super) struct Tally(Rc<Cell<u64>>);

impl Tally {
    /// `source`, and the count of what is read from it.
    pub(super) fn of<R: Read>(source: R) -> (CountedReader<R>, Tally) {
        let tally = Tally(Rc::default());
        (CountedReader { source, tally: tally.clone() }, tally)
    }
}

pub(super) struct CountedReader<R> {
    source: R,
    tally: Tally,
}

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.tally.0.set(self.tally.0.get() + count as u64);
        Ok(count)
    }
}

/// What a decompressor gives, up to the limit.
pub(super) struct Unpacked<R> {
    decoder: R,
    file: Tally,
    bytes: u64,
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(decoder: R, file: &Tally) -> Self {
        Unpacked { decoder, file: file.clone(), bytes: 0 }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.bytes += count as u64;
        let limit = ALWAYS_UNPACKED.max(self.file.0.get().saturating_mul(UNPACKED_PER_BYTE));
        if self.bytes > limit {
            return Err(io::Error::other(Excess::Unpacked { limit }));
        }
        Ok(count)
    }
}

/// A JSON text, byte for byte, in which no string or number is too long for memory.
pub(super) struct Tokens<R> {
    source: R,
    bytes: u64,
    /// Bytes since the last delimiter.
    run: u64,
    in_string: bool,
    is_escaped: bool,
}

impl<R: Read> Tokens<R> {
    pub(super) fn new(source: R) -> Self {
        Tokens { source, bytes: 0, run: 0, in_string: false, is_escaped: false }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.bytes
    }

    fn follow(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.run += 1;
            match (self.in_string, byte) {
                (true, _) if self.is_escaped => self.is_escaped = false,
                (true, b'\\') => self.is_escaped = true,
                (_, b'"') => (self.in_string, self.run) = (!self.in_string, 0),
                (true, _) => {}
                (false, b',' | b':' | b'[' | b']' | b'{' | b'}') => self.run = 0,
                // Space is skipped, not kept.
                (false, b' ' | b'\n' | b'\r' | b'\t') => self.run = 0,
                (false, _) => {}
            }
        }
    }
}

impl<R: Read> Read for Tokens<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.follow(buffer.get(..count).unwrap_or(&[]));
        self.bytes += count as u64;
        if self.run > MAX_STRING {
            return Err(io::Error::other(Excess::Token { length: self.run, at: self.bytes - self.run }));
        }
        Ok(count)
    }
}

/// A limit that was passed, on its way through the readers.
#[derive(Debug, Clone, Copy)]
enum Excess {
    Unpacked { limit: u64 },
    Token { length: u64, at: u64 },
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit was passed")
    }
}

impl std::error::Error for Excess {}

/// The error for what a reader reported after `at` bytes.
pub(super) fn read_error(at: u64, source: io::Error) -> SnapshotError {
    let excess = source.get_ref().and_then(|inner| inner.downcast_ref::<Excess>());
    match (excess, source.kind()) {
        (Some(&Excess::Unpacked { limit }), _) => SnapshotError::Unpacked { limit },
        (Some(&Excess::Token { length, at }), _) => SnapshotError::TooLong { length, limit: MAX_STRING, at },
        (None, io::ErrorKind::UnexpectedEof) => SnapshotError::Truncated { at },
        (None, _) => SnapshotError::Read { at, source },
    }
}
