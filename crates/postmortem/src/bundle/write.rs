//! Writing a bundle: events streamed through one buffer, everything under a temporary name, renamed when whole.
//!
//! The buffer is taken and touched when the recorder starts, so that writing near the limit needs a few kilobytes more, not
//! megabytes. Nothing is flushed to the disk itself: the bundle must survive the program, not the machine, and waiting for
//! a disk in a dying program costs more than it saves. Must never leave a half-written directory under its final name.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_files::create_new;
use stormlog_model::{Event, Record, SessionSummary};
use stormlog_store::json::write::write_indented;

use super::draft::{Draft, Naming, Unpublished};
use super::event_evidence::EventEvidence;
use super::event_text::EventText;
use super::name::{BundleName, utc_text};
use super::retention::{Removal, Retention};
use super::{BundleError, EVIDENCE_FILE, Evidence};

/// Written in pieces of this size.
const BUFFER: usize = 256 << 10;
/// A buffer that one enormous event stretched is given back beyond this.
const MAX_BUFFER: usize = 1 << 20;

/// The exception, where there was one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExceptionText<'a> {
    /// `type(exc).__name__`.
    pub type_name: &'a str,
    /// `type(exc).__module__`.
    pub module: &'a str,
    /// `str(exc)`.
    pub message: &'a str,
}

/// Where the program ran.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// Its working directory; `None` when unknown.
    pub cwd: Option<&'a str>,
    /// `get_system_info()` and the like.
    pub system: &'a Record,
}

/// Everything in a bundle but its events.
#[derive(Debug, Clone, Copy)]
pub struct BundleContent<'a> {
    /// Now, nanoseconds since the epoch.
    pub created_at_ns: u64,
    /// The process it is about.
    pub pid: u64,
    /// `cuda`, `rocm`, `mps`, `cpu`, …
    pub backend: &'a str,
    /// 0.4.3's reason: how the exception was recognised; for a kill, the cause.
    pub reason: &'a str,
    /// The exception; `None` when something else ended it.
    pub exception: Option<ExceptionText<'a>>,
    /// What the program was doing.
    pub context: Option<&'a str>,
    /// The session.
    pub session: Option<&'a SessionSummary>,
    /// `custom_metadata` of `metadata.json`.
    pub custom_metadata: &'a Record,
    /// `environment.json`.
    pub environment: Environment<'a>,
    /// `evidence.json`; what it does not say is filled in from the events.
    pub evidence: &'a Evidence,
}

/// A bundle that was written.
#[derive(Debug)]
pub struct Written {
    /// Where.
    pub path: PathBuf,
    /// How many events are in it.
    pub event_count: u64,
    /// Older bundles removed to make room, and those that could not be.
    pub removal: Removal,
}

/// Writes the bundles of one recorder.
#[derive(Debug)]
pub struct BundleWriter {
    retention: Retention,
    sequence: u64,
    buffer: Vec<u8>,
}

impl BundleWriter {
    /// Takes the memory that writing needs.
    pub fn new(retention: Retention) -> Self {
        let mut buffer = Vec::new();
        // Zeroes would be promised, not given: only a page that was written to is ours when memory is short.
        buffer.resize(BUFFER + (BUFFER >> 2), 0xA5);
        buffer.clear();
        BundleWriter { retention, sequence: 0, buffer }
    }

    /// Writes a bundle below `root` and removes what retention no longer allows.
    pub fn write<E: Borrow<Event>>(
        &mut self,
        root: &Path,
        content: &BundleContent<'_>,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Written, BundleError> {
        self.draft(root, content, events)?.publish()
    }

