//! Reading recordings, while they are written or long after their writer died.

use std::path::{Path, PathBuf};

use stormlog_model::{Event, Head};
use stormlog_ring::{LogReader, Loss, ReadStats, RingReader, Status};

use super::codec::{Decoder, KIND_EVENT};
use crate::source::Events;
use crate::{SourcePosition, StoreError};

/// The events of a ring or a log.
pub struct RecordedEvents {
    path: PathBuf,
    input: Input,
    decoder: Decoder,
}

enum Input {
    /// A ring is bounded and moves on while it is read: taken whole at once.
    Ring {
        events: std::vec::IntoIter<Result<Event, StoreError>>,
        stats: ReadStats,
        loss: Loss,
        status: Status,
    },
    Log(Box<LogReader>),
}

impl RecordedEvents {
    /// The events that are in the ring at `path` now, oldest first.
    pub fn ring(path: &Path) -> Result<Self, StoreError> {
        let mut reader = RingReader::open(path).map_err(|error| wrong(path, error))?;
        let (status, loss) = (reader.status(), reader.loss());
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let mut records = reader.records();
        while let Some(record) = records.next() {
            if record.kind == KIND_EVENT {
                let number = events.len() as u64 + 1;
                let event = decoder.decode(record.payload, record.definitions);
                events.push(
                    event.map_err(|problem| StoreError::record(SourcePosition::line(path, number), problem)),
                );
            }
        }
        let stats = records.stats();
        let input = Input::Ring { events: events.into_iter(), stats, loss, status };
        Ok(RecordedEvents { path: path.to_owned(), input, decoder })
    }

    /// The events of the log in the directory `path`, up to the present.
    pub fn log(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::of_log(path, LogReader::open(path).map_err(|error| wrong(path, error))?))
    }

    /// The last of them: one segment of the log and the one that is written.
    pub fn recent_log(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::of_log(path, LogReader::open_recent(path).map_err(|error| wrong(path, error))?))
    }

    fn of_log(path: &Path, reader: LogReader) -> Self {
        RecordedEvents {
            path: path.to_owned(),
            input: Input::Log(Box::new(reader)),
            decoder: Decoder::default(),
        }
    }

    /// What has become of the writers.
    pub fn status(&self) -> Status {
        match &self.input {
            Input::Ring { status, .. } => status.clone(),
            Input::Log(reader) => reader.status(),
        }
    }

    /// What the writers lost.
    pub fn loss(&self) -> Loss {
        match &self.input {
            Input::Ring { loss, .. } => *loss,
            Input::Log(reader) => reader.loss(),
        }
    }

    /// Gives the pages that were read back to the page cache, until more is read.
    pub fn release(&self) {
        if let Input::Log(reader) = &self.input {
            reader.release();
        }
    }

    /// Both, with one look at the files.
    fn status_and_loss(&self) -> (Status, Loss) {
        match &self.input {
            Input::Ring { status, loss, .. } => (status.clone(), *loss),
            Input::Log(reader) => reader.status_and_loss(),
        }
    }

    fn stats(&self) -> ReadStats {
        match &self.input {
            Input::Ring { stats, .. } => *stats,
            Input::Log(reader) => reader.stats(),
        }
    }
}

impl RecordedEvents {
    /// The next event; where `wants_metadata` says no, with the metadata of an earlier one. For a reader that follows many logs and counts only.
    pub fn next_sparsely(
        &mut self,
        wants_metadata: &mut dyn FnMut(&Head) -> bool,
    ) -> Option<Result<Event, StoreError>> {
        let reader = match &mut self.input {
            Input::Ring { events, .. } => return events.next(),
            Input::Log(reader) => reader,
        };
        loop {
            if let Some(record) = reader.next() {
                if record.kind != KIND_EVENT {
                    continue;
                }
                let event = self.decoder.decode_sparsely(record.payload, record.definitions, wants_metadata);
                // The low half of a position numbers the record within its segment.
                let number = record.position & u64::from(u32::MAX);
                return Some(event.map_err(|problem| {
                    StoreError::record(SourcePosition::line(&self.path, number), problem)
                }));
            }
            if !reader.skip_unfinished() {
                return None;
            }
        }
    }
}

impl Iterator for RecordedEvents {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_sparsely(&mut |_| true)
    }
}

impl Events for RecordedEvents {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let (stats, (status, loss)) = (self.stats(), self.status_and_loss());
        if loss.records > 0 {
            let reason = loss.reason.map_or_else(String::new, |reason| format!(" ({reason:?})"));
            notes.push(format!("the writer lost {} records{reason}", loss.records));
        }
        if stats.unfinished > 0 {
            notes.push(format!("{} records were begun and not finished", stats.unfinished));
        }
        if stats.damaged > 0 {
            notes.push(format!("{} damaged places were skipped", stats.damaged));
        }
        if stats.missing_segments > 0 {
            notes.push(format!("{} segments are missing or unreadable", stats.missing_segments));
        }
        if stats.truncated > 0 {
            notes.push(format!("{} files are shorter than they were made", stats.truncated));
        }
        if let Status::Died { pids } = status {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            notes.push(format!("the writer died without closing (pid {})", pids.join(", ")));
        }
        notes
    }
}

pub(crate) fn wrong(path: &Path, error: stormlog_ring::Error) -> StoreError {
    match error {
        stormlog_ring::Error::Io { path, source } => StoreError::Io { path, source },
        other => {
            let message = other.to_string();
            let prefix = format!("{}: ", path.display());
            StoreError::malformed(
                SourcePosition::file(path),
                message.strip_prefix(&prefix).unwrap_or(&message),
            )
        }
    }
}
