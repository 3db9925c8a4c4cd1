//! `query issues`: what went wrong, the same things counted together under a fingerprint that is the same in every recording.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stormlog_analyze::{AnalysisOptions, Recording, analyze};
use stormlog_model::{Event, Record};
use stormlog_store::json::write::sort_keys;

use super::catalog::Catalog;
use super::events::{EventFilter, EventRow, find, is_alert};
use super::ooms;
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 10] = [
    "fingerprint_id",
    "kind",
    "state",
    "severity",
    "title",
    "hit_count",
    "first_seen_ns",
    "last_seen_ns",
    "affected_sessions",
    "representative_evidence",
];

/// What issues are asked for; `None` is any.
#[derive(Debug, Default)]
pub(crate) struct IssueFilter {
    pub(crate) fingerprint_id: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) severity: Option<String>,
    pub(crate) session_id: Option<String>,
}

/// One kind of trouble while its hits are counted.
struct Issue {
    kind: &'static str,
    dimensions: Value,
    title: String,
    severity: String,
    hits: u64,
    seen: Option<(u64, u64)>,
    sessions: BTreeSet<String>,
    first: Value,
}

/// One hit.
struct Hit {
    kind: &'static str,
    dimensions: Value,
    title: String,
    severity: String,
    at_ns: Option<u64>,
    session_id: Option<String>,
    evidence: Value,
}

#[derive(Default)]
struct Issues(BTreeMap<String, Issue>);

