//! OOM bundles as rows.

use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::Ended;
use stormlog_postmortem::bundle::Bundle;

use super::moment::parse_utc;
use super::store::Store;
use super::{QueryError, is_wanted, record};

/// Which bundles; `None` is any. Times are ISO 8601, UTC where they name no zone; a text that is not a time is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct BundleFilter {
    pub session_id: Option<String>,
    pub backend: Option<String>,
    pub reason: Option<String>,
    pub created_after: Option<String>,
    pub created_before: Option<String>,
}

/// One bundle.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are those of the bundle's keys")]
pub struct BundleRow {
    pub bundle_path: String,
    pub created_at_utc: Option<String>,
    pub backend: Option<String>,
    pub reason: Option<String>,
    pub event_count: Option<u64>,
    pub session_id: Option<String>,
    pub session_status: Option<String>,
    pub exception_type: Option<String>,
    pub exception_module: Option<String>,
    /// Whether memory is what ended the program; not part of the object form, which is 0.4.3's.
    pub is_memory: bool,
    /// Whether the end was a failure; the same.
    pub is_failure: bool,
}

impl BundleRow {
    /// The row of a bundle as the bundle states it.
    pub fn of(bundle: &Bundle) -> Self {
        let exception = |key: &str| bundle.metadata.get(key).and_then(Value::as_str).map(str::to_owned);
        BundleRow {
            bundle_path: bundle.path.display().to_string(),
            created_at_utc: bundle.created_at_utc.clone(),
            backend: bundle.backend.clone(),
            reason: bundle.reason.clone(),
            event_count: bundle.event_count,
            session_id: bundle.session_id.clone(),
            session_status: bundle.session_status.clone(),
            exception_type: exception("exception_type"),
            exception_module: exception("exception_module"),
            // 0.4.3 wrote bundles of nothing else.
            is_memory: bundle.cause.is_memory() || !bundle.evidence.contains_key("evidence_version"),
            is_failure: bundle.ended.is_none_or(|ended| ended == Ended::Failed),
        }
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        record([
            ("bundle_path", self.bundle_path.as_str().into()),
            ("created_at_utc", self.created_at_utc.as_deref().into()),
            ("backend", self.backend.as_deref().into()),
            ("reason", self.reason.as_deref().into()),
            ("event_count", self.event_count.into()),
            ("session_id", self.session_id.as_deref().into()),
            ("session_status", self.session_status.as_deref().into()),
            ("exception_type", self.exception_type.as_deref().into()),
            ("exception_module", self.exception_module.as_deref().into()),
        ])
    }

    /// The object form of the bundle itself, with the place of its manifest.
    pub fn to_catalog_record(&self) -> Record {
        let mut row = self.to_record();
        row.insert("manifest_path".to_owned(), format!("{}/manifest.json", self.bundle_path).into());
        row
    }
}

impl BundleFilter {
    fn matches(&self, row: &BundleRow) -> bool {
        let moment = |text: &Option<String>| text.as_deref().and_then(parse_utc);
        let created = moment(&row.created_at_utc);
        is_wanted(&self.session_id, row.session_id.as_deref())
            && is_wanted(&self.backend, row.backend.as_deref())
            && is_wanted(&self.reason, row.reason.as_deref())
            && moment(&self.created_after).is_none_or(|after| created.is_some_and(|at| at >= after))
            && moment(&self.created_before).is_none_or(|before| created.is_some_and(|at| at <= before))
    }
}

impl Store {
    /// The bundles, oldest first, each with how its session ended.
    pub fn bundles(&mut self, filter: &BundleFilter) -> Result<Vec<BundleRow>, QueryError> {
        let mut rows: Vec<BundleRow> = self.catalog.bundles.iter().map(BundleRow::of).collect();
        if rows.iter().any(|row| row.session_status.is_none()) {
            let mut stated = Vec::new();
            for number in 0..self.source_count() {
                stated.extend(self.stated(number)?);
            }
            for row in rows.iter_mut().filter(|row| row.session_status.is_none()) {
                let of_row =
                    |one: &&stormlog_model::SessionSummary| Some(&one.session_id) == row.session_id.as_ref();
                row.session_status = stated.iter().find(of_row).map(|one| one.status.as_str().to_owned());
            }
        }
        rows.retain(|row| filter.matches(row));
        let key = |row: &BundleRow| (row.created_at_utc.clone().unwrap_or_default(), row.bundle_path.clone());
        rows.sort_by_cached_key(key);
        Ok(rows)
    }
}
