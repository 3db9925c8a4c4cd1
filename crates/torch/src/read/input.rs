//! A window over a byte stream: as large as the largest single value, never the whole file.

use std::io::Read;

use super::limits;
use crate::error::SnapshotError;

const WINDOW: usize = 256 * 1024;

pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes consumed before `start`.
    passed: u64,
    ended: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Input { source, buffer: vec![0; WINDOW], start: 0, end: 0, passed: 0, ended: false }
    }

    /// The current bytes.
    pub(super) fn window(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or(&[])
    }

    /// Where the window starts in the stream.
    pub(super) fn position(&self) -> u64 {
        self.passed
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        self.passed += count as u64;
    }

    /// Makes the window at least `wanted` bytes long, or says that the stream is too short.
    pub(super) fn want(&mut self, wanted: usize) -> Result<(), SnapshotError> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted.next_power_of_two(), 0);
        }
        while self.end < wanted {
            if self.ended {
                return Err(SnapshotError::Truncated { at: self.passed + self.end as u64 });
            }
            let room = self.buffer.get_mut(self.end..).unwrap_or(&mut []);
            match self.source.read(room) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(limits::read_error(self.passed + self.end as u64, source)),
            }
        }
        Ok(())
    }

    /// Reads what is left for its checksum's sake: a compressed file that is damaged says so at its end.
    pub(super) fn drain(&mut self) -> Result<(), SnapshotError> {
        let at = self.passed;
        while !self.ended {
            match self.source.read(&mut self.buffer) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(limits::read_error(at, source)),
            }
        }
        Ok(())
    }
}
