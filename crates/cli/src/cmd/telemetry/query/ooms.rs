//! `query ooms`: the bundles, newest first.

use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::bundle::Bundle;

use super::catalog::Catalog;

pub(crate) const COLUMNS: [&str; 9] = [
    "bundle_path",
    "created_at_utc",
    "backend",
    "reason",
    "event_count",
    "session_id",
    "session_status",
    "exception_type",
    "exception_module",
];

/// What bundles are asked for; `None` is any. Times are UTC as bundles write them, or any beginning of that.
#[derive(Debug, Default)]
pub(crate) struct OomFilter {
    pub(crate) session_id: Option<String>,
    pub(crate) backend: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) created_after: Option<String>,
    pub(crate) created_before: Option<String>,
}

pub(crate) fn rows(catalog: &Catalog, filter: &OomFilter) -> Vec<Record> {
    let mut found: Vec<&Bundle> = catalog.bundles.iter().filter(|bundle| matches(bundle, filter)).collect();
    found.sort_by(|a, b| (&b.created_at_utc, &b.path).cmp(&(&a.created_at_utc, &a.path)));
    found.into_iter().map(to_record).collect()
}

fn matches(bundle: &Bundle, filter: &OomFilter) -> bool {
    let is = |wanted: &Option<String>, have: &Option<String>| wanted.is_none() || wanted == have;
    // ISO times of one zone sort as text.
    let created = bundle.created_at_utc.as_deref();
    is(&filter.session_id, &bundle.session_id)
        && is(&filter.backend, &bundle.backend)
        && is(&filter.reason, &bundle.reason)
        && filter.created_after.as_deref().is_none_or(|after| created.is_some_and(|at| at >= after))
        && filter.created_before.as_deref().is_none_or(|before| created.is_some_and(|at| at <= before))
}

pub(crate) fn to_record(bundle: &Bundle) -> Record {
    let mut row = Record::new();
    let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
    put("bundle_path", bundle.path.display().to_string().into());
    put("created_at_utc", bundle.created_at_utc.as_deref().into());
    put("backend", bundle.backend.as_deref().into());
    put("reason", bundle.reason.as_deref().into());
    put("event_count", bundle.event_count.into());
    put("session_id", bundle.session_id.as_deref().into());
    put("session_status", bundle.session_status.as_deref().into());
    for key in ["exception_type", "exception_module"] {
        put(key, bundle.metadata.get(key).cloned().unwrap_or(Value::Null));
    }
    row
}

/// When a bundle was made, in nanoseconds.
pub(crate) fn created_ns(bundle: &Bundle) -> Option<u64> {
    let time: jiff::Timestamp = bundle.created_at_utc.as_deref()?.parse().ok()?;
    u64::try_from(time.as_nanosecond()).ok()
}
