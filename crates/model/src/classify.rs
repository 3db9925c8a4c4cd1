//! What an event counts as: an alert, an out-of-memory error, a collector in trouble. The rules and words of 0.4.3.
//!
//! Roll-ups, queries, the commands and Python ask these functions; no other place may decide it. Each takes the few facts it needs, so that a
//! caller whose events are not [`Event`]s can ask too; the ones that end in `_event` read them from an event.

use serde_json::Value;

use crate::fingerprint::{normalize_text, text_dimension};
use crate::python_text::strip;
use crate::{Event, Record};

/// Event types that are alerts whatever their metadata says, and severities that make an alert of any event.
pub const ALERTS: [&str; 3] = ["critical", "error", "warning"];
/// Event types that report a change of a collector's health.
pub const COLLECTOR_TRANSITIONS: [&str; 2] = ["collector_degraded", "collector_recovered"];
/// Health words of a collector in trouble.
pub const DEGRADED_STATUSES: [&str; 2] = ["degraded", "unhealthy"];
/// Metadata keys that mark an error as an out-of-memory error.
pub const OOM_MARKS: [&str; 2] = ["oom_reason", "oom_dump_path"];

/// Whether an event counts as an alert. `severity` is what its metadata states, if that is a text.
pub fn is_alert(event_type: &str, severity: Option<&str>) -> bool {
    ALERTS.contains(&event_type)
        || severity.is_some_and(|text| ALERTS.contains(&strip(text).to_lowercase().as_str()))
}

/// The severity an alert is counted under: the stated one, else the one of its type.
pub fn severity_of(event_type: &str, severity: Option<&str>) -> String {
    match severity.map(normalize_text).filter(|text| !text.is_empty()) {
        Some(text) => text,
        None if matches!(event_type, "critical" | "error") => "critical".to_owned(),
        None if event_type == "warning" => "warning".to_owned(),
        None => "info".to_owned(),
    }
}

/// Whether an event is an error that is marked as an out-of-memory error.
pub fn is_oom(event_type: &str, has_oom_mark: bool) -> bool {
    event_type == "error" && has_oom_mark
}

/// Whether an event reports a change of a collector's health.
pub fn is_collector_transition(event_type: &str) -> bool {
    COLLECTOR_TRANSITIONS.contains(&event_type)
}

/// Whether an event reports that a collector is in trouble. `health` is what its metadata states, if that is a text.
pub fn is_collector_degradation(event_type: &str, health: Option<&str>) -> bool {
    event_type == "collector_degraded"
        || health.is_some_and(|text| DEGRADED_STATUSES.contains(&strip(text).to_lowercase().as_str()))
}

/// Whether metadata marks an error as an out-of-memory error.
pub fn has_oom_mark(metadata: &Record) -> bool {
    OOM_MARKS.iter().any(|key| metadata.contains_key(*key))
}

/// [`is_alert`] of an event.
pub fn is_alert_event(event: &Event) -> bool {
    is_alert(&event.head.event_type, stated(event, "severity"))
}

/// [`severity_of`] an event.
pub fn event_severity(event: &Event) -> String {
    severity_of(&event.head.event_type, stated(event, "severity"))
}

/// [`is_oom`] of an event.
pub fn is_oom_event(event: &Event) -> bool {
    is_oom(&event.head.event_type, has_oom_mark(&event.metadata.map))
}

/// [`is_collector_degradation`] of an event.
pub fn is_collector_degradation_event(event: &Event) -> bool {
    is_collector_degradation(&event.head.event_type, stated(event, "collector_health_status"))
}

/// The backend an event names, for grouping.
pub fn event_backend(event: &Event) -> String {
    text_dimension(event.metadata.map.get("backend").unwrap_or(&Value::Null), "unknown")
}

/// A text of an event's metadata.
fn stated<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.metadata.map.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_known_by_type_or_severity() {
        assert!(is_alert("critical", None));
        assert!(is_alert("sample", Some(" ERROR ")));
        assert!(!is_alert("sample", Some("info")));
        assert_eq!(severity_of("error", Some(" ")), "critical");
        assert_eq!(severity_of("warning", None), "warning");
        assert_eq!(severity_of("sample", None), "info");
        assert_eq!(severity_of("warning", Some("Level 3")), "level <num>");
    }

    #[test]
    fn collectors_in_trouble_are_known_by_type_or_health() {
        assert!(is_collector_degradation("collector_degraded", None));
        assert!(is_collector_degradation("sample", Some(" Unhealthy")));
        assert!(!is_collector_degradation("collector_recovered", Some("healthy")));
        assert!(is_oom("error", true) && !is_oom("warning", true) && !is_oom("error", false));
    }
}