    /// Writes a bundle under a temporary name, so that further files can be put beside its own before it is published.
    pub fn draft<E: Borrow<Event>>(
        &mut self,
        root: &Path,
        content: &BundleContent<'_>,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Draft<'_>, BundleError> {
        stormlog_files::create_directory(root).map_err(|error| BundleError::io(root, error))?;
        let directory = Unpublished::create(root, content.pid)?;
        let mut event_evidence = EventEvidence::default();
        let mut evidence = content.evidence.clone();
        let path = directory.path().join("events.json");
        let mut file = create_new(&path).map_err(|error| BundleError::io(&path, error))?;
        if let Err(error) = stream(&mut self.buffer, &mut file, content.backend, events, &mut event_evidence)
        {
            if !is_full(&error) {
                return Err(BundleError::io(&path, error));
            }
            // The verdict is worth more than the events: give their space back and keep it.
            let emptied = file.set_len(0).and_then(|()| file.rewind());
            emptied.and_then(|()| file.write_all(b"[]")).map_err(|error| BundleError::io(&path, error))?;
            evidence.notes.push(format!("the events are missing: {error}"));
            event_evidence.count = 0;
        }
        let event_count = event_evidence.count;
        event_evidence.complete(&mut evidence);
        let metadata = metadata(content, event_count);
        let environment = Record::from_iter([
            ("pid".to_owned(), Value::from(content.pid)),
            ("cwd".to_owned(), content.environment.cwd.into()),
            ("system".to_owned(), Value::Object(content.environment.system.clone())),
        ]);
        for (file, record) in [
            ("metadata.json", metadata),
            ("environment.json", environment),
            (EVIDENCE_FILE, evidence.to_record()),
        ] {
            self.put(&directory.path().join(file), &record)?;
        }
        let naming = Naming {
            created_at_ns: content.created_at_ns,
            pid: content.pid,
            backend: content.backend.to_owned(),
        };
        Ok(Draft::new(self, root, directory, naming, manifest(content, event_count), event_count))
    }

    /// The next name of that recorder, and the number in it.
    pub(super) fn next_name(&mut self, naming: &Naming) -> String {
        self.sequence = self.sequence.saturating_add(1);
        BundleName::spell(naming.created_at_ns, naming.pid, &naming.backend, self.sequence)
    }

    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    pub(super) fn put(&mut self, path: &Path, record: &Record) -> Result<(), BundleError> {
        self.buffer.clear();
        let written = write_indented(&mut self.buffer, record, 0);
        written
            .and_then(|()| create_new(path)?.write_all(&self.buffer))
            .map_err(|error| BundleError::io(path, error))
    }
}

/// Whether more space would have helped.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// `events.json`: an array of events, one buffer at a time.
fn stream<E: Borrow<Event>>(
    buffer: &mut Vec<u8>,
    out: &mut File,
    backend: &str,
    events: impl IntoIterator<Item = E>,
    event_evidence: &mut EventEvidence,
) -> io::Result<()> {
    buffer.clear();
    buffer.push(b'[');
    let mut text = EventText::new(backend);
    for event in events {
        let event = event.borrow();
        buffer.extend_from_slice(if event_evidence.count == 0 { b"\n  " } else { b",\n  " });
        event_evidence.observe(event);
        text.append(buffer, event)?;
        if buffer.len() >= BUFFER {
            out.write_all(buffer)?;
            buffer.clear();
            buffer.shrink_to(MAX_BUFFER);
        }
    }
    buffer.extend_from_slice(if event_evidence.count == 0 { b"]" } else { b"\n]" });
    out.write_all(buffer)
}

fn metadata(content: &BundleContent<'_>, event_count: u64) -> Record {
    let exception = content.exception;
    let mut record = Record::new();
    let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
    put("reason", content.reason.into());
    put("exception_type", exception.map(|exception| exception.type_name).into());
    put("exception_module", exception.map(|exception| exception.module).into());
    // Whatever a library put into its message: passwords in addresses, tokens in headers.
    put(
        "exception_message",
        exception.map(|exception| stormlog_model::scrub::text(exception.message)).into(),
    );
    put("context", content.context.map(stormlog_model::scrub::text).into());
    put("backend", content.backend.into());
    put("captured_event_count", event_count.into());
    for (key, value) in session(content) {
        put(key, value);
    }
    put("custom_metadata", Value::Object(content.custom_metadata.clone()));
    record
}

/// Everything of `manifest.json` but the bundle's name and its files, which are known last.
fn manifest(content: &BundleContent<'_>, event_count: u64) -> Record {
    let mut record = Record::new();
    let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
    put("schema_version", 2.into());
    put("bundle_name", Value::Null);
    put("created_at_utc", utc_text(content.created_at_ns).into());
    put("reason", content.reason.into());
    put("backend", content.backend.into());
    put("event_count", event_count.into());
    for (key, value) in session(content) {
        put(key, value);
    }
    record
}

fn session(content: &BundleContent<'_>) -> [(&'static str, Value); 3] {
    let session = content.session;
    [
        ("session_id", session.map(|session| session.session_id.as_str()).into()),
        ("session_status", session.map(|session| session.status.as_str()).into()),
        ("session", session.map(SessionSummary::to_record).map_or(Value::Null, Value::Object)),
    ]
}
