//! Writing recordings: events into a ring, a log, or a session directory with both.
//!
//! An append that returned survives the death of the process. Losses are counted by the files themselves; nothing here
//! may fail the program that is being recorded.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use stormlog_model::layout::{LOG_DIRECTORY, RING_FILE};
use stormlog_model::{Event, SessionStatus, SessionSummary};
use stormlog_ring::{
    AppendError, Definition, Log, LogConfig, LogReader, LogWriter, Loss, Ring, RingConfig, RingWriter,
};

use super::codec::{Decoder, Encoder, KIND_EVENT};
use super::reader::wrong;
use super::session::write_session;
use super::thin;
use crate::StoreError;

/// The last events, in one bounded file.
pub struct EventRing {
    writer: RingWriter,
    encoder: Encoder,
}

impl EventRing {
    /// Makes a ring at `path`.
    pub fn create(path: &Path, config: RingConfig) -> Result<Self, StoreError> {
        let ring = Ring::create(path, config).map_err(|error| wrong(path, error))?;
        let writer = ring.writer().map_err(|error| wrong(path, error))?;
        Ok(EventRing { writer, encoder: Encoder::default() })
    }

    /// Appends an event. `false` when it was lost, which the file counts.
    pub fn append(&mut self, event: &Event) -> bool {
        let EventRing { writer, encoder } = self;
        append(encoder, event, |payload, definitions| writer.append(KIND_EVENT, payload, definitions))
    }

    /// What was lost so far.
    pub fn loss(&self) -> Loss {
        self.writer.loss()
    }
}

/// All events, in a growing directory.
pub struct EventLog {
    log: Log,
    directory: PathBuf,
    writer: LogWriter,
    encoder: Encoder,
    aging: Option<Aging>,
}

/// What is known of the segments of a log that thins with age.
#[derive(Default)]
struct Aging {
    /// The segment being written, and its last event.
    current: (u64, u64),
    /// Those before it that were not thinned yet, each with its last event.
    whole: VecDeque<(u64, u64)>,
}

impl Aging {
    /// Notes an event in a segment; the last segment that has become old enough to be thinned.
    fn note(&mut self, segment: u64, at_ns: u64) -> Option<u64> {
        let (number, last_ns) = self.current;
        if number != segment {
            self.whole.extend((number > 0).then_some((number, last_ns)));
        }
        self.current = (segment, last_ns.max(at_ns));
        let mut old = None;
        let is_old = |(_, last_ns): &(u64, u64)| last_ns.saturating_add(thin::WHOLE_NS) < at_ns;
        while let Some((number, _)) = self.whole.front().copied().filter(is_old) {
            self.whole.pop_front();
            old = Some(number);
        }
        old
    }
}

impl EventLog {
    /// Makes a log in the directory `path`.
    pub fn create(path: &Path, config: LogConfig) -> Result<Self, StoreError> {
        let log = Log::create(path, config).map_err(|error| wrong(path, error))?;
        let writer = log.writer().map_err(|error| wrong(path, error))?;
        let directory = path.to_owned();
        Ok(EventLog { log, directory, writer, encoder: Encoder::default(), aging: None })
    }

    /// Keeps the last hour whole and thins what is older. Only for a log that one process writes, in the order of its events.
    #[must_use]
    pub fn thinning(self) -> Self {
        EventLog { aging: Some(Aging::default()), ..self }
    }

    /// Appends an event. `false` when it was lost, which the file counts.
    pub fn append(&mut self, event: &Event) -> bool {
        let EventLog { writer, encoder, aging, .. } = self;
        let is_kept =
            append(encoder, event, |payload, definitions| writer.append(KIND_EVENT, payload, definitions));
        let old = aging.as_mut().and_then(|aging| aging.note(writer.segment(), event.timestamp_ns));
        if let Some(segment) = old {
            // What could not be thinned now is thinned with the next segment.
            let _ = self.thin(segment, event.timestamp_ns);
        }
        is_kept
    }

    /// Replaces the segments up to `last` by what is kept of them.
    fn thin(&self, last: u64, now_ns: u64) -> Option<()> {
        let mut events = Vec::new();
        let (mut reader, mut decoder) = (LogReader::open(&self.directory).ok()?, Decoder::default());
        while let Some(record) = reader.next().filter(|record| record.position >> 32 <= last) {
            if record.kind == KIND_EVENT {
                events.extend(decoder.decode(record.payload, record.definitions).ok());
            }
        }
        (0..MOST_FACTORS).map(|power| 1 << power).find_map(|factor| {
            let mut archive = self.log.archive(last, ARCHIVE_BYTES).ok()?;
            let mut encoder = Encoder::default();
            events = thin::thin(std::mem::take(&mut events), now_ns, factor);
            let mut put = |event: &Event| {
                append(&mut encoder, event, |payload, definitions| {
                    archive.append(KIND_EVENT, payload, definitions)
                })
            };
            let is_whole = events.iter().all(&mut put);
            is_whole.then(|| archive.publish().ok()).flatten()
        })
    }

