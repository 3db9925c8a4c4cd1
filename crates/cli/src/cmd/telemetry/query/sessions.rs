//! `query sessions`.

use serde_json::Value;
use stormlog_model::Record;
use stormlog_store::FoundSession;

use super::catalog::Catalog;
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 16] = [
    "session_id",
    "status",
    "started_at_ns",
    "ended_at_ns",
    "host",
    "pid",
    "job_id",
    "rank",
    "local_rank",
    "world_size",
    "source_kind",
    "source_path",
    "source_count",
    "warning_count",
    "event_count",
    "oom_bundle_count",
];

/// What sessions are asked for; `None` is any.
#[derive(Debug, Default)]
pub(crate) struct SessionFilter {
    pub(crate) session_id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) rank: Option<i64>,
    pub(crate) world_size: Option<i64>,
    pub(crate) source_kind: Option<String>,
    pub(crate) has_oom_bundle: Option<bool>,
}

/// The rows, newest first.
pub(crate) fn rows(
    catalog: &mut Catalog,
    filter: &SessionFilter,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Vec<Record>> {
    let mut found: Vec<FoundSession> =
        catalog.sessions(ctrl_c)?.iter().map(|(_, session)| session.clone()).collect();
    found.sort_by(|a, b| {
        let key =
            |session: &FoundSession| (session.summary.started_at_ns, session.summary.session_id.clone());
        key(b).cmp(&key(a))
    });
    let row = |session: FoundSession| {
        let bundles = catalog.bundle_count(&session.summary.session_id);
        matches(&session, bundles, filter).then(|| to_record(&session, bundles))
    };
    Ok(found.into_iter().filter_map(row).collect())
}

fn matches(session: &FoundSession, bundles: usize, filter: &SessionFilter) -> bool {
    let summary = &session.summary;
    let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
    is(&filter.session_id, &summary.session_id)
        && is(&filter.status, summary.status.as_str())
        && is(&filter.source_kind, session.kind)
        && filter.job_id.as_ref().is_none_or(|job| summary.job_id.as_ref() == Some(job))
        && filter.rank.is_none_or(|rank| rank == summary.rank)
        && filter.world_size.is_none_or(|size| size == summary.world_size)
        && filter.has_oom_bundle.is_none_or(|has| has == (bundles > 0))
}

fn to_record(session: &FoundSession, bundles: usize) -> Record {
    let mut row = session.summary.to_record();
    let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
    put("source_path", session.path.display().to_string().into());
    put("source_kind", session.kind.into());
    let segments =
        if session.kind == "sink" { stormlog_store::sink::segment_paths(&session.path).len() } else { 0 };
    put("source_count", session.sources.len().max(segments).into());
    put("warning_count", session.notes.len().into());
    put("event_count", session.event_count.into());
    put("oom_bundle_count", bundles.into());
    row
}
