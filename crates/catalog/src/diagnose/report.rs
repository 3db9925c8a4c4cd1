//! `report.json` and `manifest.json`: what a summary means, as findings that point back into the bundle.

use serde_json::{Map, Value, json};
use stormlog_model::SessionSummary;

use super::{ENVIRONMENT, MANIFEST, MANIFEST_VERSION, REPORT, SUMMARY, TIMELINE};

/// The numbers of a summary that a report repeats, in this order.
const METRICS: [&str; 8] = [
    "allocated_bytes",
    "reserved_bytes",
    "peak_bytes",
    "total_bytes",
    "allocator_gap_bytes",
    "utilization_ratio",
    "fragmentation_ratio",
    "num_ooms",
];

/// The program that writes the bundle.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// `gpumemprof`, `tfmemprof`, `jaxmemprof`, `stormlog`.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The words of its command line, without secrets; `None` where there is none.
    pub argv: Option<&'a [String]>,
}

/// What a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The writer.
    pub tool: Tool<'a>,
    /// `diagnostic_summary.json`; may be half of one where there is an error.
    pub summary: &'a Map<String, Value>,
    /// The threshold of each risk that has one, by its flag.
    pub thresholds: &'a [(&'a str, f64)],
    /// The session.
    pub session_id: &'a str,
    /// The files of the bundle.
    pub files: &'a [String],
    /// The exit code, and its word.
    pub exit: (u8, &'a str),
    /// Why the bundle is incomplete.
    pub error: Option<&'a str>,
    /// Now, in UTC.
    pub generated_at_utc: &'a str,
}

/// The report of one bundle. With an error it claims no findings: the summary may be half of one.
#[must_use]
pub fn report(facts: &Facts<'_>) -> Value {
    let flags: Map<String, Value> = match facts.summary.get("risk_flags") {
        Some(Value::Object(flags)) => flags.clone(),
        _ => Map::new(),
    };
    let raised = flags.iter().filter(|(_, is_raised)| **is_raised == true && facts.error.is_none());
    let findings: Vec<Value> = raised.map(|(flag, _)| finding(flag, facts)).collect();
    let kinds: Vec<&str> = findings.iter().filter_map(|found| found["kind"].as_str()).collect();
    let sentence = match (facts.error, kinds.as_slice()) {
        (Some(error), _) => format!("Bundle incomplete: {error}"),
        (None, []) => "No memory risk detected".to_owned(),
        (None, kinds) => format!("Memory risk detected: {}", kinds.join(", ")),
    };
    let number = |key: &&str| Some(((*key).to_owned(), facts.summary.get(*key)?.clone()));
    let metrics: Map<String, Value> =
        METRICS.iter().filter_map(number).filter(|(_, value)| value.is_number() || value.is_null()).collect();
    let mut tool = json!({"name": facts.tool.name, "command": "diagnose", "version": facts.tool.version});
    if let Some(argv) = facts.tool.argv {
        tool["argv"] = argv.into();
    }
    let suggestions = facts.summary.get("suggestions").cloned().unwrap_or_else(|| json!([]));
    json!({
        "schema_version": 1, "format": "stormlog.report", "report_kind": "diagnose",
        "generated_at_utc": facts.generated_at_utc,
        "tool": tool,
        "verdict": {"status": facts.exit.1, "exit_code": facts.exit.0, "summary": sentence},
        "findings": findings,
        "metrics": metrics,
        "artifacts": facts.files.iter().map(|name| artifact(name)).collect::<Vec<_>>(),
        "recommendations": suggestions,
        "session_id": facts.session_id, "run_id": null,
        "payload": {"backend": facts.summary.get("backend"), "risk_flags": flags},
    })
}

/// What the bundle holds and how it ended.
#[must_use]
pub fn manifest(
    files: &[String],
    (exit_code, has_risk): (u8, bool),
    session: &SessionSummary,
    created_iso: &str,
) -> Map<String, Value> {
    let record = json!({
        "schema_version": MANIFEST_VERSION, "version": MANIFEST_VERSION, "created_iso": created_iso,
        "files": files, "exit_code": exit_code, "risk_detected": has_risk,
        "session_id": session.session_id, "session_status": session.status.as_str(),
        "session": session.to_record(),
    });
    match record {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

/// Kind, severity, title, and the number it is about.
fn finding(flag: &str, facts: &Facts<'_>) -> Value {
    let unnamed = format!("Risk flag {flag} is set");
    let (kind, severity, title, metric) = match flag {
        "oom_occurred" => ("oom", "critical", "The allocator recorded out-of-memory events", "num_ooms"),
        "high_utilization" => (
            "high_utilization",
            "warning",
            "Device memory utilization is above the risk threshold",
            "utilization_ratio",
        ),
        "fragmentation_warning" => (
            "fragmentation",
            "warning",
            "Allocator fragmentation is above the warning threshold",
            "fragmentation_ratio",
        ),
        flag => (flag, "warning", unnamed.as_str(), flag),
    };
    let mut metrics = Map::new();
    if let Some(value) = facts.summary.get(metric).filter(|value| value.is_number()) {
        metrics.insert(metric.to_owned(), value.clone());
    }
    if let Some((_, threshold)) = facts.thresholds.iter().find(|(name, _)| *name == flag) {
        metrics.insert("threshold".to_owned(), (*threshold).into());
    }
    json!({
        "id": format!("diagnose.{flag}"), "kind": kind, "severity": severity, "title": title, "metrics": metrics,
        "evidence": [
            {"kind": "diagnose_summary", "path": SUMMARY, "pointer": format!("/risk_flags/{flag}")},
            {"kind": "session", "session_id": facts.session_id},
        ],
    })
}

fn artifact(name: &str) -> Value {
    match name {
        MANIFEST => json!({"kind": "diagnose_manifest", "path": name, "schema_version": MANIFEST_VERSION}),
        REPORT => json!({"kind": "report", "path": name, "format": "stormlog.report", "schema_version": 1}),
        SUMMARY => json!({"kind": "diagnose_summary", "path": name}),
        ENVIRONMENT => json!({"kind": "environment", "path": name}),
        TIMELINE => json!({"kind": "telemetry_timeline", "path": name}),
        _ => json!({"kind": "file", "path": name}),
    }
}
