//! A bounded window sliding over an input: what a record is cut out of.
//!
//! Never holds more than `limit` bytes: a record that does not fit is an error, so ten gigabytes in one line cost
//! sixteen megabytes. Counts lines as bytes are consumed, so that every record can say where it starts.

use std::io::{self, Read};

/// How much is read at a time; large enough that system calls do not matter.
const CHUNK: usize = 1 << 20;
/// The first time less is read: most files are small.
const FIRST_CHUNK: usize = 64 << 10;

pub(crate) struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
    line: u64,
    offset: u64,
    at_eof: bool,
}

/// What happened when more bytes were requested.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    More,
    Eof,
    /// The window is full: what is looked at is larger than any record may be.
    Full,
}

impl<R: Read> Window<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Window { input, buffer: Vec::new(), start: 0, end: 0, limit, line: 1, offset: 0, at_eof: false }
    }

    /// The same for an input that was entered in the middle: on that line, behind that many bytes.
    pub(crate) fn starting_at(mut self, line: u64, offset: u64) -> Self {
        (self.line, self.offset) = (line, offset);
        self
    }

    /// The bytes read and not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The line the next byte is on, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// How many bytes were consumed.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether `bytes` is all that is left.
    pub(crate) fn at_eof(&self) -> bool {
        self.at_eof
    }

    /// Moves past the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        let consumed = &self.buffer[self.start..self.start + count];
        self.line += memchr::memchr_iter(b'\n', consumed).count() as u64;
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads on, keeping what is there.
    pub(crate) fn fill(&mut self) -> io::Result<Filled> {
        if self.at_eof {
            return Ok(Filled::Eof);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end >= self.limit {
            return Ok(Filled::Full);
        }
        let chunk = if self.buffer.is_empty() { FIRST_CHUNK } else { CHUNK };
        if self.buffer.len() < self.end + chunk {
            self.buffer.resize(self.end + chunk, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_eof = true;
                    return Ok(Filled::Eof);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(Filled::More);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Consumes a byte-order mark at the very start, which some editors leave.
    pub(crate) fn skip_mark(&mut self) -> io::Result<()> {
        const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
        while self.bytes().len() < MARK.len() && self.fill()? == Filled::More {}
        if self.bytes().starts_with(&MARK) {
            self.consume(MARK.len());
        }
        Ok(())
    }

    /// Consumes white space; the next byte, or `None` at the end.
    pub(crate) fn next_token(&mut self) -> io::Result<Option<u8>> {
        loop {
            let blank = self.bytes().iter().take_while(|byte| is_space(**byte)).count();
            self.consume(blank);
            if let Some(byte) = self.bytes().first() {
                return Ok(Some(*byte));
            }
            if self.fill()? == Filled::Eof {
                return Ok(None);
            }
        }
    }
}

/// JSON's white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_refuses_to_grow() {
        let mut window = Window::new(&b"\n\n  x\ny"[..], 1 << 20);
        assert_eq!(window.next_token().unwrap(), Some(b'x'));
        assert_eq!((window.line(), window.offset()), (3, 4));
        window.consume(2);
        assert_eq!(window.next_token().unwrap(), Some(b'y'));
        assert_eq!(window.line(), 4);

        let endless = std::io::repeat(b'a');
        let mut window = Window::new(endless, 3 << 20);
        let mut filled = Filled::More;
        while filled == Filled::More {
            filled = window.fill().unwrap();
        }
        assert_eq!(filled, Filled::Full);
        assert!(window.bytes().len() <= 5 << 20);
    }
}
