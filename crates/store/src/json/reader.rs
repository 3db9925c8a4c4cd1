//! Events out of a JSON or JSONL file, one at a time, in a bounded window.
//!
//! Shapes: an array of records; an object with `events` or `telemetry_events`; one lone record; one record a line.
//! After a record that is wrong in itself reading continues with the next one; the caller decides whether to.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::{Event, Interner, SessionSummary, legacy_session_id};

use super::extent::Extent;
use super::fast::FastScan;
use super::survey::{Member, Survey, survey};
use super::window::{Filled, Window};
use super::{MAX_RECORD, parse_value};
use crate::quick::Quick;
use crate::{ReadOptions, SourcePosition, StoreError, file};

/// With less than this in the window more is read first, so that nearly every record is seen whole at once.
const LOW_WATER: usize = 64 << 10;

/// Keys that make a lone object an event rather than something else.
const EVENT_KEYS: [&str; 7] =
    ["schema_version", "event_type", "type", "memory_allocated", "memory_mb", "timestamp", "timestamp_ns"];

enum Shape {
    /// Records between `[` and `]`; `inside` an object, whatever follows the list is not looked at.
    Array { first: bool, inside: bool },
    /// One record a line.
    Lines,
    /// The whole file is one record.
    Lone,
}

/// Reads events from one file.
pub struct EventReader {
    path: PathBuf,
    window: Window<File>,
    shape: Shape,
    scan: FastScan,
    quick: Quick,
    interner: Interner,
    default_session: String,
    options: ReadOptions,
    summary: Option<SessionSummary>,
    index: u64,
    done: bool,
    torn_tail: bool,
}