pub(crate) fn rows(
    catalog: &mut Catalog,
    filter: &IssueFilter,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Vec<Record>> {
    let mut issues = Issues::default();
    for bundle in &catalog.bundles {
        let path = bundle.path.display().to_string();
        issues.take(Hit {
            kind: "oom",
            dimensions: json!({
                "backend": dimension(bundle.backend.as_deref()), "reason": dimension(bundle.reason.as_deref()),
            }),
            title: "OOM captured by flight recorder".to_owned(),
            severity: "critical".to_owned(),
            at_ns: ooms::created_ns(bundle),
            session_id: bundle.session_id.clone(),
            evidence: json!({"session_id": bundle.session_id, "source_kind": "oom_bundle", "bundle_path": path}),
        });
    }
    let mut kinds: FxHashMap<String, (String, String)> = FxHashMap::default();
    for row in find(catalog, &EventFilter::default(), ctrl_c)? {
        let head = &row.event.head;
        if !kinds.contains_key(&head.session_id) {
            kinds.insert(head.session_id.clone(), (row.source_path.clone(), row.source_kind.to_owned()));
        }
        if let Some(hit) = of_event(&row) {
            issues.take(hit);
        }
    }
    // By source, so that a session that lies here twice is looked at once.
    let mut recording = Recording::default();
    let mut last = None;
    catalog.each_event(ctrl_c, |source, event| {
        if last.replace(source) != Some(source) {
            recording.next_source();
        }
        recording.observe(&event);
    })?;
    hidden(recording, &kinds, &mut issues);
    let mut rows: Vec<Record> = issues
        .0
        .into_iter()
        .map(|(id, issue)| issue.into_record(id))
        .filter(|row| matches(row, filter))
        .collect();
    rows.sort_by_key(|row| {
        let rank = match row["severity"].as_str() {
            Some("critical" | "error") => 0,
            Some("warning") => 1,
            Some("info") => 2,
            _ => 9,
        };
        (rank, std::cmp::Reverse(row["last_seen_ns"].as_u64()), row["fingerprint_id"].to_string())
    });
    Ok(rows)
}

fn of_event(row: &EventRow) -> Option<Hit> {
    let event = &row.event;
    let head = &event.head;
    let metadata = &event.metadata.map;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str);
    let backend = dimension(text("backend"));
    let health = text("collector_health_status").map(str::to_lowercase);
    let is_unwell = head.event_type == "collector_degraded"
        || health.as_deref().is_some_and(|status| matches!(status, "degraded" | "unhealthy"));
    let is_oom = head.event_type == "error"
        && (metadata.contains_key("oom_reason") || metadata.contains_key("oom_dump_path"));
    let (kind, dimensions, title, severity) = if is_oom {
        let dimensions = json!({"backend": backend, "reason": dimension(text("oom_reason"))});
        ("oom", dimensions, "OOM telemetry event".to_owned(), "critical".to_owned())
    } else if is_unwell {
        let health = health.unwrap_or_else(|| "degraded".to_owned());
        let severity = if health == "unhealthy" { "critical" } else { "warning" };
        let mut fields: Vec<String> = metadata
            .get("collector_partial_fields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|field| dimension(field.as_str()))
            .collect();
        fields.sort();
        let dimensions = json!({
            "collector": dimension(Some(&head.collector)), "backend": backend, "health_status": health,
            "partial_fields": fields, "error_stem": stem(text("collector_last_error")),
        });
        ("collector_degradation", dimensions, "Collector degradation".to_owned(), severity.to_owned())
    } else if is_alert(event) {
        let severity = severity_of(event);
        let category = category(event.context.as_deref());
        let dimensions = json!({
            "event_type": dimension(Some(&head.event_type)), "severity": severity,
            "collector": dimension(Some(&head.collector)), "backend": backend, "category": category,
        });
        ("alert", dimensions, format!("Alert: {}", category.replace('_', " ")), severity)
    } else {
        return None;
    };
    Some(Hit {
        kind,
        dimensions,
        title,
        severity,
        at_ns: Some(event.timestamp_ns),
        session_id: Some(head.session_id.clone()),
        evidence: json!({
            "session_id": head.session_id, "timestamp_ns": event.timestamp_ns, "rank": head.identity.rank,
            "source_path": row.source_path, "source_kind": row.source_kind, "event_type": head.event_type,
        }),
    })
}

/// Anomalies of hidden memory, by the rule `analyze` has for them.
fn hidden(recording: Recording, kinds: &FxHashMap<String, (String, String)>, issues: &mut Issues) {
    let heads: FxHashMap<String, String> = recording
        .sessions
        .iter()
        .filter_map(|session| {
            Some((session.session_id.clone(), session.ranks.first()?.head.collector.clone()))
        })
        .collect();
    let analysis = analyze(recording, Vec::new(), &AnalysisOptions::default());
    for placed in analysis.gaps {
        let (path, kind) = kinds.get(&placed.session_id).cloned().unwrap_or_default();
        let phase = placed.phase.as_ref().and_then(stormlog_analyze::phases::PhaseAttribution::label);
        let class = placed.gap.class.as_str();
        issues.take(Hit {
            kind: "hidden_memory_anomaly",
            dimensions: json!({
                "classification": class, "severity": placed.gap.severity.as_str(),
                "phase": phase.map(|phase| dimension(Some(&phase))),
                "collector": dimension(heads.get(&placed.session_id).map(String::as_str)), "backend": "unknown",
            }),
            title: format!("Hidden-memory anomaly: {class}"),
            severity: placed.gap.severity.as_str().to_owned(),
            at_ns: Some(placed.gap.at_ns),
            session_id: Some(placed.session_id.clone()),
            evidence: json!({
                "session_id": placed.session_id, "timestamp_ns": placed.gap.at_ns, "rank": placed.rank,
                "source_path": path, "source_kind": kind, "event_type": "sample",
            }),
        });
    }
}

impl Issues {
    fn take(&mut self, hit: Hit) {
        let id = fingerprint(hit.kind, &hit.dimensions);
        let issue = self.0.entry(id).or_insert_with(|| Issue {
            kind: hit.kind,
            dimensions: hit.dimensions,
            title: hit.title,
            severity: hit.severity,
            hits: 0,
            seen: None,
            sessions: BTreeSet::new(),
            first: hit.evidence,
        });
        issue.hits += 1;
        issue.sessions.extend(hit.session_id);
        if let Some(at) = hit.at_ns {
            let (first, last) = issue.seen.unwrap_or((at, at));
            issue.seen = Some((first.min(at), last.max(at)));
        }
    }
}

impl Issue {
    fn into_record(self, id: String) -> Record {
        let sessions: Vec<String> = self.sessions.into_iter().collect();
        let row = [
            ("fingerprint_id", Value::from(id.as_str())),
            ("kind", self.kind.into()),
            ("state", "open".into()),
            ("severity", self.severity.into()),
            ("title", self.title.into()),
            ("hit_count", self.hits.into()),
            ("first_seen_ns", self.seen.map(|(first, _)| first).into()),
            ("last_seen_ns", self.seen.map(|(_, last)| last).into()),
            ("affected_sessions", sessions.into()),
            ("representative_evidence", self.first),
            (
                "fingerprint",
                json!({"schema_version": 1, "fingerprint_id": id, "kind": self.kind, "dimensions": self.dimensions}),
            ),
        ];
        row.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }
}

fn fingerprint(kind: &str, dimensions: &Value) -> String {
    let mut payload = json!({"schema_version": 1, "kind": kind, "dimensions": dimensions});
    sort_keys(&mut payload);
    let digest = Sha256::digest(payload.to_string().as_bytes());
    let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("issue:{hex}")
}

/// A text with what varies taken out: lower case, numbers as `<num>`, addresses as `<hex>`, one blank between words.
fn dimension(text: Option<&str>) -> String {
    let lower = text.unwrap_or_default().trim().to_lowercase();
    if lower.is_empty() {
        return "unknown".to_owned();
    }
    let mut words = Vec::new();
    for word in lower.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let number = bare.trim_end_matches('%');
        let is_hex =
            bare.strip_prefix("0x").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
        let is_number =
            !number.is_empty() && number.parse::<f64>().is_ok() && !number.contains(['e', 'n', 'i']);
        words.push(match (is_hex, is_number) {
            (true, _) => word.replace(bare, "<hex>"),
            (false, true) => word.replace(bare, "<num>"),
            (false, false) => word.to_owned(),
        });
    }
    words.join(" ")
}

