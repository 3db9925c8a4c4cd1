//! What can be pointed at around a moment: events, alerts, landmarks, bundles, roll-up windows, attachments, each with the stretch of time it belongs to.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stormlog_model::classify::{event_severity, is_alert_event};
use stormlog_model::{Event, Record, Schema, SessionSummary, to_record, value_str};
use stormlog_store::json::write::{dumps, sort_keys};
use stormlog_store::sink::RollupFile;

use super::events::EventOrigin;
use super::markers::Marker;
use super::moment::utc_ns;
use super::named::NamedAttachment;
use super::ooms::BundleRow;
use super::record;
use super::sources::CatalogSource;

/// Something that happened, and how surely it belongs to the moment that was asked about.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of 0.4.3's rows")]
pub struct Evidence {
    pub evidence_id: String,
    pub kind: &'static str,
    pub title: String,
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub world_size: Option<i64>,
    pub start_ns: Option<i128>,
    pub end_ns: Option<i128>,
    pub source_path: String,
    pub source_kind: String,
    pub metadata: Record,
    /// `high`, `medium` or `low`.
    pub confidence: &'static str,
    pub reasons: Vec<&'static str>,
}

impl Evidence {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let time = |at: Option<i128>| Value::from(at.and_then(|at| i64::try_from(at).ok()));
        record([
            ("evidence_id", self.evidence_id.as_str().into()),
            ("kind", self.kind.into()),
            ("title", self.title.as_str().into()),
            ("session_id", self.session_id.as_deref().into()),
            ("job_id", self.job_id.as_deref().into()),
            ("rank", self.rank.into()),
            ("world_size", self.world_size.into()),
            ("start_ns", time(self.start_ns)),
            ("end_ns", time(self.end_ns)),
            ("source_path", self.source_path.as_str().into()),
            ("source_kind", self.source_kind.as_str().into()),
            ("metadata", Value::Object(self.metadata.clone())),
            ("confidence", self.confidence.into()),
            ("reasons", self.reasons.iter().copied().map(Value::from).collect()),
        ])
    }

    /// How far from a moment it is; 0 where it holds the moment or has no time.
    pub(super) fn distance(&self, at_ns: i128) -> i128 {
        let (Some(one), Some(other)) = (self.start_ns.or(self.end_ns), self.end_ns.or(self.start_ns)) else {
            return 0;
        };
        let (first, last) = (one.min(other), one.max(other));
        if at_ns < first { first - at_ns } else { (at_ns - last).max(0) }
    }

    fn of_row(
        event: &Event,
        origin: &EventOrigin,
        id: String,
        kind: &'static str,
        title: String,
        metadata: Value,
    ) -> Self {
        let identity = &event.head.identity;
        Evidence {
            evidence_id: id,
            kind,
            title,
            session_id: Some(event.head.session_id.clone()),
            job_id: identity.job_id.clone(),
            rank: i64::try_from(identity.rank).ok(),
            world_size: i64::try_from(identity.world_size).ok(),
            start_ns: Some(event.timestamp_ns.into()),
            end_ns: None,
            source_path: origin.source_path.clone(),
            source_kind: origin.source_kind.to_owned(),
            metadata: object(metadata),
            ..Evidence::default()
        }
    }

    pub(super) fn of_event(event: &Event, origin: &EventOrigin) -> Self {
        let (head, id) = (&event.head, record_id(event));
        let metadata = json!({
            "record_id": id, "observed_timestamp_ns": event.timestamp_ns, "event_type": head.event_type,
            "collector": head.collector, "context": event.context.as_deref(),
            "session_status": origin.session_status, "metadata": event.metadata.map,
        });
        let title = format!("{} telemetry event", head.event_type);
        Evidence::of_row(event, origin, format!("event:{id}"), "telemetry_event", title, metadata)
    }

    /// An event that is an alert, once more as that.
    pub(super) fn of_alert(event: &Event, origin: &EventOrigin) -> Option<Self> {
        let head = &event.head;
        let parts =
            json!(["alert", head.session_id, event.timestamp_ns, head.identity.rank, head.event_type]);
        let metadata = json!({
            "event_type": head.event_type, "severity": event_severity(event), "collector": head.collector,
            "context": event.context.as_deref(), "metadata": event.metadata.map,
        });
        let title = format!("Alert: {}", head.event_type);
        is_alert_event(event)
            .then(|| Evidence::of_row(event, origin, id_of(&parts), "alert", title, metadata))
    }

    pub(super) fn of_marker(marker: &Marker, job_id: Option<&str>, place: &str, source_kind: &str) -> Self {
        let parts =
            json!(["marker", marker.session_id, marker.kind, marker.start_ns, marker.rank, marker.label]);
        Evidence {
            evidence_id: id_of(&parts),
            kind: "timeline_marker",
            title: marker.label.clone(),
            session_id: Some(marker.session_id.clone()),
            job_id: job_id.map(str::to_owned),
            rank: i64::try_from(marker.rank).ok(),
            world_size: i64::try_from(marker.world_size).ok(),
            start_ns: Some(marker.start_ns.into()),
            end_ns: marker.end_ns.map(i128::from),
            source_path: place.to_owned(),
            source_kind: source_kind.to_owned(),
            metadata: marker.to_record(),
            ..Evidence::default()
        }
    }

    /// What was left at a death.
    pub(super) fn of_bundle(row: &BundleRow, session: Option<&SessionSummary>) -> Self {
        let made = utc_ns(row.created_at_utc.as_deref()).map(i128::from);
        Evidence {
            evidence_id: id_of(&json!(["oom", row.bundle_path, row.session_id])),
            kind: "oom_bundle",
            title: "OOM bundle".to_owned(),
            session_id: row.session_id.clone(),
            job_id: session.and_then(|session| session.job_id.clone()),
            rank: session.map(|session| session.rank),
            world_size: session.map(|session| session.world_size),
            start_ns: made,
            end_ns: made,
            source_path: row.bundle_path.clone(),
            source_kind: "oom_bundle".to_owned(),
            metadata: row.to_record(),
            ..Evidence::default()
        }
    }

    /// A bundle of `diagnose`.
    pub(super) fn of_diagnosis(source: &CatalogSource, summary: &SessionSummary) -> Self {
        let manifest = source.manifest_path.as_ref().map(|path| path.display().to_string());
        Evidence {
            evidence_id: id_of(&json!(["diagnose", manifest, summary.session_id])),
            kind: "diagnose_bundle",
            title: "Diagnose bundle".to_owned(),
            session_id: Some(summary.session_id.clone()),
            job_id: summary.job_id.clone(),
            rank: Some(summary.rank),
            world_size: Some(summary.world_size),
            start_ns: Some(summary.started_at_ns.into()),
            end_ns: summary.ended_at_ns.map(i128::from),
            source_path: source.path().display().to_string(),
            source_kind: source.kind().to_owned(),
            metadata: object(json!({"manifest_path": manifest, "session_status": summary.status.as_str()})),
            ..Evidence::default()
        }
    }

    /// The windows of a sink's roll-ups.
    pub(super) fn of_rollups(rollups: &RollupFile, source_path: &str) -> Vec<Self> {
        let mut found = Vec::new();
        for session in &rollups.sessions {
            let summary = &session.session;
            found.extend(session.windows.iter().map(|window| Evidence {
                evidence_id: id_of(&json!([
                    "rollup",
                    summary.session_id,
                    window.index,
                    whole(window.start_ns)
                ])),
                kind: "rollup_window",
                title: format!("Rollup window {}", window.index),
                session_id: Some(summary.session_id.clone()),
                job_id: summary.job_id.clone(),
                rank: None,
                world_size: Some(summary.world_size),
                start_ns: Some(window.start_ns),
                end_ns: Some(window.end_ns),
                source_path: source_path.to_owned(),
                source_kind: "rollup".to_owned(),
                metadata: object(json!({
                    "event_count": window.event_count, "sample_count": window.sample_count,
                    "rank_count": window.rank_count, "alert_count": window.alert_count,
                    "collector_transition_count": window.collector_transition_count,
                    "oom_count": window.oom_count, "window_duration_ns": rollups.window_duration_ns,
                })),
                ..Evidence::default()
            }));
        }
        found
    }

    /// What a sidecar names.
    pub(super) fn of_attachment(of: &NamedAttachment) -> Self {
        let made = utc_ns(of.created_at_utc.as_deref());
        let start = of.start_ns.or(made).map(i128::from);
        let file = of.file.display().to_string();
        Evidence {
            evidence_id: id_of(&json!(["attachment", of.attachment_id, file, of.title, of.url, of.path])),
            kind: "attachment",
            title: of.title.clone(),
            session_id: of.session_id.clone(),
            job_id: of.job_id.clone(),
            rank: of.rank,
            world_size: None,
            start_ns: start,
            end_ns: of.end_ns.map(i128::from).or(start),
            source_path: of.place(),
            source_kind: "attachment".to_owned(),
            metadata: of.to_sidecar_record(),
            ..Evidence::default()
        }
    }
}

fn object(value: Value) -> Record {
    if let Value::Object(record) = value { record } else { Record::new() }
}

fn whole(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}

/// The id of what has none of its own: a hash of what distinguishes it from others.
fn id_of(parts: &Value) -> String {
    let texts: Vec<Value> =
        parts.as_array().map_or(&[][..], Vec::as_slice).iter().map(|part| value_str(part).into()).collect();
    format!("evidence-{}", hex(&dumps(&Value::Array(texts)), 12))
}

/// The id 0.4.3 gives a record: a hash of it, keys sorted.
pub(super) fn record_id(event: &Event) -> String {
    let mut record = Value::Object(to_record(event, Schema::V4).unwrap_or_default());
    sort_keys(&mut record);
    format!("telemetry-{}", hex(&dumps(&record), 16))
}

fn hex(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}
