//! What else happened around a moment, and how surely it belongs to it.
//!
//! Everything that can be pointed at becomes evidence first; then it is judged against the moment: near enough in time, and of the same session,
//! of the same job, or only of the same time.

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::Record;
use stormlog_store::{Source, sink};

use super::events::EventFilter;
use super::evidence::{Evidence, record_id};
use super::markers::markers;
use super::ooms::BundleFilter;
use super::store::Store;
use super::{QueryError, record};

/// How far around a moment is looked unless the caller states otherwise: a minute.
pub const DEFAULT_WINDOW_NS: i128 = 60_000_000_000;

/// What can be pointed at.
pub const EVIDENCE_KINDS: [&str; 7] = [
    "telemetry_event",
    "timeline_marker",
    "alert",
    "oom_bundle",
    "diagnose_bundle",
    "rollup_window",
    "attachment",
];

/// Around which moment or record, how far, and what of it; `None` is any.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are those of 0.4.3's filter")]
pub struct CorrelationFilter {
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    /// Whether other sessions of the same job count.
    pub is_distributed: bool,
    pub at_ns: Option<i128>,
    pub record_id: Option<String>,
    pub window_ns: i128,
    pub kinds: Vec<String>,
    pub limit: Option<usize>,
}

impl Default for CorrelationFilter {
    fn default() -> Self {
        CorrelationFilter {
            session_id: None,
            job_id: None,
            rank: None,
            is_distributed: false,
            at_ns: None,
            record_id: None,
            window_ns: DEFAULT_WINDOW_NS,
            kinds: Vec::new(),
            limit: None,
        }
    }
}

/// The moment that was asked about and the evidence around it, the surest first.
#[derive(Debug)]
pub struct Correlation {
    /// The moment, in object form.
    pub anchor: Record,
    /// What belongs to it.
    pub evidence: Vec<Evidence>,
}

/// The moment and what is known of it.
struct Anchor {
    at_ns: i128,
    session_id: Option<String>,
    job_id: Option<String>,
    rank: Option<i64>,
    record: Record,
}

impl Store {
    /// What else happened around a moment or a record.
    pub fn correlate(&mut self, filter: &CorrelationFilter) -> Result<Correlation, QueryError> {
        let anchor = self.anchor(filter)?;
        let mut found: Vec<Evidence> = self
            .candidates(&anchor, filter)?
            .into_iter()
            .filter_map(|one| judge(one, &anchor, filter))
            .collect();
        let weight = |confidence: &str| match confidence {
            "high" => 0,
            "medium" => 1,
            _ => 2,
        };
        found.sort_by_cached_key(|one| {
            (weight(one.confidence), one.distance(anchor.at_ns), one.kind, one.title.clone())
        });
        found.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(Correlation { anchor: anchor.record, evidence: found })
    }

    fn anchor(&mut self, filter: &CorrelationFilter) -> Result<Anchor, QueryError> {
        let row = match &filter.record_id {
            None => None,
            Some(id) => {
                let rows = self.picked(None, |_, event| record_id(event) == *id)?;
                let row = rows.rows().next().map(|(event, origin)| (event.clone(), origin.clone()));
                Some(row.ok_or_else(|| QueryError::UnknownRecord(id.clone()))?)
            }
        };
        let at_ns = match (&row, filter.at_ns) {
            (Some((event, _)), at) if at.is_none_or(|at| at == i128::from(event.timestamp_ns)) => {
                event.timestamp_ns.into()
            }
            (Some(_), _) => return Err(QueryError::OtherMoment),
            (None, Some(at)) => at,
            (None, None) => return Err(QueryError::NoAnchor),
        };
        let head = row.as_ref().map(|(event, _)| &event.head);
        let origin = row.as_ref().map(|(_, origin)| origin);
        let session_id = head.map_or_else(|| filter.session_id.clone(), |head| Some(head.session_id.clone()));
        let job_id = head.map_or_else(|| filter.job_id.clone(), |head| head.identity.job_id.clone());
        let rank = head.map_or(filter.rank, |head| i64::try_from(head.identity.rank).ok());
        let number = |number: i128| Value::from(i64::try_from(number).ok());
        let record = record([
            ("at_ns", number(at_ns)),
            ("record_id", filter.record_id.as_deref().into()),
            ("session_id", session_id.as_deref().into()),
            ("job_id", job_id.as_deref().into()),
            ("rank", rank.into()),
            ("world_size", head.map(|head| head.identity.world_size).into()),
            ("source_path", origin.map(|origin| origin.source_path.as_str()).into()),
            ("source_kind", origin.map(|origin| origin.source_kind).into()),
            ("event_type", head.map(|head| head.event_type.as_str()).into()),
            ("scope", if filter.is_distributed { "distributed" } else { "session" }.into()),
            ("window_ns", number(filter.window_ns)),
            ("clock_domain", "unix_epoch_ns".into()),
            ("clock_normalization", "producer_emitted_epoch_ns".into()),
            ("clock_note", "correlation does not rewrite cross-host clocks".into()),
        ]);
        Ok(Anchor { at_ns, session_id, job_id, rank, record })
    }

