//! What a question reads: the sessions of each source, and their events.
//!
//! A caller that asks once lets events stream by; one that asks again ([`Options::retain_events`]) has each source loaded once and kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use stormlog_liveness::Life;
use stormlog_model::{Event, SessionStatus, SessionSummary};
use stormlog_store::sink::{self, SinkManifest};
use stormlog_store::{LoadOptions, LoadedSession, ReadOptions, Source, json, load_sessions};

use super::QueryError;
use super::sources::{Catalog, WarningKind};
use crate::run::session_life;
use crate::sessions::{FoundSession, sessions_in};

/// Whether the caller still wants the answer.
pub type KeepReading = Box<dyn Fn() -> bool + Send + Sync>;

/// What a store cannot know by itself.
pub struct Options {
    /// Whether to continue.
    pub go_on: KeepReading,
    /// Keep the events of every source that was read, for the next question.
    pub retain_events: bool,
}

/// Answers about a catalog. Every answer is a list of rows in a fixed order.
pub struct Store {
    pub(super) catalog: Catalog,
    options: Options,
    known: FxHashMap<usize, Arc<Vec<SourceSession>>>,
    loaded: FxHashMap<usize, Arc<Vec<Loaded>>>,
    failed: FxHashSet<usize>,
    reported_conflicts: FxHashSet<String>,
}

/// A session as a source knows it.
#[derive(Debug, Clone)]
pub(super) struct SourceSession {
    pub(super) summary: SessionSummary,
    pub(super) event_count: Option<u64>,
    pub(super) source_count: u64,
    pub(super) warning_count: u64,
    /// The file that stands for its events: of a sink the first of its segments.
    place: PathBuf,
    /// Whether links in it are still to be resolved. A listing of 10,000 runs does not need it.
    is_plain: bool,
}

impl SourceSession {
    /// The file that stands for its events.
    pub(super) fn place(&self) -> String {
        let resolved = if self.is_plain { std::fs::canonicalize(&self.place).ok() } else { None };
        resolved.as_ref().unwrap_or(&self.place).display().to_string()
    }
}

/// A session with its events, in time order.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) known: SourceSession,
    pub(super) events: Vec<Event>,
}

impl Store {
    /// What is at some paths, ready to be asked.
    pub fn open(paths: &[PathBuf], options: Options) -> Self {
        Store {
            catalog: Catalog::open(paths),
            options,
            known: FxHashMap::default(),
            loaded: FxHashMap::default(),
            failed: FxHashSet::default(),
            reported_conflicts: FxHashSet::default(),
        }
    }

