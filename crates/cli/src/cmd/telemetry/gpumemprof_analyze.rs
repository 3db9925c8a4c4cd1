//! `gpumemprof analyze`: the words, the file and the exit codes of 0.4.3, with our findings below them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use stormlog_analyze::report::optimization_report;
use stormlog_analyze::text::python_bytes;
use stormlog_catalog::recording::Loaded;
use stormlog_store::json as store_json;
use stormlog_story::judge;

use crate::cmd::atomic_write;
use crate::cmd::telemetry::analyze::{Format, Options, indented};
use crate::cmd::telemetry::analyze_plots::Plots;
use crate::exit::Exit;

/// The default session when none is named: the first in order that has events.
pub(crate) fn default_session(loaded: &Loaded) -> Option<String> {
    let has_events = |id: &str| {
        loaded.recording.sessions.iter().any(|session| session.session_id == id && session.event_count > 0)
    };
    let sessions = || loaded.sessions.iter().map(|session| &session.session_id);
    sessions().find(|id| has_events(id)).or_else(|| sessions().next()).cloned()
}

pub(crate) fn run(
    options: &Options,
    loaded: Loaded,
    selected: Option<&str>,
    discovered: &[String],
) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    let Some(input) = options.paths.first() else { return Ok(Exit::Usage) };
    let name = input.display();
    if !input.exists() {
        writeln!(out, "Error: Input file '{name}' not found")?;
        return Ok(Exit::InvalidInput);
    }
    let problem = loaded.problems().next().cloned();
    let summary =
        selected.and_then(|id| loaded.sessions.iter().find(|session| session.session_id == id)).cloned();
    let mut lines = vec![
        format!("Analyzing profiling results from: {name}"),
        String::new(),
        "Basic Analysis:".to_owned(),
        format!("Input file: {name}"),
        format!("File size: {} bytes", size_of(input)),
    ];
    let mut plots = Err("there are no samples to draw.");
    let report = match (&problem, foreign(input)) {
        (Some(_), Some(keys)) => {
            let note = "JSON payload does not contain telemetry events";
            lines.push(format!("Notes: {note}"));
            json!({
                "summary": {
                    "analysis_timestamp": null, "total_functions_analyzed": 0, "total_function_calls": 0,
                    "total_memory_allocated": 0, "total_execution_time": 0,
                },
                "top_level_keys": keys, "notes": [note],
            })
        }
        (Some(problem), None) => {
            writeln!(out, "Error parsing telemetry events: {problem}")?;
            return Ok(Exit::InvalidInput);
        }
        (None, _) => {
            let drawn = options.plot_dir.as_ref().map(|folder| (Plots::of(&loaded.recording), folder));
            let analysis = judge(loaded);
            if let Some((drawn, folder)) = drawn {
                let written = drawn.write(&analysis, folder)?;
                if !written.is_empty() {
                    plots = Ok(written);
                }
            }
            let mut report = optimization_report(&analysis, selected);
            report.insert(
                "session".to_owned(),
                json!({"selected_session_id": selected, "discovered_session_ids": discovered}),
            );
            let report = Value::Object(report);
            lines.extend(gap_lines(&report));
            lines.extend(cross_rank_lines(&report["cross_rank_analysis"]));
            lines.push(String::new());
            lines.push(format!("Findings: {}", analysis.findings.len()));
            lines.extend(analysis.findings.iter().map(|finding| {
                format!(
                    "  {} {} ({:.2}): {}",
                    finding.severity.as_str(),
                    finding.kind,
                    finding.confidence,
                    finding.title
                )
            }));
            report
        }
    };
    let text = lines.join("\n");
    writeln!(out, "{text}")?;
    if let Some(session) = summary {
        writeln!(
            out,
            "Telemetry session selected: {} ({}, started_at_ns={}).",
            session.session_id,
            session.status.as_str(),
            session.started_at_ns
        )?;
    }
    if let Some(path) = &options.output {
        let is_text = options.format == Some(Format::Text);
        atomic_write::write(path, &if is_text { text + "\n" } else { indented(&report) })?;
        writeln!(out, "Analysis report saved to: {}", path.display())?;
    }
    if options.plot_dir.is_some() {
        match plots {
            Ok(written) => {
                for path in written {
                    writeln!(out, "Visualization saved to: {}", path.display())?;
                }
            }
            Err(why) => writeln!(out, "Visualization skipped: {why}")?,
        }
    }
    Ok(Exit::Ok)
}

