//! `session.json`: whose recording a directory is, and in which state.

use std::path::Path;

use serde_json::Value;
use stormlog_model::layout::{LOG_DIRECTORY, SESSION_FILE};
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_ring::{LogReader, RingReader, Status};

use crate::json::{self, write};
use crate::{SourcePosition, StoreError};

/// Reads the session of a directory.
pub fn read_session(directory: &Path) -> Result<SessionSummary, StoreError> {
    let path = directory.join(SESSION_FILE);
    let Value::Object(record) = json::read_value(&path)? else {
        return Err(StoreError::malformed(SourcePosition::file(path), "expected a session object"));
    };
    SessionSummary::from_record(&record)
        .map_err(|problem| StoreError::record(SourcePosition::file(path), problem))
}

/// Writes the session of a directory, whole or not at all.
pub fn write_session(directory: &Path, summary: &SessionSummary) -> Result<(), StoreError> {
    let path = directory.join(SESSION_FILE);
    stormlog_files::replace(&path, &session_text(summary)).map_err(|error| StoreError::io(path, error))
}

/// What `session.json` says of a session.
#[must_use]
pub fn session_text(summary: &SessionSummary) -> Vec<u8> {
    let mut text = Vec::new();
    // Memory takes every write.
    let _ = write::write_indented(&mut text, &summary.to_record(), 0);
    text.push(b'\n');
    text
}

/// The session a ring or log belongs to, when its directory says so.
pub(crate) fn stated_session(path: &Path) -> Option<SessionSummary> {
    let directory = path.parent()?;
    // A log directory given by itself has its session beside it; a ring too.
    let summary = read_session(directory).ok()?;
    Some(judge(path, summary))
}

/// Corrects a session's state by what its writers left: one that died without closing it was interrupted. A supervisor that died says
/// nothing of the process it recorded, and on another machine's file nothing is known of either.
pub(crate) fn judge(path: &Path, mut summary: SessionSummary) -> SessionSummary {
    if !matches!(summary.status, SessionStatus::Running | SessionStatus::Incomplete) {
        return summary;
    }
    let is_log = path.is_dir() || path.file_name().is_some_and(|name| name == LOG_DIRECTORY);
    let status = if is_log {
        LogReader::open(path).map(|reader| reader.status())
    } else {
        RingReader::open(path).map(|reader| reader.status())
    };
    let is_own = |pids: &[u32]| {
        pids.iter().any(|pid| i64::from(*pid) == summary.pid)
            && summary.host == stormlog_liveness::host_name()
    };
    match (status, summary.status) {
        (Ok(Status::Died { pids }), SessionStatus::Running | SessionStatus::Incomplete) if is_own(&pids) => {
            summary.status = SessionStatus::Interrupted;
        }
        (Ok(Status::Active { .. }), SessionStatus::Incomplete) => summary.status = SessionStatus::Running,
        (Ok(Status::Closed), SessionStatus::Running) => summary.status = SessionStatus::Incomplete,
        _ => {}
    }
    summary
}
