//! Reading a bundle of any origin into one answer: ours, 0.4.3's schemas 1 and 2, and the original document's.
//!
//! Bundles are hostile input: files are read through the store's bounded window, links are not followed, and a missing or
//! damaged part costs that part, said in `notes`. Must never invent a number a bundle does not hold.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::{Event, Record, SessionSummary};
use stormlog_store::{ReadOptions, Source, StoreError, json};

use super::event_evidence::EventEvidence;
use super::name::BundleName;
use super::{EVIDENCE_FILE, Evidence};
use crate::classify::{ExceptionFacts, classify};
use crate::{Cause, Ended};

/// A bundle as it was read. `None` is unknown.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The directory.
    pub path: PathBuf,
    /// Its name when it was written.
    pub name: String,
    /// `2026-11-15T04:00:37Z`.
    pub created_at_utc: Option<String>,
    /// What ended the program.
    pub cause: Cause,
    /// Whether that is a failure, as its writer judged it; `None` in bundles of others and older ones.
    pub ended: Option<Ended>,
    /// How the exception was recognised.
    pub reason: Option<String>,
    /// `cuda`, `cpu`, …
    pub backend: Option<String>,
    /// The session.
    pub session_id: Option<String>,
    /// Its state as the bundle states it.
    pub session_status: Option<String>,
    /// The whole of it, where the bundle has it.
    pub session: Option<SessionSummary>,
    /// The signal's number.
    pub signal: Option<i64>,
    /// The exit status.
    pub exit_code: Option<i64>,
    /// The last event.
    pub last_event_timestamp_ns: Option<u64>,
    /// The most resident memory.
    pub peak_rss_bytes: Option<u64>,
    /// The limit that held.
    pub limit_bytes: Option<u64>,
    /// Events the manifest promises.
    pub event_count: Option<u64>,
    /// `manifest.json`; empty when missing.
    pub manifest: Record,
    /// `metadata.json`; empty when missing.
    pub metadata: Record,
    /// `environment.json`; empty when missing.
    pub environment: Record,
    /// `evidence.json`; for bundles of other origin, what follows from their events.
    pub evidence: Record,
    /// What is missing or odd.
    pub notes: Vec<String>,
}

