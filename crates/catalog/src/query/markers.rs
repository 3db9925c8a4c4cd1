//! Landmarks of a session: its beginning and end, alerts, trouble of a collector, out of memory, phases.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stormlog_analyze::phases::{PhaseAttribution, PhaseIndex, PhaseRecord};
use stormlog_model::classify::{OOM_MARKS, is_oom};
use stormlog_model::{Event, Record, strip};

/// A moment or a span to show on a timeline.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    pub(super) session_id: String,
    pub(super) start_ns: u64,
    pub(super) end_ns: Option<u64>,
    pub(super) kind: &'static str,
    source: &'static str,
    severity: &'static str,
    pub(super) label: String,
    pub(super) rank: u64,
    local_rank: u64,
    pub(super) world_size: u64,
    event_type: String,
    metadata: Record,
}

impl Marker {
    pub(super) fn to_record(&self) -> Record {
        super::record([
            ("session_id", self.session_id.as_str().into()),
            ("start_ns", self.start_ns.into()),
            ("end_ns", self.end_ns.into()),
            ("kind", self.kind.into()),
            ("source", self.source.into()),
            ("severity", self.severity.into()),
            ("label", self.label.as_str().into()),
            ("rank", self.rank.into()),
            ("local_rank", self.local_rank.into()),
            ("world_size", self.world_size.into()),
            ("event_type", self.event_type.as_str().into()),
            ("metadata", Value::Object(self.metadata.clone())),
        ])
    }
}

/// The phases of each session and rank among events.
pub(super) struct Phases(BTreeMap<(String, u64), (PhaseIndex, (u64, u64))>);

impl Phases {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut records: BTreeMap<(String, u64), (PhaseRecord, (u64, u64))> = BTreeMap::new();
        for event in events {
            let identity = &event.head.identity;
            let key = (event.head.session_id.clone(), identity.rank);
            let first = || (PhaseRecord::default(), (identity.local_rank, identity.world_size));
            records.entry(key).or_insert_with(first).0.observe(event);
        }
        Phases(records.into_iter().map(|(key, (record, world))| (key, (record.index(), world))).collect())
    }
}

/// The phase of an event, by its time, session and rank and what it states of its origin.
pub(super) fn phase_of(phases: &Phases, event: &Event) -> Option<PhaseAttribution> {
    let (index, _) = phases.0.get(&(event.head.session_id.clone(), event.head.identity.rank))?;
    let stated = |key: &str| event.metadata.map.get(key);
    let thread = stated("origin_thread_id").and_then(Value::as_i64);
    let scope = stated("origin_phase_scope_id").and_then(Value::as_str).filter(|scope| !scope.is_empty());
    index.resolve_from(event.timestamp_ns, thread, scope)
}

/// The markers of events, in time order.
pub(super) fn markers(events: &[Event]) -> Vec<Marker> {
    let mut found: Vec<Marker> = events.iter().filter_map(point).collect();
    for ((session_id, rank), (index, (local_rank, world_size))) in &Phases::of(events).0 {
        found.extend(index.spans().iter().map(|span| Marker {
            session_id: session_id.clone(),
            start_ns: span.from_ns,
            end_ns: Some(span.to_ns),
            kind: "phase",
            source: "phase_replay",
            severity: "info",
            label: format!("Phase: {}", span.path),
            rank: *rank,
            local_rank: *local_rank,
            world_size: *world_size,
            event_type: "phase".to_owned(),
            metadata: super::record([
                ("phase_path", span.parts.clone().into()),
                ("scope_id", span.scope_id.as_str().into()),
                ("thread_id", span.thread_id.into()),
                ("thread_name", span.thread_name.as_str().into()),
                ("sequence", span.sequence.into()),
                ("synthetic_end", json!(span.is_open)),
            ]),
        }));
    }
    found.sort_by(|a, b| {
        let key = |marker: &Marker| {
            (marker.start_ns, marker.end_ns.unwrap_or(marker.start_ns), marker.rank, marker.kind)
        };
        key(a).cmp(&key(b)).then_with(|| a.label.cmp(&b.label))
    });
    found
}

/// The types of the events that are landmarks.
pub const LANDMARK_TYPES: [&str; 7] =
    ["start", "stop", "collector_degraded", "collector_recovered", "warning", "critical", "error"];

/// What an event is on a timeline.
#[derive(Debug, Clone)]
pub struct Landmark {
    /// `lifecycle`, `collector`, `alert` or `oom`.
    pub kind: &'static str,
    /// `info`, `warning` or `critical`.
    pub severity: &'static str,
    /// The text beside it.
    pub label: String,
}

/// What an event of that type is on a timeline, if anything. `has_oom_mark` and `oom_reason` are of its metadata.
pub fn landmark(
    event_type: &str,
    has_oom_mark: bool,
    oom_reason: Option<&str>,
    context: Option<&str>,
) -> Option<Landmark> {
    let (mut kind, severity, label) = match strip(event_type) {
        "start" => ("lifecycle", "info", "Tracking started"),
        "stop" => ("lifecycle", "info", "Tracking stopped"),
        "collector_degraded" => ("collector", "warning", "Collector degraded"),
        "collector_recovered" => ("collector", "info", "Collector recovered"),
        "warning" => ("alert", "warning", "Warning"),
        "critical" => ("alert", "critical", "Critical alert"),
        "error" => ("alert", "critical", "Error"),
        _ => return None,
    };
    let said = |text: Option<&str>| text.map(strip).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut label = label.to_owned();
    if is_oom(strip(event_type), has_oom_mark) {
        kind = "oom";
        let reason = said(oom_reason);
        label = reason.map_or_else(|| "OOM detected".to_owned(), |reason| format!("OOM detected: {reason}"));
    }
    Some(Landmark { kind, severity, label: said(context).unwrap_or(label) })
}

fn point(event: &Event) -> Option<Marker> {
    let metadata = &event.metadata.map;
    let has_oom_mark = OOM_MARKS.iter().any(|mark| metadata.contains_key(*mark));
    let reason = metadata.get("oom_reason").and_then(Value::as_str);
    let event_type = &event.head.event_type;
    let Landmark { kind, severity, label } =
        landmark(event_type, has_oom_mark, reason, event.context.as_deref())?;
    let identity = &event.head.identity;
    Some(Marker {
        session_id: event.head.session_id.clone(),
        start_ns: event.timestamp_ns,
        end_ns: None,
        kind,
        source: "telemetry_event",
        severity,
        label,
        rank: identity.rank,
        local_rank: identity.local_rank,
        world_size: identity.world_size,
        event_type: strip(event_type).to_owned(),
        metadata: metadata.clone(),
    })
}
