//! Whole sessions in memory: grouped, ordered in time, in selection order.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stormlog_event::{Event, SessionStatus, SessionSummary, selection_order};

use crate::source::Source;
use crate::{Place, ReadOptions, StoreError, file};

/// How sessions are loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Accept records without a `schema_version`.
    pub permissive_legacy: bool,
    /// The key of a JSON object that holds the events.
    pub events_key: Option<String>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { permissive_legacy: true, events_key: None }
    }
}

/// One session and its events.
#[derive(Debug, Clone)]
pub struct LoadedSession {
    /// Identity and life.
    pub summary: SessionSummary,
    /// The events in time order.
    pub events: Vec<Event>,
    /// The files and directories they came from.
    pub sources: Vec<PathBuf>,
    /// What was noticed while reading.
    pub warnings: Vec<String>,
}

/// Every session at `path`, the one that is meant by default first. Any bad record is an error.
pub fn load_sessions(path: &Path, options: &LoadOptions) -> Result<Vec<LoadedSession>, StoreError> {
    let read = ReadOptions {
        permissive_legacy: options.permissive_legacy,
        events_key: options.events_key.clone(),
        ..ReadOptions::default()
    };
    let mut groups: FxHashMap<String, LoadedSession> = FxHashMap::default();
    for source in Source::find(path)? {
        load_source(&source, &read, &mut groups)?;
    }
    let mut sessions: Vec<LoadedSession> = groups.into_values().collect();
    for session in &mut sessions {
        if !session.events.is_sorted_by_key(|event| event.timestamp_ns) {
            session.events.sort_by_key(|event| event.timestamp_ns);
        }
        session.events.shrink_to_fit();
        session.sources.sort();
    }
    sessions.sort_by(|a, b| selection_order(&a.summary, &b.summary));
    Ok(sessions)
}

fn load_source(
    source: &Source,
    read: &ReadOptions,
    groups: &mut FxHashMap<String, LoadedSession>,
) -> Result<(), StoreError> {
    let resolved = file::resolved(source.path());
    let name = source.path().file_name().unwrap_or(resolved.as_os_str()).to_string_lossy().into_owned();
    let mut of_source: FxHashMap<String, Vec<Event>> = FxHashMap::default();
    let mut reader = source.events(read)?;
    // Runs of one session are the rule: look the group up only when the session changes.
    let mut current: Option<(String, Vec<Event>)> = None;
    for event in reader.by_ref() {
        let event = event?;
        match &mut current {
            Some((session, events)) if *session == event.head.session_id => events.push(event),
            _ => {
                if let Some((session, events)) = current.take() {
                    of_source.insert(session, events);
                }
                let session = event.head.session_id.clone();
                let mut events = of_source.remove(&session).unwrap_or_default();
                events.push(event);
                current = Some((session, events));
            }
        }
    }
    of_source.extend(current);
    let notes = reader.notes();
    let stated = source.stated_sessions();
    for summary in &stated {
        of_source.entry(summary.session_id.clone()).or_default();
    }
    for (session_id, events) in of_source {
        let summary = match stated.iter().find(|summary| summary.session_id == session_id) {
            Some(summary) => summary.clone(),
            None => {
                let inferred = SessionSummary::infer(
                    &session_id,
                    &events,
                    &format!("artifact:{name}"),
                    SessionStatus::Incomplete,
                );
                inferred.map(|inferred| source.judge(inferred)).ok_or_else(|| {
                    StoreError::malformed(
                        Place::file(source.path()),
                        format!("the session {session_id} has no events"),
                    )
                })?
            }
        };
        match groups.get_mut(&session_id) {
            Some(group) => {
                group.events.extend(events);
                group.sources.push(resolved.clone());
                group.warnings.extend(notes.iter().cloned());
                if selection_order(&summary, &group.summary).is_lt() {
                    group.summary = summary;
                }
            }
            None => {
                let sources = vec![resolved.clone()];
                let warnings = notes.clone();
                groups.insert(session_id, LoadedSession { summary, events, sources, warnings });
            }
        }
    }
    Ok(())
}
