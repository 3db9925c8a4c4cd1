//! Reading a ring: live, after a crash, or years later.
//!
//! Must never return a record that was not appended exactly so, nor wait for a writer.

use std::path::Path;

use crate::error::Error;
use crate::file::StoreFile;
use crate::frames::{Cursor, Step};
use crate::header::Kind;
use crate::record::{Definitions, Loss, ReadStats, Record, Status};
use crate::slots::SlotState;

/// No head is ever here; a larger one is damage, and must not overflow the arithmetic below.
const MOST_TICKETS: u64 = 1 << 62;

/// A ring open for reading.
pub struct RingReader {
    file: StoreFile,
    definitions: Definitions,
    cursor: Cursor,
    payload: Vec<u8>,
}

impl RingReader {
    /// Opens the ring at `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = StoreFile::open(path.as_ref(), Kind::Ring, false)?;
        let cursor = Cursor::start(file.shape().frame_words as usize);
        Ok(RingReader { file, definitions: Definitions::default(), cursor, payload: Vec::new() })
    }

    /// What has become of its writers.
    pub fn status(&self) -> Status {
        self.file.header().judge(self.file.path(), self.file.header().writers())
    }

    /// What its writers lost.
    pub fn loss(&self) -> Loss {
        self.file.header().loss()
    }

    /// The caller's label, as the ring was made with it.
    pub fn label(&self) -> [u8; 16] {
        self.file.identity().label
    }

    /// When it was made: nanoseconds since 1970.
    pub fn created_ns(&self) -> u64 {
        self.file.identity().created
    }

    /// Whether the ring was deleted or replaced since it was opened; then reopen it to see what is written now.
    pub fn is_stale(&self) -> bool {
        self.file.trouble().is_some()
    }

    /// The records that are there now, oldest first. One that a live writer is just writing is passed over.
    pub fn records(&mut self) -> RingRecords<'_> {
        self.records_since(0)
    }

    /// As [`Self::records`], from `position` on: pass one more than the last record's position to see only newer ones.
    pub fn records_since(&mut self, position: u64) -> RingRecords<'_> {
        let slots = self.file.slots();
        let end = slots.head().min(MOST_TICKETS);
        let ticket = end.saturating_sub(slots.count() as u64).max(position);
        // Now, so that all definitions of the records up to `end` are among them.
        let mut stats = ReadStats { truncated: u64::from(self.file.is_short()), ..ReadStats::default() };
        self.read_definitions(&mut stats);
        RingRecords { reader: self, ticket, end, stats }
    }

    fn read_definitions(&mut self, stats: &mut ReadStats) {
        // From where the last call had to pass over an unfinished definition, if it did.
        let mut resume = None;
        loop {
            let before = self.cursor.clone();
            match self.file.frames().step(&mut self.cursor, &mut self.payload) {
                Step::Frame(frame) => {
                    if !frame.definition || !self.definitions.insert(&self.payload) {
                        stats.damaged += 1;
                    }
                }
                Step::Reserved { next, .. } => {
                    resume.get_or_insert(before);
                    self.cursor.skip_to(next);
                }
                Step::Damaged => stats.damaged += 1,
                Step::Empty | Step::End => break,
            }
        }
        if let Some(resume) = resume {
            self.cursor = resume;
        }
    }
}

/// The records of a ring at one moment.
pub struct RingRecords<'a> {
    reader: &'a mut RingReader,
    ticket: u64,
    end: u64,
    stats: ReadStats,
}

impl RingRecords<'_> {
    /// The next record. Not an `Iterator`, since a record borrows the reader's buffer.
    #[allow(
        clippy::should_implement_trait,
        reason = "the name is what readers expect; the trait cannot lend"
    )]
    pub fn next(&mut self) -> Option<Record<'_>> {
        let slots = self.reader.file.slots();
        while self.ticket < self.end {
            let ticket = self.ticket;
            self.ticket += 1;
            match slots.read(ticket, &mut self.reader.payload) {
                SlotState::Record { kind, pid, slots } => {
                    self.ticket = ticket + slots as u64;
                    self.stats.records += 1;
                    let RingReader { payload, definitions, .. } = &*self.reader;
                    return Some(Record { kind, pid, position: ticket, payload, definitions });
                }
                SlotState::Unfinished => self.stats.unfinished += 1,
                SlotState::Overwritten => self.stats.overwritten += 1,
                SlotState::Damaged => self.stats.damaged += 1,
                SlotState::Nothing => {}
            }
        }
        None
    }

    /// What was met so far.
    pub fn stats(&self) -> ReadStats {
        self.stats
    }
}
