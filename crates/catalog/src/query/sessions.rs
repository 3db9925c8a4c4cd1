//! Sessions as rows: one for each source that knows a session.

use rustc_hash::FxHashSet;
use serde_json::Value;
use stormlog_model::{Record, SessionSummary};
use stormlog_store::Source;

use super::store::{Store, diagnosed_session};
use super::{QueryError, is_wanted};

/// Which sessions; `None` is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct SessionFilter {
    pub session_id: Option<String>,
    pub status: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub world_size: Option<i64>,
    pub has_oom_bundle: Option<bool>,
    pub source_kind: Option<String>,
}

/// One session, as one source knows it.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Identity and life.
    pub summary: SessionSummary,
    /// The source.
    pub source_path: String,
    /// What the source is.
    pub source_kind: &'static str,
    /// Files its events are in.
    pub source_count: u64,
    /// What was noticed while reading.
    pub warning_count: u64,
    /// Events of it; unknown for a bundle of `diagnose`.
    pub event_count: Option<u64>,
    /// OOM bundles it left.
    pub oom_bundle_count: u64,
}

impl SessionRow {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let mut row = self.summary.to_record();
        let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
        put("source_path", self.source_path.as_str().into());
        put("source_kind", self.source_kind.into());
        put("source_count", self.source_count.into());
        put("warning_count", self.warning_count.into());
        put("event_count", self.event_count.into());
        put("oom_bundle_count", self.oom_bundle_count.into());
        row
    }
}

impl SessionFilter {
    fn matches(&self, row: &SessionRow) -> bool {
        let summary = &row.summary;
        is_wanted(&self.session_id, Some(&summary.session_id))
            && is_wanted(&self.status, Some(summary.status.as_str()))
            && is_wanted(&self.job_id, summary.job_id.as_deref())
            && self.rank.is_none_or(|rank| rank == summary.rank)
            && self.world_size.is_none_or(|size| size == summary.world_size)
            && is_wanted(&self.source_kind, Some(row.source_kind))
            && self.has_oom_bundle.is_none_or(|has| has == (row.oom_bundle_count > 0))
    }
}

impl Store {
    /// The sessions, newest first; one that is in several sources has a row for each.
    pub fn sessions(&mut self, filter: &SessionFilter) -> Result<Vec<SessionRow>, QueryError> {
        let mut rows = self.session_rows()?;
        rows.retain(|row| filter.matches(row));
        Ok(rows)
    }

    pub(super) fn session_rows(&mut self) -> Result<Vec<SessionRow>, QueryError> {
        let mut rows = Vec::new();
        let mut seen = FxHashSet::default();
        for number in 0..self.source_count() {
            for row in self.rows_of(number)? {
                if seen.insert((row.summary.session_id.clone(), number)) {
                    rows.push(row);
                }
            }
        }
        rows.sort_by(|a, b| {
            let key = |row: &SessionRow| (row.summary.started_at_ns, row.summary.session_id.clone());
            key(b).cmp(&key(a))
        });
        Ok(rows)
    }

    fn rows_of(&mut self, number: usize) -> Result<Vec<SessionRow>, QueryError> {
        let (path, kind) = (self.catalog.sources[number].path().to_owned(), self.kind_of(number));
        let source_path = path.display().to_string();
        let row = |summary: SessionSummary, counts: (u64, u64, Option<u64>), bundles: u64| SessionRow {
            summary,
            source_path: source_path.clone(),
            source_kind: kind,
            source_count: counts.0,
            warning_count: counts.1,
            event_count: counts.2,
            oom_bundle_count: bundles,
        };
        if let Some(manifest) = self.manifest(number).filter(|manifest| !manifest.sessions.is_empty()) {
            let mut rows = Vec::new();
            for summary in manifest.sessions {
                let of_session = |segment: &&stormlog_store::sink::SinkSegment| {
                    segment.session_id.as_deref() == Some(summary.session_id.as_str())
                };
                let segments = manifest.segments.iter().filter(of_session);
                let (count, events) = segments
                    .fold((0, 0), |(count, events), segment| (count + 1, events + segment.event_count));
                let bundles = self.bundle_count(&summary.session_id);
                rows.push(row(self.settled(number, summary)?, (count, 0, Some(events)), bundles));
            }
            return Ok(rows);
        }
        if let Source::DiagnoseBundle(_) = self.catalog.sources[number].source {
            let Some(stated) = diagnosed_session(&path) else { return Ok(Vec::new()) };
            // A bundle with its own sink is listed once, through the sink.
            for inside in 0..self.source_count() {
                let is_inside = self.kind_of(inside) == "sink"
                    && self.catalog.sources[inside].path().ancestors().skip(1).any(|above| above == path);
                if is_inside && self.stated(inside)?.iter().any(|one| one.session_id == stated.session_id) {
                    return Ok(Vec::new());
                }
            }
            let bundles = self.bundle_count(&stated.session_id);
            return Ok(vec![row(stated, (1, 0, None), bundles)]);
        }
        let known = self.known(number)?;
        let rows = known.iter().map(|known| {
            let bundles = self.bundle_count(&known.summary.session_id);
            row(known.summary.clone(), (known.source_count, known.warning_count, known.event_count), bundles)
        });
        Ok(rows.collect())
    }

    fn bundle_count(&self, session_id: &str) -> u64 {
        self.catalog.bundles_of.get(session_id).copied().unwrap_or(0)
    }
}