fn gap_lines(report: &Value) -> Vec<String> {
    let gaps = report["gap_analysis"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = vec![format!("Gap findings: {}", gaps.len())];
    let phase = gaps.first().and_then(|gap| phase_label(&gap["phase_attribution"]));
    lines.extend(phase.map(|phase| format!("Top gap phase: {phase}")));
    let missing = report.get("analysis_availability").and_then(Value::as_object);
    let reasons: std::collections::BTreeSet<&str> = missing
        .into_iter()
        .flat_map(|map| map.values())
        .filter_map(|entry| entry["reason"].as_str())
        .collect();
    lines.extend(reasons.into_iter().map(|reason| format!("Capability warning: {reason}")));
    lines
}

fn phase_label(phase: &Value) -> Option<String> {
    if let Some(likely) = phase["phase_summary"]["phase_path"].as_str() {
        return Some(format!("(likely) {likely}"));
    }
    if let Some(path) = phase["phase_path"].as_str() {
        return Some(path.to_owned());
    }
    let paths: Vec<&str> = phase["phase_paths"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!paths.is_empty()).then(|| format!("(ambiguous) {}", paths.join(" | ")))
}

fn cross_rank_lines(cross: &Value) -> Vec<String> {
    if cross.is_null() {
        return Vec::new();
    }
    let list = |key: &str| {
        let ranks: Vec<String> = cross[key].as_array().into_iter().flatten().map(Value::to_string).collect();
        if ranks.is_empty() { "none".to_owned() } else { ranks.join(", ") }
    };
    let mut lines = vec![
        String::new(),
        "Distributed Analysis:".to_owned(),
        format!("Participating ranks: {}", list("participating_ranks")),
        format!("Missing ranks: {}", list("missing_ranks")),
    ];
    if !cross["cluster_onset_timestamp_ns"].is_null() {
        lines.push(format!("Cluster onset (aligned ns): {}", cross["cluster_onset_timestamp_ns"]));
    }
    match cross["first_cause_suspects"].as_array().and_then(|suspects| suspects.first()) {
        Some(suspect) => {
            let confidence = suspect["confidence"].as_str().unwrap_or_default();
            lines.push(format!("Top first-cause suspect: rank {} ({confidence})", suspect["rank"]));
            lines.push(format!(
                "Evidence: timestamp_ns={}, aligned_timestamp_ns={}, lead_ns={}, delta={}",
                suspect["first_spike_timestamp_ns"],
                suspect["aligned_first_spike_timestamp_ns"],
                suspect["lead_over_cluster_onset_ns"],
                python_bytes(suspect["peak_delta_bytes"].as_i64().unwrap_or(0).into()),
            ));
            lines.extend(
                phase_label(&suspect["phase_attribution"]).map(|phase| format!("Suspect phase: {phase}")),
            );
        }
        None => lines.push("No qualifying first-cause suspect identified.".to_owned()),
    }
    let notes: Vec<&str> =
        cross["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !notes.is_empty() {
        lines.push(format!("Notes: {}", notes.join(" ")));
    }
    lines
}

/// The keys of a JSON file that is not telemetry at all; `None` when it is, or is not JSON.
fn foreign(path: &Path) -> Option<Vec<String>> {
    const TELEMETRY_KEYS: [&str; 8] = [
        "schema_version",
        "timestamp",
        "timestamp_ns",
        "event_type",
        "memory_allocated",
        "memory_mb",
        "allocator_allocated_bytes",
        "device_used_bytes",
    ];
    if path.is_dir() || path.extension().is_some_and(|extension| extension == "jsonl" || extension == "csv") {
        return None;
    }
    let is_telemetry = |value: &Value| {
        value.as_object().is_some_and(|map| TELEMETRY_KEYS.iter().any(|key| map.contains_key(*key)))
    };
    match store_json::read_value(path).ok()? {
        Value::Array(items) if items.iter().any(is_telemetry) => None,
        Value::Object(map) if map.get("events").is_some_and(Value::is_array) => None,
        Value::Object(map) if TELEMETRY_KEYS.iter().any(|key| map.contains_key(*key)) => None,
        Value::Object(map) => {
            let mut keys: Vec<String> = map.keys().cloned().collect();
            keys.sort();
            Some(keys)
        }
        _ => Some(Vec::new()),
    }
}

fn size_of(path: &Path) -> u64 {
    let Ok(metadata) = fs::metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}
