//! `query correlate`: what else happened around a moment or a record, and how surely it belongs to it.

use std::io::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stormlog_model::{Event, Record, Schema, to_record};
use stormlog_store::json::write::{dumps, sort_keys};

use super::Mode;
use super::catalog::Catalog;
use super::events::{EventFilter, EventRow, find, is_alert};
use super::evidence::{self, Evidence};
use super::rows;
use crate::exit::{CtrlC, NotThere};

const COLUMNS: [&str; 11] = [
    "confidence",
    "kind",
    "title",
    "session_id",
    "job_id",
    "rank",
    "start_ns",
    "end_ns",
    "source_kind",
    "source_path",
    "reasons",
];

/// What can be pointed at.
pub(crate) const KINDS: [&str; 7] = [
    "telemetry_event",
    "timeline_marker",
    "alert",
    "oom_bundle",
    "diagnose_bundle",
    "rollup_window",
    "attachment",
];

/// Around what, and how far.
#[derive(Debug, Default)]
pub(crate) struct CorrelateFilter {
    pub(crate) at_ns: Option<u64>,
    pub(crate) record_id: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) rank: Option<i64>,
    pub(crate) is_distributed: bool,
    pub(crate) window_ns: u64,
    pub(crate) kinds: Vec<String>,
    pub(crate) limit: Option<usize>,
}

/// The moment and what is known of it.
struct Anchor {
    at_ns: u64,
    session_id: Option<String>,
    job_id: Option<String>,
    rank: Option<i64>,
    record: Record,
}

pub(crate) fn run(
    out: &mut impl Write,
    catalog: &mut Catalog,
    filter: &CorrelateFilter,
    mode: Mode,
    ctrl_c: &CtrlC,
) -> anyhow::Result<()> {
    let events = find(catalog, &EventFilter::default(), ctrl_c)?;
    let anchor = anchor(&events, filter)?;
    let mut found: Vec<(u8, u64, Record)> = Vec::new();
    let near = |at: u64| at.abs_diff(anchor.at_ns) <= filter.window_ns;
    for row in events.iter().filter(|row| near(row.event.timestamp_ns)) {
        let event = of_event(row);
        found.extend(judge(&event, &anchor, filter));
        if is_alert(&row.event) {
            let title = format!("Alert: {}", row.event.head.event_type);
            let id = evidence::id_of(["alert".into(), event.id.as_str().into()]);
            found.extend(judge(&Evidence { id, kind: "alert", title, ..event }, &anchor, filter));
        }
    }
    let others = [evidence::markers(&events), evidence::rollups(catalog), evidence::bundles(catalog)];
    let others = others.into_iter().flatten().chain(evidence::attached(catalog, ctrl_c)?);
    for other in others.filter(|other| other.distance(anchor.at_ns) <= filter.window_ns) {
        found.extend(judge(&other, &anchor, filter));
    }
    found.sort_by(|a, b| {
        let key =
            |row: &(u8, u64, Record)| (row.0, row.1, row.2["kind"].to_string(), row.2["title"].to_string());
        key(a).cmp(&key(b))
    });
    found.truncate(filter.limit.unwrap_or(usize::MAX));
    let evidence: Vec<Record> = found.into_iter().map(|(_, _, row)| row).collect();
    if mode == Mode::Json {
        let mut answer = json!({"anchor": anchor.record, "evidence": evidence, "warnings": catalog.problems});
        sort_keys(&mut answer);
        out.write_all(crate::cmd::telemetry::analyze::indented(&answer).as_bytes())?;
    } else {
        rows::emit(out, &evidence, mode, &COLUMNS)?;
    }
    Ok(())
}

fn anchor(events: &[EventRow], filter: &CorrelateFilter) -> anyhow::Result<Anchor> {
    let row = match &filter.record_id {
        None => None,
        Some(id) => {
            let row = events.iter().find(|row| record_id(&row.event) == *id);
            Some(row.ok_or_else(|| NotThere(format!("record_id not found: {id}")))?)
        }
    };
    let head = row.map(|row| &row.event.head);
    let at_ns = row.map_or(filter.at_ns.unwrap_or(0), |row| row.event.timestamp_ns);
    let session_id = head.map(|head| head.session_id.clone()).or_else(|| filter.session_id.clone());
    let job_id = head.map_or_else(|| filter.job_id.clone(), |head| head.identity.job_id.clone());
    let rank = head.map_or(filter.rank, |head| i64::try_from(head.identity.rank).ok());
    let scope = if filter.is_distributed { "distributed" } else { "session" };
    let record = [
        ("at_ns", Value::from(at_ns)),
        ("record_id", filter.record_id.as_deref().into()),
        ("session_id", session_id.as_deref().into()),
        ("job_id", job_id.as_deref().into()),
        ("rank", rank.into()),
        ("world_size", head.map(|head| head.identity.world_size).into()),
        ("source_path", row.map(|row| row.source_path.as_str()).into()),
        ("source_kind", row.map(|row| row.source_kind).into()),
        ("event_type", head.map(|head| head.event_type.as_str()).into()),
        ("scope", scope.into()),
        ("window_ns", filter.window_ns.into()),
        ("clock_domain", "unix_epoch_ns".into()),
        ("clock_normalization", "producer_emitted_epoch_ns".into()),
        ("clock_note", "correlation does not rewrite cross-host clocks".into()),
    ];
    let record = record.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
    Ok(Anchor { at_ns, session_id, job_id, rank, record })
}

