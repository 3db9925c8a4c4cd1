//! Which sessions are at a path, without holding their events: state, identity, span, count and peaks.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stormlog_model::{Counter, Event, SessionStatus, SessionSummary, selection_order};
use stormlog_store::{ReadOptions, Source, StoreError};

use crate::run::session_life;

/// A session that was found.
#[derive(Debug, Clone)]
pub struct FoundSession {
    /// Identity and life.
    pub summary: SessionSummary,
    /// The source with most of its events.
    pub path: PathBuf,
    /// What kind of source that is.
    pub kind: &'static str,
    /// Every source that knows the session.
    pub sources: Vec<PathBuf>,
    /// Events in that source.
    pub event_count: u64,
    /// First and last event, nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// The highest value of each counter and when it was reached.
    pub peaks: Peaks,
    /// What is missing or odd about it.
    pub notes: Vec<String>,
}

/// The highest values seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peaks {
    /// Allocator bytes handed out.
    pub allocated: Option<u64>,
    /// Allocator bytes held.
    pub reserved: Option<u64>,
    /// Bytes used on the device, or RSS.
    pub device_used: Option<u64>,
}

impl Peaks {
    fn observe(&mut self, event: &Event) {
        for (peak, counter) in [
            (&mut self.allocated, Counter::Allocated),
            (&mut self.reserved, Counter::Reserved),
            (&mut self.device_used, Counter::Used),
        ] {
            *peak = (*peak).max(event.counter(counter));
        }
    }
}

/// The sessions at a path and the sources that could not be read.
#[derive(Debug, Default)]
pub struct FoundSessions {
    /// In selection order.
    pub sessions: Vec<FoundSession>,
    /// Sources that are damaged, each with what is wrong; what was read before the damage is counted above.
    pub damaged: Vec<StoreError>,
    /// Runs that were left out, each with the reason.
    pub skipped: Vec<StoreError>,
}

impl FoundSession {
    /// Whether its process is known to be gone, whatever its manifest says.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let of = &self.summary;
        session_life(&self.path, of.pid, &of.host, of.started_at_ns) == stormlog_liveness::Life::Dead
    }
}

/// Looks at everything at `path`. When `go_on` says no, what was found so far is the answer.
pub fn find_sessions(path: &Path, go_on: &dyn Fn() -> bool) -> Result<FoundSessions, StoreError> {
    let sources = Source::find_known(path)?;
    let found = sessions_in(&sources.found, &FoundSession::is_dead, go_on);
    Ok(FoundSessions { skipped: sources.skipped, ..found })
}

/// As [`find_sessions`], of sources that were found already. `is_dead` tells whether the process of a session that claims to be
/// running is gone.
pub fn sessions_in(
    sources: &[Source],
    is_dead: &dyn Fn(&FoundSession) -> bool,
    go_on: &dyn Fn() -> bool,
) -> FoundSessions {
    let mut by_id: FxHashMap<String, FoundSession> = FxHashMap::default();
    let mut found = FoundSessions::default();
    for source in sources {
        for session in sessions_of(source, &mut found.damaged, go_on) {
            merge(&mut by_id, session);
        }
    }
    found.sessions = by_id.into_values().collect();
    for session in &mut found.sessions {
        if session.summary.status == SessionStatus::Running && is_dead(session) {
            session.summary.status = SessionStatus::Interrupted;
            session.summary.ended_at_ns =
                session.span_ns.map(|(_, last)| i64::try_from(last).unwrap_or(i64::MAX));
        }
    }
    found.sessions.sort_by(|a, b| selection_order(&a.summary, &b.summary));
    found
}

/// What is remembered of a session while its events stream by.
struct Pass {
    first: Event,
    last_ns: u64,
    stop: Option<Event>,
    count: u64,
    peaks: Peaks,
}

fn sessions_of(
    source: &Source,
    damaged: &mut Vec<StoreError>,
    go_on: &dyn Fn() -> bool,
) -> Vec<FoundSession> {
    let mut passes: FxHashMap<String, Pass> = FxHashMap::default();
    let mut notes = Vec::new();
    match source.events(&ReadOptions::default()) {
        Ok(mut events) => {
            for event in events.by_ref().take_while(|_| go_on()) {
                match event {
                    Ok(event) => observe(&mut passes, event),
                    Err(error) => {
                        damaged.push(error);
                        break;
                    }
                }
            }
            notes = events.notes();
        }
        Err(error) => damaged.push(error),
    }
    let stated = source.stated_sessions();
    let mut found = Vec::new();
    for summary in &stated {
        if !passes.contains_key(&summary.session_id) {
            found.push(session(source, summary.clone(), None, &notes));
        }
    }
    let name = source.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for (session_id, pass) in passes {
        let summary = stated.iter().find(|summary| summary.session_id == session_id).cloned();
        let proof = std::iter::once(&pass.first).chain(&pass.stop);
        let summary = summary.or_else(|| {
            SessionSummary::infer(&session_id, proof, &format!("artifact:{name}"), SessionStatus::Incomplete)
                .map(|inferred| source.judge(inferred))
        });
        found.extend(summary.map(|summary| session(source, summary, Some(pass), &notes)));
    }
    found
}

fn observe(passes: &mut FxHashMap<String, Pass>, event: Event) {
    let pass = match passes.get_mut(&event.head.session_id) {
        Some(pass) => pass,
        None => passes.entry(event.head.session_id.clone()).or_insert_with(|| Pass {
            first: event.clone(),
            last_ns: event.timestamp_ns,
            stop: None,
            count: 0,
            peaks: Peaks::default(),
        }),
    };
    pass.count += 1;
    pass.peaks.observe(&event);
    pass.last_ns = pass.last_ns.max(event.timestamp_ns);
    if event.timestamp_ns < pass.first.timestamp_ns {
        pass.first = event.clone();
    }
    if event.head.event_type == "stop"
        && pass.stop.as_ref().is_none_or(|stop| stop.timestamp_ns <= event.timestamp_ns)
    {
        pass.stop = Some(event);
    }
}

fn session(source: &Source, summary: SessionSummary, pass: Option<Pass>, notes: &[String]) -> FoundSession {
    let span_ns = pass.as_ref().map(|pass| (pass.first.timestamp_ns, pass.last_ns));
    FoundSession {
        summary,
        path: source.path().to_owned(),
        kind: source.kind(),
        sources: vec![source.path().to_owned()],
        event_count: pass.as_ref().map_or(0, |pass| pass.count),
        span_ns,
        peaks: pass.map(|pass| pass.peaks).unwrap_or_default(),
        notes: notes.to_vec(),
    }
}

/// The same session in two artifacts (a sink and an OOM bundle, say) is one session; the fuller artifact speaks for it.
fn merge(by_id: &mut FxHashMap<String, FoundSession>, mut session: FoundSession) {
    let Some(known) = by_id.get_mut(&session.summary.session_id) else {
        by_id.insert(session.summary.session_id.clone(), session);
        return;
    };
    if session.event_count > known.event_count {
        std::mem::swap(known, &mut session);
    }
    known.sources.append(&mut session.sources);
    known.notes.append(&mut session.notes);
}
