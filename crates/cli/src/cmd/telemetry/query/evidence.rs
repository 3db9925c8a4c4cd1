//! What else `query correlate` can point at beside events: phases and the beginning and end of sessions, windows of a sink's
//! rollups, bundles, attachments. Each with the stretch of time it belongs to.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stormlog_analyze::phases::PhaseRecord;
use stormlog_model::Record;
use stormlog_store::Source;
use stormlog_store::json::{self as store_json, write::dumps};

use super::attachments::{self, AttachmentFilter};
use super::catalog::Catalog;
use super::events::EventRow;
use super::ooms;
use crate::exit::CtrlC;

/// Something that happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) title: String,
    pub(crate) session_id: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) rank: Option<i64>,
    pub(crate) world_size: Option<u64>,
    /// `None` is not known: it belongs to any moment of its session.
    pub(crate) start_ns: Option<u64>,
    pub(crate) end_ns: Option<u64>,
    pub(crate) source_path: String,
    pub(crate) source_kind: String,
    pub(crate) metadata: Value,
}

impl Evidence {
    /// How far from a moment it is.
    pub(crate) fn distance(&self, at_ns: u64) -> u64 {
        let Some(start) = self.start_ns else { return 0 };
        let end = self.end_ns.unwrap_or(start).max(start);
        if at_ns < start { start - at_ns } else { at_ns.saturating_sub(end) }
    }
}

/// The id of what has none of its own: a hash of what tells it from others.
pub(crate) fn id_of<const N: usize>(parts: [Value; N]) -> String {
    let text = |part: &Value| match part {
        Value::String(text) => text.clone(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    };
    let list: Vec<Value> = parts.iter().map(|part| text(part).into()).collect();
    let digest = Sha256::digest(dumps(&Value::Array(list)).as_bytes());
    let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("evidence-{hex}")
}

/// The first and last events of sessions, and their phases.
pub(crate) fn markers(rows: &[EventRow]) -> Vec<Evidence> {
    let mut found = Vec::new();
    let mut phases: BTreeMap<(String, u64), (PhaseRecord, &EventRow)> = BTreeMap::new();
    for row in rows {
        let (event, head) = (&row.event, &row.event.head);
        let key = (head.session_id.clone(), head.identity.rank);
        phases.entry(key).or_insert_with(|| (PhaseRecord::default(), row)).0.observe(event);
        if matches!(head.event_type.as_str(), "start" | "stop") {
            let label = event.context.as_deref().unwrap_or(&head.event_type);
            found.push(marker(row, "lifecycle", label, event.timestamp_ns, None, "telemetry_event"));
        }
    }
    for (record, row) in phases.into_values() {
        let index = record.index();
        found.extend(index.all().map(|(path, from, to)| {
            marker(row, "phase", &format!("Phase: {path}"), from, Some(to), "phase_replay")
        }));
    }
    found
}

fn marker(row: &EventRow, kind: &str, label: &str, from: u64, to: Option<u64>, source: &str) -> Evidence {
    let head = &row.event.head;
    let identity = &head.identity;
    let parts = ["marker".into(), head.session_id.as_str().into(), kind.into(), from.into()];
    let [word, session, kind_part, start] = parts;
    Evidence {
        id: id_of([word, session, kind_part, start, identity.rank.into(), label.into()]),
        kind: "timeline_marker",
        title: label.to_owned(),
        session_id: Some(head.session_id.clone()),
        job_id: identity.job_id.clone(),
        rank: i64::try_from(identity.rank).ok(),
        world_size: Some(identity.world_size),
        start_ns: Some(from),
        end_ns: to,
        source_path: row.source_path.clone(),
        source_kind: row.source_kind.to_owned(),
        metadata: json!({
            "session_id": head.session_id, "start_ns": from, "end_ns": to, "kind": kind, "source": source,
            "severity": "info", "label": label, "rank": identity.rank, "local_rank": identity.local_rank,
            "world_size": identity.world_size,
            "event_type": if kind == "phase" { "phase" } else { head.event_type.as_str() },
        }),
    }
}

/// The windows of the rollups that sinks keep.
pub(crate) fn rollups(catalog: &Catalog) -> Vec<Evidence> {
    let mut found = Vec::new();
    for source in &catalog.sources {
        let Source::Sink(path) = source else { continue };
        let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path.as_path() };
        let Ok(stated) = store_json::read_value(&folder.join("rollups.json")) else { continue };
        for session in stated["sessions"].as_array().into_iter().flatten() {
            for window in session["windows"].as_array().into_iter().flatten() {
                found.extend(window_of(session, window, &stated, folder.display().to_string()));
            }
        }
    }
    found
}