fn of_event(row: &EventRow) -> Evidence {
    let head = &row.event.head;
    Evidence {
        id: format!("event:{}", record_id(&row.event)),
        kind: "telemetry_event",
        title: format!("{} telemetry event", head.event_type),
        session_id: Some(head.session_id.clone()),
        job_id: head.identity.job_id.clone(),
        rank: i64::try_from(head.identity.rank).ok(),
        world_size: Some(head.identity.world_size),
        start_ns: Some(row.event.timestamp_ns),
        end_ns: None,
        source_path: row.source_path.clone(),
        source_kind: row.source_kind.to_owned(),
        metadata: json!({
            "record_id": record_id(&row.event), "event_type": head.event_type, "collector": head.collector,
            "context": row.event.context.as_deref(), "observed_timestamp_ns": row.event.timestamp_ns, "session_status": row.session_status,
            "metadata": row.event.metadata.map,
        }),
    }
}

/// The row, with how sure it is and how far away; `None` when it belongs to something else.
fn judge(evidence: &Evidence, anchor: &Anchor, filter: &CorrelateFilter) -> Option<(u8, u64, Record)> {
    let excluded = |wanted: &Option<String>, have: &Option<String>| wanted.is_some() && wanted != have;
    if (!filter.kinds.is_empty() && !filter.kinds.iter().any(|kind| kind == evidence.kind))
        || excluded(&filter.session_id, &evidence.session_id)
        || excluded(&filter.job_id, &evidence.job_id)
        || filter.rank.zip(evidence.rank).is_some_and(|(wanted, have)| wanted != have)
    {
        return None;
    }
    let same = |a: &Option<String>, b: &Option<String>| a.as_ref().zip(b.as_ref()).map(|(a, b)| a == b);
    let session = same(&anchor.session_id, &evidence.session_id);
    let job = same(&anchor.job_id, &evidence.job_id);
    let is_same_job = filter.is_distributed && job == Some(true);
    if evidence.start_ns.is_none() && session != Some(true) {
        // Without a time only its session says that it belongs here.
        return None;
    }
    if (session == Some(false) && !is_same_job) || (job == Some(false) && session != Some(true)) {
        return None;
    }
    let is_same_rank = anchor.rank.is_none() || evidence.rank.is_none() || anchor.rank == evidence.rank;
    let mut reasons = vec!["overlaps_anchor_window"];
    let confidence = match (session == Some(true), is_same_job) {
        (true, _) | (false, true) => {
            reasons.push(if session == Some(true) { "same_session" } else { "same_job_distributed" });
            reasons.push(match (is_same_rank, session == Some(true)) {
                (true, _) => "same_rank_or_rank_agnostic",
                (false, true) => "cross_rank_same_session",
                (false, false) => "cross_rank_same_job",
            });
            if is_same_rank { "high" } else { "medium" }
        }
        (false, false) => {
            reasons.push("time_only_missing_shared_identifier");
            "low"
        }
    };
    let row = [
        ("confidence", Value::from(confidence)),
        ("kind", evidence.kind.into()),
        ("title", evidence.title.as_str().into()),
        ("session_id", evidence.session_id.as_deref().into()),
        ("job_id", evidence.job_id.as_deref().into()),
        ("rank", evidence.rank.into()),
        ("start_ns", evidence.start_ns.into()),
        ("end_ns", evidence.end_ns.into()),
        ("source_kind", evidence.source_kind.as_str().into()),
        ("source_path", evidence.source_path.as_str().into()),
        ("reasons", reasons.into_iter().map(Value::from).collect()),
        ("metadata", evidence.metadata.clone()),
        ("evidence_id", evidence.id.as_str().into()),
        ("world_size", evidence.world_size.into()),
    ];
    let order = match confidence {
        "high" => 0,
        "medium" => 1,
        _ => 2,
    };
    let row = row.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
    Some((order, evidence.distance(anchor.at_ns), row))
}

/// The id 0.4.3 gives a record: a hash of it, keys sorted.
fn record_id(event: &Event) -> String {
    let mut record = Value::Object(to_record(event, Schema::V4).unwrap_or_default());
    sort_keys(&mut record);
    let digest = Sha256::digest(dumps(&record).as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("telemetry-{hex}")
}
