//! `query summary`: one number a group.

use std::collections::BTreeMap;

use serde_json::Value;
use stormlog_model::{Counter, Record};

use super::catalog::Catalog;
use super::events::{EventFilter, EventRow, find, is_alert};
use super::sessions::{self, SessionFilter};
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 11] = [
    "metric",
    "group_by",
    "session_id",
    "rank",
    "status",
    "value",
    "timestamp_ns",
    "first_gap_bytes",
    "latest_gap_bytes",
    "peak_gap_bytes",
    "sample_count",
];

/// What can be summed up.
pub(crate) const METRICS: [&str; 8] = [
    "session_count_by_status",
    "peak_allocator_allocated_bytes",
    "peak_allocator_reserved_bytes",
    "peak_device_used_bytes",
    "alert_count",
    "collector_degradation_transitions",
    "interrupted_sessions_with_oom_bundles",
    "hidden_memory_gap_growth",
];

/// Session, rank and status; those the group goes by.
type Group = (Option<String>, Option<u64>, Option<&'static str>);

pub(crate) fn rows(
    catalog: &mut Catalog,
    metric: &str,
    group_by: &str,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Vec<Record>> {
    match metric {
        "session_count_by_status" => return by_status(catalog, ctrl_c),
        "interrupted_sessions_with_oom_bundles" => return with_bundles(catalog, ctrl_c),
        _ => {}
    }
    let events = find(catalog, &EventFilter::default(), ctrl_c)?;
    let mut groups: BTreeMap<Group, Vec<&EventRow>> = BTreeMap::new();
    for row in &events {
        groups.entry(group_of(row, group_by)).or_default().push(row);
    }
    let mut rows = Vec::new();
    for (group, events) in &groups {
        let found = match metric {
            "peak_allocator_allocated_bytes" => peak(events, Counter::Allocated),
            "peak_allocator_reserved_bytes" => peak(events, Counter::Reserved),
            "peak_device_used_bytes" => peak(events, Counter::Used),
            "alert_count" => count(events, &|row| is_alert(&row.event)),
            "collector_degradation_transitions" => count(events, &|row| {
                matches!(row.event.head.event_type.as_str(), "collector_degraded" | "collector_recovered")
            }),
            _ => gap_growth(events),
        };
        if let Some((value, details)) = found {
            let mut row = row(metric, group_by, group, value);
            row.extend(details);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn group_of(row: &EventRow, group_by: &str) -> Group {
    let head = &row.event.head;
    match group_by {
        "rank" => (None, Some(head.identity.rank), None),
        "session-rank" => (Some(head.session_id.clone()), Some(head.identity.rank), None),
        "status" => (None, None, Some(row.session_status)),
        _ => (Some(head.session_id.clone()), None, None),
    }
}

fn row(metric: &str, group_by: &str, group: &Group, value: Value) -> Record {
    let mut row = Record::new();
    let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
    put("metric", metric.into());
    put("group_by", group_by.into());
    put("session_id", group.0.as_deref().into());
    put("rank", group.1.into());
    put("status", group.2.into());
    put("value", value);
    row
}

type Found = Option<(Value, Record)>;

/// Events whose counter is unknown have no say; 0.4.3 fails on them.
fn peak(events: &[&EventRow], counter: Counter) -> Found {
    let mut best: Option<(u64, u64)> = None;
    for row in events {
        if let Some(value) = row.event.counter(counter)
            && best.is_none_or(|(most, _)| value > most)
        {
            best = Some((value, row.event.timestamp_ns));
        }
    }
    best.map(|(value, at)| (value.into(), Record::from_iter([("timestamp_ns".to_owned(), at.into())])))
}

fn count(events: &[&EventRow], wanted: &dyn Fn(&EventRow) -> bool) -> Found {
    let count = events.iter().filter(|row| wanted(row)).count();
    (count > 0).then(|| (count.into(), Record::new()))
}

fn gap_growth(events: &[&EventRow]) -> Found {
    let gap = |row: &&EventRow| {
        let event = &row.event;
        let is_sample = event.head.event_type == "sample";
        let (used, reserved) = event.counter(Counter::Used).zip(event.counter(Counter::Reserved))?;
        is_sample.then(|| i128::from(used) - i128::from(reserved))
    };
    let gaps: Vec<i128> = events.iter().filter_map(gap).collect();
    let (first, last, most) = (*gaps.first()?, *gaps.last()?, *gaps.iter().max()?);
    // Beyond what a counter can hold there is no difference worth a digit.
    let number = |bytes: i128| i64::try_from(bytes).map_or(Value::Null, Value::from);
    let details = [
        ("first_gap_bytes", number(first)),
        ("latest_gap_bytes", number(last)),
        ("peak_gap_bytes", number(most)),
        ("sample_count", gaps.len().into()),
    ];
    Some((number(last - first), details.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()))
}

fn by_status(catalog: &mut Catalog, ctrl_c: &CtrlC) -> anyhow::Result<Vec<Record>> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for (_, session) in catalog.sessions(ctrl_c)? {
        *counts.entry(session.summary.status.as_str()).or_insert(0) += 1;
    }
    let rows = counts.into_iter().map(|(status, count)| {
        row("session_count_by_status", "status", &(None, None, Some(status)), count.into())
    });
    Ok(rows.collect())
}

fn with_bundles(catalog: &mut Catalog, ctrl_c: &CtrlC) -> anyhow::Result<Vec<Record>> {
    let filter = SessionFilter {
        status: Some("interrupted".to_owned()),
        has_oom_bundle: Some(true),
        ..SessionFilter::default()
    };
    let sessions = sessions::rows(catalog, &filter, ctrl_c)?;
    let rows = sessions.into_iter().map(|session| {
        let id = session.get("session_id").and_then(Value::as_str).map(str::to_owned);
        let count = session.get("oom_bundle_count").cloned().unwrap_or_default();
        row("interrupted_sessions_with_oom_bundles", "session", &(id, None, Some("interrupted")), count)
    });
    Ok(rows.collect())
}