impl Bundle {
    /// Reads a bundle: its directory, or any of its files.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let mut bundle = Bundle::open(path)?;
        bundle.read_environment();
        if bundle.evidence.is_empty() {
            bundle.fill_from_events();
        }
        Ok(bundle)
    }

    /// Reads all but the events and the environment: enough for a list.
    pub fn summary(path: &Path) -> Result<Self, StoreError> {
        Bundle::open(path)
    }

    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let directory = directory_of(path)?;
        let mut notes = Vec::new();
        let mut part = |file: &str| match read_object(&directory.join(file)) {
            Ok(Some(record)) => record,
            Ok(None) => {
                if file != EVIDENCE_FILE {
                    notes.push(format!("{file} is missing"));
                }
                Record::new()
            }
            Err(error) => {
                notes.push(error.to_string());
                Record::new()
            }
        };
        let (manifest, metadata, evidence) =
            (part("manifest.json"), part("metadata.json"), part(EVIDENCE_FILE));
        if manifest.is_empty() && metadata.is_empty() && evidence.is_empty() {
            let message = "not an OOM bundle (looked for manifest.json, metadata.json and evidence.json); \
                           `stormlog oom list` finds the bundles in a directory";
            return Err(StoreError::Unrecognised { path: path.to_owned(), message: message.to_owned() });
        }
        let folder =
            directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let named = BundleName::parse(&folder);
        let either = |key: &str| text(&manifest, key).or_else(|| text(&metadata, key));
        let session = [&manifest, &metadata]
            .into_iter()
            .find_map(|record| SessionSummary::from_record(record.get("session")?.as_object()?).ok());
        let cause = text(&evidence, "cause").and_then(|word| Cause::of_word(&word));
        Ok(Bundle {
            name: text(&manifest, "bundle_name").unwrap_or(folder),
            created_at_utc: text(&manifest, "created_at_utc")
                .or_else(|| named.as_ref().map(BundleName::created_at_utc)),
            cause: cause.unwrap_or_else(|| cause_of(&manifest, &metadata)),
            ended: text(&evidence, "ended").and_then(|word| Ended::of_word(&word)),
            reason: either("reason"),
            backend: either("backend").or_else(|| named.map(|named| named.backend)),
            session_id: either("session_id")
                .or_else(|| session.as_ref().map(|session| session.session_id.clone())),
            session_status: either("session_status")
                .or_else(|| session.as_ref().map(|session| session.status.as_str().to_owned())),
            session,
            signal: evidence.get("signal").and_then(Value::as_i64),
            exit_code: evidence.get("exit_code").and_then(Value::as_i64),
            last_event_timestamp_ns: evidence.get("last_event_timestamp_ns").and_then(Value::as_u64),
            peak_rss_bytes: evidence.get("peak_rss_bytes").and_then(Value::as_u64),
            limit_bytes: evidence.get("limit_bytes").and_then(Value::as_u64),
            event_count: manifest
                .get("event_count")
                .or_else(|| metadata.get("captured_event_count"))
                .and_then(Value::as_u64),
            path: directory,
            manifest,
            metadata,
            environment: Record::new(),
            evidence,
            notes,
        })
    }

    /// Its events that can be read.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let events = Source::OomBundle(self.path.clone()).events(&ReadOptions::default());
        events.into_iter().flatten().filter_map(Result::ok).collect()
    }

    fn read_environment(&mut self) {
        match read_object(&self.path.join("environment.json")) {
            Ok(found) => self.environment = found.unwrap_or_default(),
            Err(error) => self.notes.push(error.to_string()),
        }
    }

    /// What a bundle without our evidence says all the same.
    fn fill_from_events(&mut self) {
        let source = Source::OomBundle(self.path.clone());
        let mut event_evidence = EventEvidence::default();
        match source.events(&ReadOptions::default()) {
            Ok(events) => {
                for event in events {
                    match event {
                        Ok(event) => event_evidence.observe(&event),
                        Err(error) => {
                            self.notes.push(error.to_string());
                            break;
                        }
                    }
                }
            }
            Err(error) => self.notes.push(error.to_string()),
        }
        if self.event_count.is_some_and(|promised| promised != event_evidence.count) {
            let promised = self.event_count.unwrap_or_default();
            self.notes
                .push(format!("the manifest lists {promised} events, {} were read", event_evidence.count));
        }
        let mut evidence = Evidence::of(self.cause);
        event_evidence.complete(&mut evidence);
        self.last_event_timestamp_ns = evidence.last_event_timestamp_ns;
        self.peak_rss_bytes = evidence.peak_rss_bytes;
        self.evidence = evidence.to_record();
    }

    /// The object of `oom show --json`: the promised keys first, then everything else there is.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("path", self.path.to_string_lossy().into_owned().into());
        put("bundle_name", self.name.as_str().into());
        put("created_at_utc", self.created_at_utc.as_deref().into());
        put("cause", self.cause.as_str().into());
        put("reason", self.reason.as_deref().into());
        put("backend", self.backend.as_deref().into());
        put("signal", self.signal.into());
        put("exit_code", self.exit_code.into());
        put("session_id", self.session_id.as_deref().into());
        put("session_status", self.session_status.as_deref().into());
        put("last_event_timestamp_ns", self.last_event_timestamp_ns.into());
        put("peak_rss_bytes", self.peak_rss_bytes.into());
        put("limit_bytes", self.limit_bytes.into());
        put("event_count", self.event_count.into());
        for key in ["exception_type", "exception_module", "exception_message", "context", "custom_metadata"] {
            put(key, self.metadata.get(key).cloned().unwrap_or(Value::Null));
        }
        put(
            "session",
            self.session.as_ref().map_or(Value::Null, |session| Value::Object(session.to_record())),
        );
        put("environment", Value::Object(self.environment.clone()));
        put("evidence", Value::Object(self.evidence.clone()));
        put("files", self.manifest.get("files").cloned().unwrap_or(Value::Null));
        put("notes", self.notes.clone().into());
        record
    }
}

fn text(record: &Record, key: &str) -> Option<String> {
    record.get(key)?.as_str().map(str::to_owned)
}

/// 0.4.3 writes bundles for exceptions only; which kind, the exception says.
fn cause_of(manifest: &Record, metadata: &Record) -> Cause {
    let get = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or("");
    let facts = ExceptionFacts {
        type_name: get("exception_type"),
        module: get("exception_module"),
        message: get("exception_message"),
        ..ExceptionFacts::default()
    };
    let reason = text(manifest, "reason").or_else(|| text(metadata, "reason"));
    let named = reason.and_then(|reason| Cause::of_word(&reason));
    match classify(&facts).cause() {
        // The original document's reason is `oom_exception` for all of them.
        Some(Cause::MemoryError) => Cause::MemoryError,
        found => named.or(found).unwrap_or(Cause::OomException),
    }
}

fn directory_of(path: &Path) -> Result<PathBuf, StoreError> {
    let metadata = std::fs::metadata(path).map_err(|error| StoreError::io(path, error))?;
    if metadata.is_dir() {
        return Ok(path.to_owned());
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => Ok(parent.to_owned()),
        _ => Ok(PathBuf::from(".")),
    }
}

/// The object in a file of a bundle; `None` when there is no such file. A link is not a file of the bundle.
pub(super) fn read_object(path: &Path) -> Result<Option<Record>, StoreError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io(path, error)),
        Ok(metadata) if !metadata.is_file() => {
            return Err(StoreError::NotAFile {
                path: path.to_owned(),
                what: "is a link or special file".into(),
            });
        }
        Ok(_) => {}
    }
    match json::read_value(path)? {
        Value::Object(record) => Ok(Some(record)),
        _ => {
            let message = "expected an object".to_owned();
            Err(StoreError::Unrecognised { path: path.to_owned(), message })
        }
    }
}
