//! Whole sessions in memory: grouped, ordered in time, in selection order.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stormlog_model::{Event, SessionStatus, SessionSummary, selection_order};

use crate::source::{Source, sink_segments};
use crate::{ReadOptions, StoreError, file};

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

/// Every session at `path`, the default first. Any bad record is an error.
pub fn load_sessions(path: &Path, options: &LoadOptions) -> Result<Vec<LoadedSession>, StoreError> {
    let read = ReadOptions {
        permissive_legacy: options.permissive_legacy,
        events_key: options.events_key.clone(),
        ..ReadOptions::default()
    };
    let mut gathered = Gathered::default();
    let sources = Source::find_known(path)?;
    for source in &sources.found {
        gathered.take(source, &read)?;
    }
    let mut sessions: Vec<LoadedSession> =
        gathered.by_id.into_iter().filter_map(|(id, session)| session.finish(&id)).collect();
    for session in &mut sessions {
        session.warnings.extend(sources.skipped.iter().map(StoreError::to_string));
    }
    sessions.sort_by(|a, b| selection_order(&a.summary, &b.summary));
    Ok(sessions)
}

/// Sessions while their events come in, possibly from several files.
#[derive(Default)]
struct Gathered {
    by_id: FxHashMap<String, Gathering>,
}

#[derive(Default)]
struct Gathering {
    stated: Option<SessionSummary>,
    events: Vec<Event>,
    paths: Vec<PathBuf>,
    warnings: Vec<String>,
    source: Option<Source>,
}

impl Gathered {
    fn take(&mut self, source: &Source, read: &ReadOptions) -> Result<(), StoreError> {
        match source {
            // A session of a sink came from its segments, not from all of them.
            Source::Sink(path) => {
                for (segment, session) in sink_segments(path)? {
                    let options = ReadOptions { session_id: Some(session.clone()), ..read.clone() };
                    if !self.read(&Source::Json(segment.clone()), &options, source, &segment)? {
                        self.by_id.entry(session).or_default().paths.push(segment);
                    }
                }
            }
            other => {
                self.read(other, read, other, &file::resolved(other.path()))?;
            }
        }
        for summary in source.stated_sessions() {
            let session = self.by_id.entry(summary.session_id.clone()).or_default();
            if session.paths.is_empty() {
                session.paths.push(file::resolved(source.path()));
            }
            if session.stated.as_ref().is_none_or(|known| selection_order(&summary, known).is_lt()) {
                session.stated = Some(summary);
            }
        }
        Ok(())
    }

    /// Adds the events of one file to their sessions; false when there are none.
    fn read(
        &mut self,
        file: &Source,
        options: &ReadOptions,
        source: &Source,
        path: &Path,
    ) -> Result<bool, StoreError> {
        let mut reader = file.events(options)?;
        // Runs of one session are the rule: look the session up only when it changes.
        let mut seen: Vec<String> = Vec::new();
        let mut current: Option<(String, Gathering)> = None;
        for event in reader.by_ref() {
            let event = event?;
            match &mut current {
                Some((id, session)) if *id == event.head.session_id => session.events.push(event),
                _ => {
                    self.by_id.extend(current.take());
                    let id = event.head.session_id.clone();
                    let mut session = self.by_id.remove(&id).unwrap_or_default();
                    session.events.push(event);
                    if !seen.contains(&id) {
                        seen.push(id.clone());
                    }
                    current = Some((id, session));
                }
            }
        }
        self.by_id.extend(current);
        let notes = reader.notes();
        for id in &seen {
            let session = self.by_id.entry(id.clone()).or_default();
            session.paths.push(path.to_owned());
            session.warnings.extend_from_slice(&notes);
            session.source.get_or_insert_with(|| source.clone());
        }
        Ok(!seen.is_empty())
    }
}

impl Gathering {
    /// The loaded session; `None` for an id that no event and no manifest stands for.
    fn finish(mut self, id: &str) -> Option<LoadedSession> {
        if !self.events.is_sorted_by_key(|event| event.timestamp_ns) {
            self.events.sort_by_key(|event| event.timestamp_ns);
        }
        self.events.shrink_to_fit();
        self.paths.sort();
        self.paths.dedup();
        let summary = match (self.stated, &self.source) {
            (Some(stated), _) => stated,
            (None, Some(source)) => {
                let path = source.path();
                let name =
                    path.file_name().map_or_else(|| file::resolved(path).into_os_string(), ToOwned::to_owned);
                let artifact = format!("artifact:{}", name.to_string_lossy());
                let inferred = SessionSummary::infer(id, &self.events, &artifact, SessionStatus::Incomplete)?;
                source.judge(inferred)
            }
            (None, None) => return None,
        };
        Some(LoadedSession { summary, events: self.events, sources: self.paths, warnings: self.warnings })
    }
}