fn window_of(session: &Value, window: &Value, stated: &Value, path: String) -> Option<Evidence> {
    let told = &session["session"];
    let id = told["session_id"].as_str()?;
    let index = window["index"].as_u64()?;
    let counts = [
        "alert_count",
        "collector_transition_count",
        "event_count",
        "oom_count",
        "rank_count",
        "sample_count",
    ];
    let mut metadata: Record = counts.map(|key| (key.to_owned(), window[key].clone())).into_iter().collect();
    metadata.insert("window_duration_ns".to_owned(), stated["window_duration_ns"].clone());
    Some(Evidence {
        id: id_of(["rollup".into(), path.as_str().into(), id.into(), index.into()]),
        kind: "rollup_window",
        title: format!("Rollup window {index}"),
        session_id: Some(id.to_owned()),
        job_id: told["job_id"].as_str().map(str::to_owned),
        rank: None,
        world_size: told["world_size"].as_u64(),
        start_ns: window["start_ns"].as_u64(),
        end_ns: window["end_ns"].as_u64(),
        source_path: path,
        source_kind: "rollup".to_owned(),
        metadata: Value::Object(metadata),
    })
}

/// What was left at a death.
pub(crate) fn bundles(catalog: &Catalog) -> Vec<Evidence> {
    let evidence = |bundle: &stormlog_postmortem::bundle::Bundle| {
        let session = bundle.session.as_ref();
        let path = bundle.path.display().to_string();
        Some(Evidence {
            id: id_of(["oom".into(), path.as_str().into(), bundle.session_id.as_deref().into()]),
            kind: "oom_bundle",
            title: "OOM bundle".to_owned(),
            session_id: bundle.session_id.clone(),
            job_id: session.and_then(|session| session.job_id.clone()),
            rank: session.map(|session| session.rank),
            world_size: session.and_then(|session| u64::try_from(session.world_size).ok()),
            start_ns: Some(ooms::created_ns(bundle)?),
            end_ns: ooms::created_ns(bundle),
            source_path: path,
            source_kind: "oom_bundle".to_owned(),
            metadata: Value::Object(ooms::to_record(bundle)),
        })
    };
    catalog.bundles.iter().filter_map(evidence).collect()
}

/// What belongs to the runs: bundles of `diagnose` under their own kind, and what was attached by name.
pub(crate) fn attached(catalog: &mut Catalog, ctrl_c: &CtrlC) -> anyhow::Result<Vec<Evidence>> {
    let rows = attachments::rows(catalog, &AttachmentFilter::default(), ctrl_c)?;
    Ok(rows.into_iter().filter_map(attachment).collect())
}

fn attachment(row: Record) -> Option<Evidence> {
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| row.get(key).and_then(Value::as_u64);
    let source_kind = text("source_kind")?;
    let kind = match source_kind.as_str() {
        "diagnose_bundle" => "diagnose_bundle",
        "run_envelope" | "attachment_sidecar" => "attachment",
        // The files of a session are where its events are.
        _ => return None,
    };
    Some(Evidence {
        id: id_of([kind.into(), text("source_path").into(), text("title").into(), text("session_id").into()]),
        kind,
        title: text("title")?,
        session_id: text("session_id"),
        job_id: text("job_id"),
        rank: row.get("rank").and_then(Value::as_i64),
        world_size: number("world_size"),
        start_ns: number("start_ns"),
        end_ns: number("end_ns"),
        source_path: text("source_path")?,
        source_kind,
        metadata: Value::Object(row),
    })
}