fn stem(error: Option<&str>) -> String {
    let text = dimension(error);
    let text = text.split([':', '\n']).next().unwrap_or("unknown").trim();
    let short: String = text.chars().take(120).collect();
    if short.is_empty() { "unknown".to_owned() } else { short }
}

fn category(context: Option<&str>) -> String {
    let text = dimension(context);
    if text.contains("fragmentation") {
        "high_fragmentation".to_owned()
    } else if text.contains("oom") || text.contains("out of memory") {
        "oom_alert".to_owned()
    } else if text == "unknown" {
        "generic_alert".to_owned()
    } else {
        text
    }
}

fn severity_of(event: &Event) -> String {
    match event.metadata.map.get("severity").and_then(Value::as_str).filter(|text| !text.trim().is_empty()) {
        Some(stated) => dimension(Some(stated)),
        None if matches!(event.head.event_type.as_str(), "critical" | "error") => "critical".to_owned(),
        None if event.head.event_type == "warning" => "warning".to_owned(),
        None => "info".to_owned(),
    }
}

fn matches(row: &Record, filter: &IssueFilter) -> bool {
    let is = |wanted: &Option<String>, key: &str| wanted.as_deref().is_none_or(|wanted| row[key] == wanted);
    let sessions = row["affected_sessions"].as_array();
    is(&filter.fingerprint_id, "fingerprint_id")
        && is(&filter.kind, "kind")
        && is(&filter.state, "state")
        && is(&filter.severity, "severity")
        && filter
            .session_id
            .as_deref()
            .is_none_or(|id| sessions.is_some_and(|ids| ids.iter().any(|one| one == id)))
}