    /// What was lost so far.
    pub fn loss(&self) -> Loss {
        self.writer.loss()
    }
}

/// Encodes and hands over; once more without definitions when the file has no room for them.
fn append(
    encoder: &mut Encoder,
    event: &Event,
    mut hand_over: impl FnMut(&[u8], &[&Definition]) -> Result<(), AppendError>,
) -> bool {
    let (payload, definitions) = encoder.encode(event, false);
    let outcome = match definitions {
        [Some(head), Some(metadata)] => hand_over(payload, &[head, metadata]),
        [Some(one), None] | [None, Some(one)] => hand_over(payload, &[one]),
        [None, None] => hand_over(payload, &[]),
    };
    match outcome {
        Ok(()) => true,
        Err(AppendError::DefinitionsFull { .. }) => {
            let (payload, _) = encoder.encode(event, true);
            hand_over(payload, &[]).is_ok()
        }
        Err(_) => false,
    }
}

/// What is kept of all thinned segments of a log takes no more than this; where it would, the spans are made longer.
const ARCHIVE_BYTES: u64 = 4 << 20;
/// Doublings of the spans that are tried.
const MOST_FACTORS: u32 = 12;

/// What a session directory keeps.
#[derive(Debug, Clone)]
pub struct RecorderConfig {
    /// Slots of the ring; a telemetry event takes one or two.
    pub ring_slots: u64,
    /// Whether the whole history is kept beside the ring.
    pub keep_log: bool,
    /// Bytes of one segment of the history, taken from the disk at once.
    pub segment_bytes: u64,
    /// Bytes of its first segment, where it is to be smaller.
    pub first_segment_bytes: Option<u64>,
    /// Whether the history is thinned with age: whole for the last hour, then by the minute and longer spans.
    pub thins_with_age: bool,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        RecorderConfig {
            ring_slots: RingConfig::default().slots,
            keep_log: true,
            segment_bytes: LogConfig::default().segment_bytes,
            first_segment_bytes: None,
            thins_with_age: false,
        }
    }
}

/// A session being recorded into a directory of its own.
pub struct Recorder {
    directory: PathBuf,
    summary: SessionSummary,
    ring: EventRing,
    log: Option<EventLog>,
}

impl Recorder {
    /// Makes the directory and starts the session.
    pub fn create(
        directory: &Path,
        summary: SessionSummary,
        config: &RecorderConfig,
    ) -> Result<Self, StoreError> {
        stormlog_files::create_directory(directory).map_err(|error| StoreError::io(directory, error))?;
        let label = label(&summary.session_id);
        let ring_config = RingConfig { slots: config.ring_slots, label, ..RingConfig::default() };
        let ring = EventRing::create(&directory.join(RING_FILE), ring_config)?;
        let RecorderConfig { segment_bytes, first_segment_bytes, .. } = *config;
        let log_config = LogConfig { label, segment_bytes, first_segment_bytes, ..LogConfig::default() };
        let log = match config.keep_log {
            true => Some(EventLog::create(&directory.join(LOG_DIRECTORY), log_config)?),
            false => None,
        };
        let log = log.map(|log| if config.thins_with_age { log.thinning() } else { log });
        let summary = SessionSummary { status: SessionStatus::Running, ended_at_ns: None, ..summary };
        write_session(directory, &summary)?;
        Ok(Recorder { directory: directory.to_owned(), summary, ring, log })
    }

    /// Records an event. `false` when some part of the recording lost it.
    pub fn append(&mut self, event: &Event) -> bool {
        let in_ring = self.ring.append(event);
        self.log.as_mut().is_none_or(|log| log.append(event)) && in_ring
    }

    /// The session being recorded.
    pub fn summary(&self) -> &SessionSummary {
        &self.summary
    }

    /// What was lost so far: the log's losses, or the ring's where there is no log.
    pub fn loss(&self) -> Loss {
        self.log.as_ref().map_or_else(|| self.ring.loss(), EventLog::loss)
    }

    /// Ends the session in that state at that time.
    pub fn close(self, status: SessionStatus, ended_at_ns: i64) -> Result<(), StoreError> {
        let Recorder { directory, summary, ring, log } = self;
        drop((ring, log));
        write_session(&directory, &SessionSummary { status, ended_at_ns: Some(ended_at_ns), ..summary })
    }
}

/// The first bytes of the session id, so that a file found alone can be identified.
fn label(session_id: &str) -> [u8; 16] {
    let mut label = [0; 16];
    let bytes = session_id.as_bytes();
    let length = bytes.len().min(16);
    label[..length].copy_from_slice(&bytes[..length]);
    label
}
