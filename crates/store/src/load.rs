//! Whole sessions in memory: grouped, ordered in time, in selection order.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stormlog_event::{Event, SessionStatus, SessionSummary, selection_order};

use crate::source::{Source, sink_segments};
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

type Groups = FxHashMap<String, LoadedSession>;

fn load_source(source: &Source, read: &ReadOptions, groups: &mut Groups) -> Result<(), StoreError> {
    let stated = source.stated_sessions();
    match source {
        // A session of a sink came from its segments, not from all of them.
        Source::Sink(path) => {
            for (segment, session) in sink_segments(path)? {
                let options = ReadOptions { session_id: Some(session.clone()), ..read.clone() };
                let part = Part { source: Source::Json(segment.clone()), stated: &stated, named: source };
                let has_events = part.load(&options, &segment, groups)?;
                if !has_events && let Some(group) = groups.get_mut(&session) {
                    group.sources.push(segment);
                }
            }
        }
        other => {
            let part = Part { source: other.clone(), stated: &stated, named: source };
            part.load(read, &file::resolved(other.path()), groups)?;
        }
    }
    for summary in stated {
        let sources = || vec![file::resolved(source.path())];
        groups.entry(summary.session_id.clone()).or_insert_with(|| LoadedSession {
            summary,
            events: Vec::new(),
            sources: sources(),
            warnings: Vec::new(),
        });
    }
    Ok(())
}

/// One file of a source.
struct Part<'a> {
    source: Source,
    /// What the source says of its sessions.
    stated: &'a [SessionSummary],
    /// The source as a whole, whose name inferred sessions carry.
    named: &'a Source,
}

impl Part<'_> {
    /// Adds the events to their sessions; false when there are none.
    fn load(&self, read: &ReadOptions, origin: &Path, groups: &mut Groups) -> Result<bool, StoreError> {
        let mut by_session: FxHashMap<String, Vec<Event>> = FxHashMap::default();
        let mut reader = self.source.events(read)?;
        // Runs of one session are the rule: look the group up only when the session changes.
        let mut current: Option<(String, Vec<Event>)> = None;
        for event in reader.by_ref() {
            let event = event?;
            match &mut current {
                Some((session, events)) if *session == event.head.session_id => events.push(event),
                _ => {
                    by_session.extend(current.take());
                    let session = event.head.session_id.clone();
                    let mut events = by_session.remove(&session).unwrap_or_default();
                    events.push(event);
                    current = Some((session, events));
                }
            }
        }
        by_session.extend(current);
        let notes = reader.notes();
        let has_events = !by_session.is_empty();
        for (session_id, events) in by_session {
            self.add(session_id, events, origin, &notes, groups)?;
        }
        Ok(has_events)
    }

    fn add(
        &self,
        session_id: String,
        events: Vec<Event>,
        origin: &Path,
        notes: &[String],
        groups: &mut Groups,
    ) -> Result<(), StoreError> {
        if let Some(group) = groups.get_mut(&session_id) {
            group.events.extend(events);
            group.sources.push(origin.to_owned());
            group.warnings.extend_from_slice(notes);
            return Ok(());
        }
        let stated = self.stated.iter().find(|summary| summary.session_id == session_id).cloned();
        let summary = stated.or_else(|| {
            let path = self.named.path();
            let name =
                path.file_name().map_or_else(|| file::resolved(path).into_os_string(), ToOwned::to_owned);
            let artifact = format!("artifact:{}", name.to_string_lossy());
            SessionSummary::infer(&session_id, &events, &artifact, SessionStatus::Incomplete)
                .map(|inferred| self.named.judge(inferred))
        });
        let no_events =
            || StoreError::malformed(Place::file(origin), format!("the session {session_id} has no events"));
        let summary = summary.ok_or_else(no_events)?;
        let (sources, warnings) = (vec![origin.to_owned()], notes.to_vec());
        groups.insert(session_id, LoadedSession { summary, events, sources, warnings });
        Ok(())
    }
}