    /// What was found.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn check(&self) -> Result<(), QueryError> {
        if (self.options.go_on)() { Ok(()) } else { Err(QueryError::Interrupted) }
    }

    pub(super) fn source_count(&self) -> usize {
        self.catalog.sources.len()
    }

    pub(super) fn kind_of(&self, number: usize) -> &'static str {
        self.catalog.sources[number].kind()
    }

    fn failed(&mut self, number: usize, error: &stormlog_store::StoreError) {
        if self.failed.insert(number) {
            let path = self.catalog.sources[number].path().to_owned();
            self.catalog.load_failed(&path, error);
        }
    }

    /// Reports once that several runs claim something.
    pub(super) fn conflict(&mut self, message: String) {
        if self.reported_conflicts.insert(message.clone()) {
            self.catalog.warn(
                WarningKind::Ambiguous,
                Path::new("<run-catalog>"),
                &message,
                Some(message.clone()),
            );
        }
    }

    /// The sessions of a source with their events. What `diagnose` sampled is in its own file, not telemetry of a program.
    pub(super) fn load(&mut self, number: usize) -> Result<Arc<Vec<Loaded>>, QueryError> {
        if let Some(loaded) = self.loaded.get(&number) {
            return Ok(Arc::clone(loaded));
        }
        self.check()?;
        let path = self.catalog.sources[number].path().to_owned();
        let sessions = match &self.catalog.sources[number].source {
            Source::DiagnoseBundle(_) => Ok(Vec::new()),
            _ => load_sessions(&path, &LoadOptions::default()),
        };
        let sessions = match sessions {
            Ok(sessions) => sessions,
            Err(error) => {
                self.failed(number, &error);
                Vec::new()
            }
        };
        let loaded =
            Arc::new(sessions.into_iter().map(|session| Store::settle(&path, session)).collect::<Vec<_>>());
        if self.options.retain_events {
            self.loaded.insert(number, Arc::clone(&loaded));
        }
        Ok(loaded)
    }

    fn settle(path: &Path, session: LoadedSession) -> Loaded {
        let LoadedSession { mut summary, events, sources, warnings } = session;
        if is_abandoned(path, &summary) {
            summary.status = SessionStatus::Interrupted;
            summary.ended_at_ns = events.iter().map(|event| event.timestamp_ns).max().map(signed);
        }
        let source_count = sources.len().max(1) as u64;
        let place = sources.into_iter().next().unwrap_or_else(|| path.to_owned());
        let known = SourceSession {
            summary,
            event_count: Some(events.len() as u64),
            source_count,
            warning_count: warnings.len() as u64,
            place,
            is_plain: false,
        };
        Loaded { known, events }
    }

    /// The sessions whose events a source holds.
    pub(super) fn known(&mut self, number: usize) -> Result<Arc<Vec<SourceSession>>, QueryError> {
        if let Some(known) = self.known.get(&number) {
            return Ok(Arc::clone(known));
        }
        let is_streamed = self.is_streamed(number);
        let known = match self.catalog.sources[number].source {
            Source::DiagnoseBundle(_) => Vec::new(),
            _ if is_streamed => self.streamed(number)?,
            _ => self.load(number)?.iter().map(|loaded| loaded.known.clone()).collect(),
        };
        let known = Arc::new(known);
        self.known.insert(number, Arc::clone(&known));
        Ok(known)
    }

    /// Whether a source is read without holding its events. A sink without a manifest is held: only its events tell which segments are whose.
    fn is_streamed(&self, number: usize) -> bool {
        let has_sessions = || self.manifest(number).is_some_and(|manifest| !manifest.sessions.is_empty());
        !self.options.retain_events && (self.kind_of(number) != "sink" || has_sessions())
    }

    /// The same of a source whose events need not be held.
    fn streamed(&mut self, number: usize) -> Result<Vec<SourceSession>, QueryError> {
        let source = self.catalog.sources[number].source.clone();
        let path = source.path();
        let is_dead = |session: &FoundSession| is_abandoned(path, &session.summary);
        let mut found = sessions_in(std::slice::from_ref(&source), &is_dead, &|| (self.options.go_on)());
        self.check()?;
        if let Some(error) = found.damaged.first() {
            // What one bad record makes doubtful is left out whole, as 0.4.3 does.
            self.failed(number, error);
            return Ok(Vec::new());
        }
        let manifest = self.manifest(number);
        let known = found.sessions.drain(..).map(|session| {
            let id = session.summary.session_id.as_str();
            let listed = manifest.iter().flat_map(|manifest| &manifest.segments);
            let mut segments = listed.filter(|segment| segment.session_id.as_deref() == Some(id));
            let first = segments.next().map(|segment| path.join(&segment.filename));
            SourceSession {
                source_count: (segments.count() as u64) + 1,
                event_count: Some(session.event_count),
                warning_count: session.notes.len() as u64,
                is_plain: first.is_none(),
                place: first.unwrap_or_else(|| path.to_owned()),
                summary: session.summary,
            }
        });
        Ok(known.collect())
    }

    /// Every event of every session, by source.
    pub(super) fn each_event(
        &mut self,
        mut take: impl FnMut(usize, &SourceSession, &Event),
    ) -> Result<(), QueryError> {
        for number in 0..self.source_count() {
            let is_streamed = self.is_streamed(number);
            if !is_streamed {
                for loaded in self.load(number)?.iter() {
                    loaded.events.iter().for_each(|event| take(number, &loaded.known, event));
                }
                continue;
            }
            // The first pass finds the damage: the second gives only what is whole.
            let known = self.known(number)?;
            if known.is_empty() {
                continue;
            }
            let by_id: FxHashMap<&str, &SourceSession> =
                known.iter().map(|known| (known.summary.session_id.as_str(), known)).collect();
            let source = self.catalog.sources[number].source.clone();
            let Ok(events) = source.events(&ReadOptions::default()) else { continue };
            for event in events.flatten() {
                self.check()?;
                if let Some(known) = by_id.get(event.head.session_id.as_str()) {
                    take(number, known, &event);
                }
            }
        }
        Ok(())
    }

    /// The sessions a manifest states: of a sink its own, of a bundle of `diagnose` the one it is of.
    pub(super) fn stated(&mut self, number: usize) -> Result<Vec<SessionSummary>, QueryError> {
        match &self.catalog.sources[number].source {
            Source::Sink(_) => {
                let manifest = self.manifest(number);
                let sessions = manifest.map(|manifest| manifest.sessions).unwrap_or_default();
                sessions.into_iter().map(|summary| self.settled(number, summary)).collect()
            }
            Source::DiagnoseBundle(path) => Ok(diagnosed_session(path).into_iter().collect()),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn manifest(&self, number: usize) -> Option<SinkManifest> {
        match &self.catalog.sources[number].source {
            Source::Sink(path) => sink::read_manifest(path),
            _ => None,
        }
    }

    /// A stated session by what its events add: of one whose process is gone they know the end.
    pub(super) fn settled(
        &mut self,
        number: usize,
        mut summary: SessionSummary,
    ) -> Result<SessionSummary, QueryError> {
        let path = self.catalog.sources[number].path().to_owned();
        if !is_abandoned(&path, &summary) {
            return Ok(summary);
        }
        let known = self.known(number)?;
        let found = known.iter().find(|known| known.summary.session_id == summary.session_id);
        if let Some(found) = found {
            return Ok(found.summary.clone());
        }
        summary.status = SessionStatus::Interrupted;
        Ok(summary)
    }
}

/// Whether a session claims to run though its process is known to have ended.
fn is_abandoned(path: &Path, summary: &SessionSummary) -> bool {
    let life = || session_life(path, summary.pid, &summary.host, summary.started_at_ns);
    summary.status == SessionStatus::Running && life() == Life::Dead
}

fn signed(at_ns: u64) -> i64 {
    i64::try_from(at_ns).unwrap_or(i64::MAX)
}

/// The session a bundle of `diagnose` is of, by its manifest.
pub(super) fn diagnosed_session(directory: &Path) -> Option<SessionSummary> {
    let Ok(Value::Object(stated)) = json::read_value(&directory.join(sink::MANIFEST_FILENAME)) else {
        return None;
    };
    let whole = stated.get("session").and_then(Value::as_object);
    if let Some(Ok(summary)) = whole.map(SessionSummary::from_record) {
        return Some(summary);
    }
    let session_id = stated.get("session_id")?.as_str().filter(|id| !id.is_empty())?.to_owned();
    let incomplete = Value::from("incomplete");
    let status = SessionStatus::parse(stated.get("session_status").unwrap_or(&incomplete)).ok()?;
    Some(SessionSummary {
        session_id,
        status,
        started_at_ns: 0,
        ended_at_ns: None,
        host: "unknown".to_owned(),
        pid: -1,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "stormlog.diagnose".to_owned(),
    })
}
