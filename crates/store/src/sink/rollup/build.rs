//! From a sink's directory to its rollups in one pass over the segments, one record in memory at a time.
//!
//! Windows count from a session's start. The manifest says it; for a session the manifest does not know, the first
//! event's time is assumed, and only if an earlier one turns up are the segments read a second time.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use stormlog_model::{Event, SessionStatus, SessionSummary, legacy_session_id};

use super::session::MAX_GROUPS;
use super::{Observation, RollupBuilder, RollupCoverage, RollupFile};
use crate::json::EventReader;
use crate::sink::state::now_ns;
use crate::sink::{
    MANIFEST_FILENAME, ROLLUP_FORMAT, ROLLUP_SCHEMA_VERSION, SINK_SCHEMA_VERSION, SinkError, SinkManifest,
    read_manifest, segment_paths,
};
use crate::{ReadOptions, file};

/// One session while it is read.
struct Group {
    builder: RollupBuilder,
    summary: Option<SessionSummary>,
    /// What the summary is inferred from when the manifest has none: the earliest event and the last stop.
    earliest: Option<Event>,
    stop: Option<Event>,
    /// Positions of the segments with its events.
    sources: Vec<usize>,
}

/// Rolls up the sink in the directory `root`. Without `coverage`, what its manifest lists is covered.
pub fn rollup_sink(
    root: &Path,
    window_ns: u64,
    coverage: Option<RollupCoverage>,
) -> Result<RollupFile, SinkError> {
    let paths = segment_paths(root);
    if paths.is_empty() {
        return Err(SinkError::NoSegments { path: root.to_owned() });
    }
    let manifest = read_manifest(root);
    let resolved = file::resolved(root).to_string_lossy().into_owned();
    let hints = hints(&paths, manifest.as_ref(), &resolved);
    let mut starts = BTreeMap::new();
    let groups = loop {
        let (groups, moved) = one_pass(&paths, &hints, manifest.as_ref(), window_ns, &starts)?;
        if moved.is_empty() {
            break groups;
        }
        starts.extend(moved);
    };
    let source = format!("artifact:{}", name_of(root).unwrap_or(&resolved));
    let mut sessions: Vec<_> = groups
        .into_iter()
        .filter_map(|(id, group)| {
            let events = group.earliest.iter().chain(&group.stop);
            let inferred = || SessionSummary::infer(&id, events, &source, SessionStatus::Incomplete);
            let summary = group.summary.clone().or_else(inferred)?;
            let mut sources: Vec<String> =
                group.sources.iter().map(|at| paths[*at].to_string_lossy().into_owned()).collect();
            if sources.is_empty() {
                sources.push(resolved.clone());
            }
            Some(group.builder.finish(summary, sources, Vec::new()))
        })
        .collect();
    sessions.sort_by(|a, b| {
        let key = |session: &SessionSummary| (session.started_at_ns, session.session_id.clone());
        key(&a.session).cmp(&key(&b.session))
    });
    let listed = manifest.as_ref().map_or(&[][..], |manifest| &manifest.segments);
    // A caller who knows the coverage is the sink's writer, whose manifest is the one of today.
    let writer = coverage.is_some().then_some(SINK_SCHEMA_VERSION);
    let schema = writer.or(manifest.as_ref().map(|manifest| manifest.schema_version));
    Ok(RollupFile {
        schema_version: ROLLUP_SCHEMA_VERSION,
        format: ROLLUP_FORMAT.to_owned(),
        generated_at_ns: now_ns().unsigned_abs(),
        source_manifest: schema.map(|_| MANIFEST_FILENAME.to_owned()),
        source_manifest_schema_version: schema,
        window_duration_ns: window_ns,
        coverage: coverage.unwrap_or_else(|| RollupCoverage::of(listed, None, None)),
        sessions,
    })
}

type Pass = (BTreeMap<String, Group>, BTreeMap<String, i64>);

