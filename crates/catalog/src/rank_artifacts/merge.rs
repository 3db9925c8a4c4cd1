//! Sessions joined: the parts of one session from several inputs, files without a session, and the ranks of a job.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stormlog_model::{
    Counter, Event, Head, SessionStatus, SessionSummary, legacy_session_id, selection_order,
};
use stormlog_store::LoadedSession;

/// Sessions as they come in, those of one id joined.
#[derive(Debug, Default)]
pub(super) struct Merger {
    sessions: Vec<LoadedSession>,
    places: FxHashMap<String, usize>,
}

impl Merger {
    pub(super) fn add(&mut self, sessions: impl IntoIterator<Item = LoadedSession>) {
        for session in sessions {
            let Some(place) = self.places.get(&session.summary.session_id) else {
                self.places.insert(session.summary.session_id.clone(), self.sessions.len());
                self.sessions.push(session);
                continue;
            };
            let known = &mut self.sessions[*place];
            if selection_order(&session.summary, &known.summary).is_lt() {
                known.summary = session.summary;
            }
            known.events.extend(session.events);
            known.sources.extend(session.sources);
            known.warnings.extend(session.warnings);
        }
    }

    /// The sessions, the one meant by default first.
    pub(super) fn finish(self) -> Vec<LoadedSession> {
        let mut sessions = self.sessions;
        for session in &mut sessions {
            put_in_order(&mut session.events);
            session.sources = sorted(std::mem::take(&mut session.sources));
            session.warnings = unique(std::mem::take(&mut session.warnings));
        }
        sessions.sort_by(|a, b| selection_order(&a.summary, &b.summary));
        sessions
    }
}

/// Drops events that are there already, by the ten fields of 0.4.3, and sorts the rest by time.
pub(super) fn put_in_order(events: &mut Vec<Event>) {
    let mut seen = HashSet::with_capacity(events.len());
    let kept: Vec<bool> = events
        .iter()
        .map(|event| {
            let (head, identity) = (&event.head, &event.head.identity);
            seen.insert((
                head.session_id.as_str(),
                event.timestamp_ns,
                (identity.rank, identity.local_rank, identity.world_size),
                head.event_type.as_str(),
                [Counter::Allocated, Counter::Reserved, Counter::Used].map(|counter| event.counter(counter)),
                event.context.as_deref().unwrap_or(""),
            ))
        })
        .collect();
    drop(seen);
    let mut kept = kept.into_iter();
    events.retain(|_| kept.next().unwrap_or(true));
    events.sort_by_key(|event| event.timestamp_ns);
}

/// Flat files without a session as one session; `None` without files.
pub(super) fn sessionless(sessions: Vec<LoadedSession>) -> Option<LoadedSession> {
    if sessions.is_empty() {
        return None;
    }
    let sources = sources_of(&sessions);
    let names: Vec<String> = sources.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let parts = std::iter::once("distributed.legacy").chain(names.iter().map(String::as_str));
    let id = legacy_session_id(parts);
    Some(joined(&sessions.iter().collect::<Vec<_>>(), &id, "stormlog.diagnostics.legacy", sources))
}

/// A session for each job whose ranks came in one session each: `alone` are the sessions that were the only one of their input.
pub(super) fn whole_jobs(sessions: &[LoadedSession], alone: &BTreeSet<String>) -> Vec<LoadedSession> {
    let mut groups: Vec<((&str, i64), Vec<&LoadedSession>)> = Vec::new();
    for session in sessions {
        let summary = &session.summary;
        let Some(job_id) = summary.job_id.as_deref() else { continue };
        if !alone.contains(&summary.session_id) || summary.world_size <= 1 || session.events.is_empty() {
            continue;
        }
        let key = (job_id, summary.world_size);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(session),
            None => groups.push((key, vec![session])),
        }
    }
    let is_job = |(key, group): &((&str, i64), Vec<&LoadedSession>)| {
        let ranks: BTreeSet<i64> = group.iter().map(|session| session.summary.rank).collect();
        group.len() > 1 && group.len() as i64 <= key.1 && ranks.len() == group.len()
    };
    groups
        .into_iter()
        .filter(is_job)
        .map(|((job_id, world_size), group)| whole_job(job_id, world_size, &group))
        .collect()
}