    fn candidates(
        &mut self,
        anchor: &Anchor,
        filter: &CorrelationFilter,
    ) -> Result<Vec<Evidence>, QueryError> {
        // What is further away belongs to no moment.
        let near = EventFilter {
            time_start_ns: Some(anchor.at_ns.saturating_sub(filter.window_ns)),
            time_end_ns: Some(anchor.at_ns.saturating_add(filter.window_ns)),
            ..EventFilter::default()
        };
        let rows = self.events(&near)?;
        let mut found: Vec<Evidence> =
            rows.rows().map(|(event, origin)| Evidence::of_event(event, origin)).collect();
        found.extend(rows.rows().filter_map(|(event, origin)| Evidence::of_alert(event, origin)));
        drop(rows);
        for number in 0..self.source_count() {
            let kind = self.kind_of(number);
            for loaded in self.load(number)?.iter() {
                let (job, place) = (loaded.known.summary.job_id.as_deref(), loaded.known.place());
                let all = markers(&loaded.events);
                let markers = all.iter().map(|marker| Evidence::of_marker(marker, job, &place, kind));
                found.extend(markers.filter(|one| one.distance(anchor.at_ns) <= filter.window_ns));
            }
        }
        let bundles = self.bundles(&BundleFilter::default())?;
        let sessions = if bundles.is_empty() { Vec::new() } else { self.session_rows()? };
        let by_id: FxHashMap<&str, _> =
            sessions.iter().map(|row| (row.summary.session_id.as_str(), &row.summary)).collect();
        found.extend(bundles.iter().map(|bundle| {
            let session = bundle.session_id.as_deref().and_then(|id| by_id.get(id).copied());
            Evidence::of_bundle(bundle, session)
        }));
        for number in 0..self.source_count() {
            if let Source::DiagnoseBundle(_) = self.catalog.sources[number].source {
                let stated = self.stated(number)?;
                let source = &self.catalog.sources[number];
                found.extend(stated.iter().map(|summary| Evidence::of_diagnosis(source, summary)));
            }
        }
        for source in &self.catalog.sources {
            if let Source::Sink(path) = &source.source
                && let Some(rollups) = sink::read_rollups(path)
            {
                found.extend(Evidence::of_rollups(&rollups, &path.display().to_string()));
            }
        }
        found.extend(self.catalog.attachments.iter().map(Evidence::of_attachment));
        Ok(found)
    }
}

/// The evidence with how sure it is; `None` when it belongs to something else.
fn judge(one: Evidence, anchor: &Anchor, filter: &CorrelationFilter) -> Option<Evidence> {
    let excluded = |wanted: &Option<String>, have: &Option<String>| wanted.is_some() && wanted != have;
    if (!filter.kinds.is_empty() && !filter.kinds.iter().any(|kind| kind == one.kind))
        || excluded(&filter.session_id, &one.session_id)
        || excluded(&filter.job_id, &one.job_id)
        || filter.rank.zip(one.rank).is_some_and(|(wanted, have)| wanted != have)
    {
        return None;
    }
    let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let is_session = anchor.session_id.is_some() && one.session_id == anchor.session_id;
    let is_job = filter.is_distributed && anchor.job_id.is_some() && one.job_id == anchor.job_id;
    let is_timed = one.start_ns.is_some() || one.end_ns.is_some();
    if is_timed && one.distance(anchor.at_ns) > filter.window_ns {
        return None;
    }
    // Without a time only what it states about itself makes it belong here.
    if !(is_timed || is_session || is_job) {
        return None;
    }
    if (differ(&anchor.session_id, &one.session_id) && !is_job)
        || (differ(&anchor.job_id, &one.job_id) && one.session_id != anchor.session_id)
    {
        return None;
    }
    let mut reasons = vec![if is_timed { "overlaps_anchor_window" } else { "identifier_only_no_time" }];
    if !(is_session || is_job) {
        reasons.push("time_only_missing_shared_identifier");
        return Some(Evidence { confidence: "low", reasons, ..one });
    }
    reasons.push(if is_session { "same_session" } else { "same_job_distributed" });
    let is_same_rank = anchor.rank.is_none() || one.rank.is_none() || one.rank == anchor.rank;
    reasons.push(match (is_same_rank, is_session) {
        (true, _) => "same_rank_or_rank_agnostic",
        (false, true) => "cross_rank_same_session",
        (false, false) => "cross_rank_same_job",
    });
    Some(Evidence { confidence: if is_same_rank { "high" } else { "medium" }, reasons, ..one })
}
