//! `query events`: one row an event, in time order.

use serde_json::Value;
use stormlog_model::{Event, Record, Schema, to_record};

use super::catalog::Catalog;
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 13] = [
    "session_id",
    "timestamp_ns",
    "event_type",
    "rank",
    "local_rank",
    "world_size",
    "collector",
    "allocator_allocated_bytes",
    "allocator_reserved_bytes",
    "device_used_bytes",
    "source_kind",
    "source_path",
    "session_status",
];

/// What events are asked for; `None` is any.
#[derive(Debug, Default)]
pub(crate) struct EventFilter {
    pub(crate) session_id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) rank: Option<i64>,
    pub(crate) collector: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) time_start_ns: Option<u64>,
    pub(crate) time_end_ns: Option<u64>,
    pub(crate) has_alert: Option<bool>,
    pub(crate) health: Option<String>,
    pub(crate) backend: Option<String>,
    pub(crate) limit: Option<usize>,
}

/// An event and where it came from.
pub(crate) struct EventRow {
    pub(crate) event: Event,
    pub(crate) source_path: String,
    pub(crate) source_kind: &'static str,
    pub(crate) session_status: &'static str,
}

impl EventRow {
    pub(crate) fn to_record(&self) -> Record {
        // An event that was read can be written in the latest schema.
        let mut row = to_record(&self.event, Schema::V4).unwrap_or_default();
        let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
        put("source_path", self.source_path.as_str().into());
        put("source_kind", self.source_kind.into());
        put("session_status", self.session_status.into());
        row
    }
}

/// The events, in time order. With a limit no more than about twice as many are held.
pub(crate) fn find(
    catalog: &mut Catalog,
    filter: &EventFilter,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Vec<EventRow>> {
    catalog.sessions(ctrl_c)?;
    let order = |a: &(usize, Event), b: &(usize, Event)| {
        (a.1.timestamp_ns, &a.1.head.session_id).cmp(&(b.1.timestamp_ns, &b.1.head.session_id))
    };
    let limit = filter.limit.unwrap_or(usize::MAX);
    let mut kept = Vec::new();
    catalog.each_event(ctrl_c, |source, event| {
        if matches(&event, filter) {
            kept.push((source, event));
            if kept.len() > limit.saturating_mul(2).saturating_add(4096) {
                kept.sort_by(order);
                kept.truncate(limit);
            }
        }
    })?;
    if let Some(status) = &filter.status {
        kept.retain(|(_, event)| catalog.status_of(&event.head.session_id).as_str() == status);
    }
    kept.sort_by(order);
    kept.truncate(limit);
    let files: Vec<String> = (0..catalog.sources.len()).map(|number| catalog.file_of(number)).collect();
    let row = |(number, event): (usize, Event)| EventRow {
        source_path: files[number].clone(),
        source_kind: catalog.sources[number].kind(),
        session_status: catalog.status_of(&event.head.session_id).as_str(),
        event,
    };
    Ok(kept.into_iter().map(row).collect())
}

fn matches(event: &Event, filter: &EventFilter) -> bool {
    let head = &event.head;
    let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
    let says = |wanted: &Option<String>, key: &str| {
        let said = event.metadata.map.get(key).and_then(Value::as_str);
        wanted.as_deref().is_none_or(|wanted| said == Some(wanted))
    };
    is(&filter.session_id, &head.session_id)
        && is(&filter.event_type, &head.event_type)
        && is(&filter.collector, &head.collector)
        && filter.rank.is_none_or(|rank| u64::try_from(rank) == Ok(head.identity.rank))
        && filter.time_start_ns.is_none_or(|start| event.timestamp_ns >= start)
        && filter.time_end_ns.is_none_or(|end| event.timestamp_ns <= end)
        && filter.has_alert.is_none_or(|has| has == is_alert(event))
        && says(&filter.health, "collector_health_status")
        && says(&filter.backend, "backend")
}

/// Whether an event counts as an alert, by its type or the severity it states.
pub(crate) fn is_alert(event: &Event) -> bool {
    const ALERTS: [&str; 3] = ["warning", "critical", "error"];
    let severity = event.metadata.map.get("severity").and_then(Value::as_str);
    ALERTS.contains(&event.head.event_type.as_str())
        || severity.is_some_and(|text| ALERTS.contains(&text.trim().to_lowercase().as_str()))
}