impl EventReader {
    /// Opens a `.json` or `.jsonl` file, or any other that holds JSON.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, StoreError> {
        let mut input = file::open_regular(path)?;
        let mut window =
            Window::new(input.try_clone().map_err(|error| StoreError::io(path, error))?, MAX_RECORD);
        let io = |error| StoreError::io(path, error);
        window.skip_mark().map_err(io)?;
        let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
        let mut summary = None;
        let shape = match window.next_token().map_err(io)? {
            _ if is_lines => Shape::Lines,
            Some(b'[') => {
                window.consume(1);
                Shape::Array { first: true, inside: false }
            }
            Some(b'{') => match survey(path)? {
                Survey::Lines => Shape::Lines,
                Survey::Object(members) => {
                    let chosen = choose(path, &members, options)?;
                    match chosen {
                        None => Shape::Lone,
                        Some(list) => {
                            input.seek(SeekFrom::Start(list.offset + 1)).map_err(io)?;
                            window = Window::new(input, MAX_RECORD).starting_at(list.line, list.offset + 1);
                            if list.key == "telemetry_events" {
                                summary = summary_of(path, &members)?;
                            }
                            Shape::Array { first: true, inside: true }
                        }
                    }
                }
            },
            Some(_) => {
                let position = SourcePosition::line(path, window.line());
                return Err(StoreError::malformed(
                    position,
                    "Telemetry payload must be a JSON object or array",
                ));
            }
            None => {
                return Err(StoreError::malformed(
                    SourcePosition::file(path),
                    "the file is empty; expected telemetry events",
                ));
            }
        };
        let default_session = options.session_id.clone().unwrap_or_else(|| {
            let resolved = file::resolved(path);
            let kind = match (&shape, &options.events_key) {
                (Shape::Lines, _) => "sink",
                (_, Some(key)) => key,
                (_, None) => "json",
            };
            legacy_session_id([resolved.to_string_lossy().as_ref(), kind])
        });
        Ok(EventReader {
            path: path.to_owned(),
            window,
            shape,
            scan: FastScan::default(),
            quick: Quick::default(),
            interner: Interner::default(),
            default_session,
            options: options.clone(),
            summary,
            index: 0,
            done: false,
            torn_tail: false,
        })
    }

    /// The session summary a tracker export carries beside its events.
    pub fn summary(&self) -> Option<&SessionSummary> {
        self.summary.as_ref()
    }

    /// Whether the last line was cut off in the middle, as a writer's death leaves it, and therefore left out.
    pub fn torn_tail(&self) -> bool {
        self.torn_tail
    }

    fn read_next(&mut self) -> Option<Result<Event, StoreError>> {
        if self.done {
            return None;
        }
        let step = match self.shape {
            Shape::Array { first, inside } => self.next_in_array(first, inside),
            Shape::Lines => self.next_line(),
            Shape::Lone => {
                self.done = true;
                self.whole_value().map(Some)
            }
        };
        match step {
            Ok(Some(record)) => Some(record),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(fatal) => {
                self.done = true;
                Some(Err(fatal))
            }
        }
    }

    /// The outer error ends the reading; the inner one is about one record.
    fn next_in_array(&mut self, first: bool, inside: bool) -> Step {
        let token = self.token()?;
        if token == b']' {
            self.window.consume(1);
            if !inside && self.window.next_token().map_err(|e| StoreError::io(&self.path, e))?.is_some() {
                return Err(StoreError::malformed(self.here(), "not JSON: text after the list of events"));
            }
            return Ok(None);
        }
        if !first {
            if token != b',' {
                return Err(StoreError::malformed(
                    self.here(),
                    "not JSON: expected ',' or ']' after a record",
                ));
            }
            self.window.consume(1);
            self.token()?;
        }
        self.shape = Shape::Array { first: false, inside };
        self.refill()?;
        if let Some(event) = self.quickly() {
            return Ok(Some(Ok(event)));
        }
        self.whole_value().map(Some)
    }

    fn next_line(&mut self) -> Step {
        loop {
            self.refill()?;
            if let Some(event) = self.quickly() {
                return Ok(Some(Ok(event)));
            }
            let (end, whole) = self.line_end()?;
            let line = &self.window.bytes()[..end];
            let blank = line.iter().all(|byte| byte.is_ascii_whitespace());
            if blank {
                if end == 0 && !whole {
                    return Ok(None);
                }
                self.window.consume(end + usize::from(whole));
                continue;
            }
            let outcome = self.slow(end);
            self.window.consume(end + usize::from(whole));
            if !whole && matches!(outcome, Err(StoreError::Malformed { .. })) {
                self.torn_tail = true;
                return Ok(None);
            }
            return Ok(Some(outcome));
        }
    }

    /// The length of the current line, and whether a newline ends it.
    fn line_end(&mut self) -> Result<(usize, bool), StoreError> {
        let mut searched = 0;
        loop {
            let bytes = self.window.bytes();
            if let Some(at) = memchr::memchr(b'\n', &bytes[searched..]) {
                return Ok((searched + at, true));
            }
            searched = bytes.len();
            match self.window.fill().map_err(|error| StoreError::io(&self.path, error))? {
                Filled::More => {}
                Filled::Eof => return Ok((searched, false)),
                Filled::Full => return Err(self.too_large()),
            }
        }
    }

    /// The value at the cursor by the strict path, however long it is within the limit.
    fn whole_value(&mut self) -> Result<Result<Event, StoreError>, StoreError> {
        let mut extent = Extent::default();
        loop {
            if let Some(end) = extent.advance(self.window.bytes()) {
                let outcome = self.slow(end);
                self.window.consume(end);
                return Ok(outcome);
            }
            match self.window.fill().map_err(|error| StoreError::io(&self.path, error))? {
                Filled::More => {}
                Filled::Full => return Err(self.too_large()),
                Filled::Eof => return Err(self.truncated()),
            }
        }
    }

    /// The record at the cursor by the fast path.
    fn quickly(&mut self) -> Option<Event> {
        let (fields, length) = self.scan.record(self.window.bytes(), &self.quick)?;
        let event = self.quick.event(&fields, &self.default_session, &mut self.interner)?;
        if matches!(self.shape, Shape::Lines) {
            // The record must have its line to itself.
            let rest = &self.window.bytes()[length..];
            let ends_line = rest.first().map_or(self.window.at_eof(), |byte| *byte == b'\n');
            if !ends_line {
                return None;
            }
        }
        self.window.consume(length);
        self.index += 1;
        Some(event)
    }

    /// The record in the first `length` bytes of the window by the strict path.
    fn slow(&mut self, length: usize) -> Result<Event, StoreError> {
        let position = self.here();
        let index = self.index;
        self.index += 1;
        let value = parse_value(&self.path, self.window.line(), &self.window.bytes()[..length])?;
        let Value::Object(record) = value else {
            let message = match self.shape {
                Shape::Lines => format!("Telemetry record at line {} must be an object", self.window.line()),
                _ => format!("Event at index {index} must be an object"),
            };
            return Err(StoreError::malformed(position, message));
        };
        self.options.event(&record, position, &self.default_session, "legacy.unknown", &mut self.interner)
    }

    /// A tracker export states its session once; an event of another one does not belong in it.
    fn of_stated_session(&self, event: Event) -> Result<Event, StoreError> {
        match &self.summary {
            Some(summary) if event.head.session_id != summary.session_id => Err(StoreError::malformed(
                self.here(),
                "Tracker session summary does not match telemetry event identity",
            )),
            _ => Ok(event),
        }
    }

    fn refill(&mut self) -> Result<(), StoreError> {
        while self.window.bytes().len() < LOW_WATER && !self.window.at_eof() {
            self.window.fill().map_err(|error| StoreError::io(&self.path, error))?;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<u8, StoreError> {
        let token = self.window.next_token().map_err(|error| StoreError::io(&self.path, error))?;
        token.ok_or_else(|| self.truncated())
    }

    fn here(&self) -> SourcePosition {
        SourcePosition::line(&self.path, self.window.line())
    }

    fn truncated(&self) -> StoreError {
        StoreError::malformed(self.here(), "the file ends in the middle of the events; it is truncated")
    }

    fn too_large(&self) -> StoreError {
        StoreError::TooLarge { position: self.here(), limit: MAX_RECORD }
    }
}

impl Iterator for EventReader {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.read_next()?;
        Some(event.and_then(|event| self.of_stated_session(event)))
    }
}

