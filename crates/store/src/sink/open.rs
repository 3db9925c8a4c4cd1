//! How a sink's state begins: from what a directory holds, or from the process it was forked from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stormlog_model::{SessionStatus, SessionSummary};

use super::manifest::read_manifest_file;
use super::paths::discover;
use super::state::{Origin, State, Tracked, now_ns};
use super::{MANIFEST_FILENAME, SINK_SCHEMA_VERSION, SinkConfig, SinkError, SinkSegment, segment};

/// Sessions and segments that a sink's directory holds.
struct SinkContents {
    /// The manifest's schema; `None` when there is no manifest to be read.
    schema: Option<u64>,
    sessions: BTreeMap<String, SessionSummary>,
    segments: Vec<Tracked>,
}

/// The state of a sink in a directory: new, or taken up where the last writer left it. Sessions still running there
/// were interrupted, and what is not listed is adopted.
pub(super) fn open(config: Arc<SinkConfig>, host: String) -> Result<State, SinkError> {
    let root = &config.root_dir;
    stormlog_files::create_directory(root).map_err(|error| SinkError::at(root, error))?;
    let SinkContents { schema, mut sessions, mut segments } = find(&config)?;
    let mut rewrite = match schema {
        Some(schema) => schema != SINK_SCHEMA_VERSION,
        None => !segments.is_empty(),
    };
    for session in sessions.values_mut().filter(|session| session.status == SessionStatus::Running) {
        session.status = SessionStatus::Interrupted;
        session.ended_at_ns = Some(now_ns());
        rewrite = true;
    }
    for Tracked { segment, .. } in &mut segments {
        let session = segment.session_id.as_ref().and_then(|id| sessions.get(id));
        segment.closed |= session.is_some_and(|session| session.status == SessionStatus::Interrupted);
    }
    let state = State::new(Arc::clone(&config), host, sessions, segments);
    if rewrite {
        state.manifest().write(root, false)?;
    }
    Ok(state)
}

/// The state for a process forked from the one that has `parent`. The buffer is the parent's to write, its open
/// segments are the parent's to append to; session and history are shared.
pub(super) fn inherit(parent: &State) -> State {
    let mut segments = parent.segments.clone();
    // A segment that has no file yet will get one in the parent, under whatever name is free then.
    segments.retain(|tracked| tracked.origin != Origin::Planned);
    disown(&mut segments);
    let sessions = parent.sessions.clone();
    let mut state = State::new(Arc::clone(&parent.config), parent.host.clone(), sessions, segments);
    state.active = parent.active.clone();
    state
}

/// The same when the parent's state was being changed at the moment of the fork and must not be looked at: from what
/// is on disk, changing nothing there. What is not listed may be another process's open segment: it is let be.
pub(super) fn inherit_from_disk(config: Arc<SinkConfig>, host: String) -> State {
    let SinkContents { sessions, mut segments, .. } = listed(&config);
    disown(&mut segments);
    State::new(config, host, sessions, segments)
}

fn disown(segments: &mut [Tracked]) {
    for tracked in segments.iter_mut().filter(|tracked| !tracked.segment.closed) {
        tracked.origin = Origin::Foreign;
    }
}

/// What the manifest lists and what is found beside it.
fn find(config: &SinkConfig) -> Result<SinkContents, SinkError> {
    let mut contents = listed(config);
    let names: BTreeSet<String> = contents.segments.iter().map(|it| it.segment.filename.clone()).collect();
    for (filename, path) in discover(&config.root_dir) {
        if names.contains(&filename) {
            continue;
        }
        let (size_bytes, event_count) = segment::measure(&path)?;
        let segment = SinkSegment { filename, event_count, size_bytes, closed: true, session_id: None };
        contents.segments.push(Tracked { segment, origin: Origin::Existing });
    }
    contents.segments.sort_by(|a, b| a.segment.filename.cmp(&b.segment.filename));
    Ok(contents)
}

/// What the manifest lists, in the order of names; of two entries with one name the later holds.
fn listed(config: &SinkConfig) -> SinkContents {
    let manifest = read_manifest_file(&config.root_dir.join(MANIFEST_FILENAME));
    let schema = manifest.as_ref().map(|manifest| manifest.schema_version);
    let (sessions, segments) = manifest.map_or_else(Default::default, |it| (it.sessions, it.segments));
    let segments: BTreeMap<String, SinkSegment> =
        segments.into_iter().map(|segment| (segment.filename.clone(), segment)).collect();
    let segments = segments.into_values().map(|segment| Tracked { segment, origin: Origin::Existing });
    let sessions = sessions.into_iter().map(|session| (session.session_id.clone(), session));
    SinkContents { schema, sessions: sessions.collect(), segments: segments.collect() }
}
