//! Reading a log: live, after a crash, or years later, segment by segment.
//!
//! Keeps its place, so that it can be asked again for what has come since. Must never return records of one segment out of
//! their order, nor records that were not appended exactly so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stormlog_liveness::Life;

use crate::error::Error;
use crate::file::{StoreFile, with_header};
use crate::frames::{Cursor, Frame, Step};
use crate::header::{Header, Kind, Writer};
use crate::log::segments;
use crate::record::{Definitions, Loss, ReadStats, Record, Status};

/// A log open for reading.
pub struct LogReader {
    dir: PathBuf,
    segment: Segment,
    definitions: Definitions,
    payload: Vec<u8>,
    stats: ReadStats,
}

/// The segment a reader is in, and where.
struct Segment {
    number: u64,
    file: StoreFile,
    cursor: Cursor,
    records: u64,
}

impl Segment {
    fn open(number: u64, path: &Path) -> Result<Self, Error> {
        let file = StoreFile::open(path, Kind::Segment, false)?;
        let cursor = Cursor::start(file.shape().frame_words as usize);
        Ok(Segment { number, file, cursor, records: 0 })
    }
}

impl LogReader {
    /// Opens the log in `dir` at its oldest readable segment.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let segments = segments(&dir)?;
        Self::open_first_of(dir, segments)
    }

    /// Opens it at its last segment but one: for readers of what happens now, whatever the length of the log.
    pub fn open_recent(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let mut segments = segments(&dir)?;
        segments.drain(..segments.len().saturating_sub(2));
        Self::open_first_of(dir, segments)
    }

    fn open_first_of(dir: PathBuf, segments: Vec<(u64, PathBuf)>) -> Result<Self, Error> {
        let (mut stats, mut first_error) = (ReadStats::default(), None);
        for (number, path) in segments {
            match Segment::open(number, &path) {
                Ok(segment) => {
                    let (definitions, payload) = (Definitions::default(), Vec::new());
                    return Ok(LogReader { dir, segment, definitions, payload, stats });
                }
                Err(error) => {
                    stats.missing_segments += 1;
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or(Error::NoSegments { path: dir }))
    }

    /// The next record, or `None` when there is none yet; ask again later. Not an `Iterator`, since a record borrows the
    /// reader's buffer. Stops at a record that a living process has begun and not finished, and passes over it once that
    /// process is gone.
    #[allow(
        clippy::should_implement_trait,
        reason = "the name is what readers expect; the trait cannot lend"
    )]
    pub fn next(&mut self) -> Option<Record<'_>> {
        let frame = self.next_frame()?;
        self.stats.records += 1;
        self.segment.records += 1;
        Some(Record {
            kind: frame.kind,
            pid: frame.pid,
            position: self.segment.number << 32 | self.segment.records,
            payload: &self.payload,
            definitions: &self.definitions,
        })
    }

    /// Gives the pages that were read back to the page cache: a reader that follows hundreds of logs would have all of them resident.
    pub fn release(&self) {
        self.segment.file.release();
    }

    fn next_frame(&mut self) -> Option<Frame> {
        let mut ended = false;
        loop {
            match self.segment.file.frames().step(&mut self.segment.cursor, &mut self.payload) {
                Step::Frame(frame) if !frame.definition => return Some(frame),
                Step::Frame(_) => {
                    if !self.definitions.insert(&self.payload) {
                        self.stats.damaged += 1;
                    }
                }
                Step::Reserved { pid, next } => {
                    if self.segment.file.header().life(pid) == Life::Alive {
                        return None;
                    }
                    self.stats.unfinished += 1;
                    self.segment.cursor.skip_to(next);
                }
                Step::Damaged => self.stats.damaged += 1,
                Step::End => {
                    let next = self.following()?;
                    self.enter(next)?;
                }
                // A segment is ended before the next one is made. If there is a next one and this is still not ended on a
                // second look, it was given up: truncated, or its writers are dead.
                Step::Empty => {
                    let next = self.following()?;
                    if ended {
                        self.stats.truncated += u64::from(self.is_cut_short());
                        self.enter(next)?;
                    }
                    ended = !ended;
                }
            }
        }
    }

    /// Passes over the unfinished record at which [`Self::next`] has stopped, alive or not its writer. False when it has not
    /// stopped at one. For readers that want everything up to now, not what is appended later.
    pub fn skip_unfinished(&mut self) -> bool {
        match self.segment.file.frames().step(&mut self.segment.cursor.clone(), &mut self.payload) {
            Step::Reserved { next, .. } => {
                self.stats.unfinished += 1;
                self.segment.cursor.skip_to(next);
                true
            }
            _ => false,
        }
    }

    /// The first segment after this one.
    fn following(&self) -> Option<(u64, PathBuf)> {
        let found = segments(&self.dir).ok()?;
        found.into_iter().find(|(number, _)| *number > self.segment.number)
    }

    /// Goes to the first readable segment from `next` on.
    fn enter(&mut self, next: (u64, PathBuf)) -> Option<()> {
        let (mut number, mut path) = next;
        loop {
            self.stats.missing_segments += number - self.segment.number - 1;
            match Segment::open(number, &path) {
                // Another log's segment in this directory is none of ours.
                Ok(segment) if segment.file.identity().family == self.segment.file.identity().family => {
                    self.segment = segment;
                    self.definitions.clear();
                    return Some(());
                }
                _ => {
                    self.stats.missing_segments += 1;
                    self.segment.number = number;
                    (number, path) = self.following()?;
                }
            }
        }
    }

    /// What was met so far.
    pub fn stats(&self) -> ReadStats {
        ReadStats { truncated: self.stats.truncated + u64::from(self.is_cut_short()), ..self.stats }
    }

    /// Whether this segment's records end where its file was cut, rather than at its end mark.
    fn is_cut_short(&self) -> bool {
        let here = self.segment.file.frames().step(&mut self.segment.cursor.clone(), &mut Vec::new());
        self.segment.file.is_short() && here == Step::Empty
    }

    /// The caller's label, as the log was made with it.
    pub fn label(&self) -> [u8; 16] {
        self.segment.file.identity().label
    }

    /// When the log was made: nanoseconds since 1970.
    pub fn created_ns(&self) -> u64 {
        self.segment.file.identity().created
    }

    /// What has become of its writers: for each process, what the last segment it wrote to says.
    pub fn status(&self) -> Status {
        self.status_and_loss().0
    }

    /// What its writers lost, in all segments that are left.
    pub fn loss(&self) -> Loss {
        self.status_and_loss().1
    }

    /// [`Self::status`] and [`Self::loss`] with one pass over the headers.
    pub fn status_and_loss(&self) -> (Status, Loss) {
        let mut writers: BTreeMap<(u32, u64), Writer> = BTreeMap::new();
        let mut loss = Loss::default();
        self.for_each_header(|header| {
            writers.extend(header.writers().map(|writer| ((writer.pid, writer.start), writer)));
            loss.add(header.loss());
        });
        (self.segment.file.header().judge(&self.dir, writers.into_values()), loss)
    }

    /// Shows the headers of all segments, in order. One that cannot be read has nothing to say.
    fn for_each_header(&self, mut look: impl FnMut(Header<'_>)) {
        for (number, path) in segments(&self.dir).unwrap_or_default() {
            if number == self.segment.number {
                look(self.segment.file.header());
            } else if let Ok(file) = stormlog_files::open_regular(&path) {
                let _ = with_header(&file, &path, |header| header.read().is_ok().then(|| look(header)));
            }
        }
    }
}