fn whole_job(job_id: &str, world_size: i64, group: &[&LoadedSession]) -> LoadedSession {
    let world_size = world_size.to_string();
    let ids: BTreeSet<&str> = group.iter().map(|session| session.summary.session_id.as_str()).collect();
    let parts = ["distributed.rank_group", job_id, &world_size].into_iter().chain(ids);
    let id = legacy_session_id(parts);
    let sources = sorted(group.iter().flat_map(|session| session.sources.iter().cloned()).collect());
    joined(group, &id, "stormlog.diagnostics.distributed", sources)
}

fn joined(sessions: &[&LoadedSession], id: &str, source: &str, sources: Vec<PathBuf>) -> LoadedSession {
    let mut heads: FxHashMap<*const Head, Arc<Head>> = FxHashMap::default();
    let mut events = Vec::with_capacity(sessions.iter().map(|session| session.events.len()).sum());
    for event in sessions.iter().flat_map(|session| &session.events) {
        // The heads live as long as the sessions, so an address stands for one of them.
        let head = heads
            .entry(Arc::as_ptr(&event.head))
            .or_insert_with(|| Arc::new(Head { session_id: id.to_owned(), ..Head::clone(&event.head) }));
        events.push(Event { head: Arc::clone(head), ..event.clone() });
    }
    put_in_order(&mut events);
    let warnings = unique(sessions.iter().flat_map(|session| session.warnings.iter().cloned()).collect());
    LoadedSession { summary: summary(sessions, id, source), events, sources, warnings }
}

fn summary(sessions: &[&LoadedSession], id: &str, source: &str) -> SessionSummary {
    let summaries = || sessions.iter().map(|session| &session.summary);
    let is_complete = summaries().all(|summary| summary.status == SessionStatus::Completed);
    let ended_at_ns = summaries().filter_map(|summary| summary.ended_at_ns).max();
    let pids: BTreeSet<i64> = summaries().map(|summary| summary.pid).collect();
    let least = |of: fn(&SessionSummary) -> i64| summaries().map(of).min().unwrap_or(0);
    SessionSummary {
        session_id: id.to_owned(),
        status: if is_complete { SessionStatus::Completed } else { SessionStatus::Incomplete },
        started_at_ns: least(|summary| summary.started_at_ns),
        ended_at_ns: ended_at_ns.filter(|_| is_complete),
        host: common(summaries().map(|summary| Some(summary.host.as_str())))
            .unwrap_or_else(|| "multiple".to_owned()),
        pid: match (pids.len(), pids.first()) {
            (1, Some(pid)) => *pid,
            _ => -1,
        },
        job_id: common(summaries().map(|summary| summary.job_id.as_deref())),
        rank: least(|summary| summary.rank),
        local_rank: least(|summary| summary.local_rank),
        world_size: summaries().map(|summary| summary.world_size).max().unwrap_or(1),
        attempt: None,
        source: source.to_owned(),
    }
}

/// The text that all of those that have one have.
fn common<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let distinct: BTreeSet<&str> = values.flatten().collect();
    match (distinct.len(), distinct.first()) {
        (1, Some(only)) => Some((*only).to_owned()),
        _ => None,
    }
}

fn sources_of(sessions: &[LoadedSession]) -> Vec<PathBuf> {
    sorted(sessions.iter().flat_map(|session| session.sources.iter().cloned()).collect())
}

/// Paths in the order of their texts, which session ids are made of; each once.
fn sorted(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let texts: BTreeSet<OsString> = paths.into_iter().map(PathBuf::into_os_string).collect();
    texts.into_iter().map(PathBuf::from).collect()
}

/// Each text once, in the order they came.
pub(super) fn unique(texts: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}