/// Reads every segment once. Also gives the sessions that turned out to start earlier than assumed, and when.
fn one_pass(
    paths: &[PathBuf],
    hints: &[String],
    manifest: Option<&SinkManifest>,
    window_ns: u64,
    starts: &BTreeMap<String, i64>,
) -> Result<Pass, SinkError> {
    let mut budget = MAX_GROUPS;
    let mut moved = BTreeMap::new();
    let known = manifest.map_or(&[][..], |manifest| &manifest.sessions).iter();
    let mut groups: BTreeMap<String, Group> = known
        .map(|summary| {
            let group = Group::new(summary.started_at_ns, Some(summary.clone()), window_ns);
            (summary.session_id.clone(), group)
        })
        .collect();
    for (at, (path, hint)) in paths.iter().zip(hints).enumerate() {
        let options = ReadOptions { session_id: Some(hint.clone()), ..ReadOptions::default() };
        let mut is_empty = true;
        for event in EventReader::open(path, &options)? {
            let event = event?;
            is_empty = false;
            let id = event.head.session_id.as_str();
            if !groups.contains_key(id) {
                budget = budget.checked_sub(1).ok_or(SinkError::TooManyGroups { limit: MAX_GROUPS })?;
                let start = starts.get(id).copied().unwrap_or_else(|| time_of(&event));
                groups.insert(id.to_owned(), Group::new(start, None, window_ns));
            }
            let Some(group) = groups.get_mut(id) else { continue };
            group.builder.observe(&Observation::from(&event), &mut budget)?;
            if group.sources.last() != Some(&at) {
                group.sources.push(at);
            }
            if group.summary.is_none() && group.infer_from(&event) {
                moved.insert(id.to_owned(), time_of(&event));
            }
        }
        if is_empty && let Some(group) = groups.get_mut(hint) {
            group.sources.push(at);
        }
    }
    // What was found in the pass before is not news.
    moved.retain(|id, start| starts.get(id) != Some(start));
    Ok((groups, moved))
}

impl Group {
    fn new(start_ns: i64, summary: Option<SessionSummary>, window_ns: u64) -> Self {
        let builder = RollupBuilder::new(start_ns, window_ns);
        Group { builder, summary, earliest: None, stop: None, sources: Vec::new() }
    }

    /// True when the event is earlier than the first one seen.
    fn infer_from(&mut self, event: &Event) -> bool {
        let at = event.timestamp_ns;
        if event.head.event_type == "stop" && self.stop.as_ref().is_none_or(|stop| at > stop.timestamp_ns) {
            self.stop = Some(event.clone());
        }
        let is_first = self.earliest.is_none();
        let is_earlier = self.earliest.as_ref().is_none_or(|earliest| at < earliest.timestamp_ns);
        if is_earlier {
            self.earliest = Some(event.clone());
        }
        is_earlier && !is_first
    }
}

/// The session of records that name none, for each segment: the manifest's, or one made from the path.
fn hints(paths: &[PathBuf], manifest: Option<&SinkManifest>, resolved: &str) -> Vec<String> {
    let fallback = legacy_session_id([resolved, "sink"]);
    let listed = manifest.map_or(&[][..], |manifest| &manifest.segments).iter();
    let by_name: BTreeMap<&str, &str> = listed
        .filter_map(|segment| Some((segment.filename.as_str(), segment.session_id.as_deref()?)))
        .filter(|(_, id)| !id.is_empty())
        .collect();
    let hint = |path: &PathBuf| by_name.get(path.file_name()?.to_str()?).map(|id| (*id).to_owned());
    paths.iter().map(|path| hint(path).unwrap_or_else(|| fallback.clone())).collect()
}

fn name_of(root: &Path) -> Option<&str> {
    match root.components().next_back()? {
        Component::Normal(name) => name.to_str(),
        Component::ParentDir => Some(".."),
        _ => None,
    }
}

fn time_of(event: &Event) -> i64 {
    i64::try_from(event.timestamp_ns).unwrap_or(i64::MAX)
}