/// `None` at the end; an inner error concerns one record, an outer one the rest of the file.
type Step = Result<Option<Result<Event, StoreError>>, StoreError>;

/// The list of events among the members, or `None` when the object itself is the event.
fn choose<'a>(
    path: &Path,
    members: &'a [Member],
    options: &ReadOptions,
) -> Result<Option<&'a Member>, StoreError> {
    let find = |key: &str| members.iter().find(|member| member.key == key);
    let list = |key: &str| find(key).filter(|member| member.first_byte == b'[');
    if let Some(key) = &options.events_key {
        let message = || format!("Top-level key '{key}' must contain a list of events");
        return list(key)
            .map(Some)
            .ok_or_else(|| StoreError::malformed(SourcePosition::file(path), message()));
    }
    if let Some(member) = list("events").or_else(|| list("telemetry_events")) {
        return Ok(Some(member));
    }
    if EVENT_KEYS.iter().any(|key| find(key).is_some()) {
        return Ok(None);
    }
    Err(StoreError::malformed(SourcePosition::file(path), "JSON payload does not contain telemetry events"))
}

fn summary_of(path: &Path, members: &[Member]) -> Result<Option<SessionSummary>, StoreError> {
    let member = members.iter().find(|member| member.key == "session_summary");
    let Some((line, Value::Object(record))) =
        member.and_then(|m| m.value.as_ref().map(|value| (m.line, value)))
    else {
        return Ok(None);
    };
    let summary = SessionSummary::from_record(record);
    summary.map(Some).map_err(|problem| StoreError::record(SourcePosition::line(path, line), problem))
}
