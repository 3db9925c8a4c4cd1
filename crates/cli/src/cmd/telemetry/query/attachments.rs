//! `query attachments`: what belongs to a run. What it names itself, what a `stormlog_attachments.json` beside it names, and the
//! artifacts its sessions left: sinks with their segments, recordings, bundles, telemetry files.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use stormlog_model::{Record, SessionSummary};
use stormlog_postmortem::bundle::Bundle;
use stormlog_store::{FoundSession, Source, json as store_json};

use super::catalog::Catalog;
use super::ooms;
use super::runs::{self, Run, RunFilter};
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 13] = [
    "run_id",
    "kind",
    "title",
    "storage",
    "session_id",
    "job_id",
    "rank",
    "source_kind",
    "source_path",
    "source_namespace",
    "source_ref",
    "url",
    "path",
];
const KEYS: [&str; 19] = [
    "run_id",
    "title",
    "kind",
    "storage",
    "attachment_id",
    "url",
    "path",
    "session_id",
    "job_id",
    "rank",
    "local_rank",
    "world_size",
    "start_ns",
    "end_ns",
    "source_path",
    "source_kind",
    "source_namespace",
    "source_ref",
    "metadata",
];
const SIDECAR: &str = "stormlog_attachments.json";
const SIDECAR_FORMAT: &str = "stormlog.attachments";

/// What attachments are asked for; `None` is any.
#[derive(Debug, Default)]
pub(crate) struct AttachmentFilter {
    pub(crate) of: RunFilter,
    pub(crate) kind: Option<String>,
}

/// The rows, by run, session and kind.
pub(crate) fn rows(
    catalog: &mut Catalog,
    filter: &AttachmentFilter,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Vec<Record>> {
    let runs = runs::gathered(catalog, ctrl_c)?;
    let sources: FxHashMap<&Path, &Source> =
        catalog.sources.iter().rev().map(|source| (source.path(), source)).collect();
    let mut bundles: FxHashMap<&str, Vec<&Bundle>> = FxHashMap::default();
    for bundle in &catalog.bundles {
        if let Some(id) = bundle.session_id.as_deref() {
            bundles.entry(id).or_default().push(bundle);
        }
    }
    let mut rows = Vec::new();
    for run in &runs {
        let named = run.stated.get("attachments").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        rows.extend(
            named.iter().filter_map(|item| named_row(item, &run.id, "run_envelope", Path::new(&run.path))),
        );
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        for session in &run.sessions {
            rows.extend(session.sources.iter().flat_map(|path| {
                let source = sources.get(path.as_path());
                source.map(|source| source_rows(source, session, &run.id)).unwrap_or_default()
            }));
            // Two sources may know one session; its bundles are listed once.
            let id = session.summary.session_id.as_str();
            let of_session = bundles.get(id).filter(|_| seen.insert(id)).into_iter().flatten();
            rows.extend(of_session.map(|bundle| bundle_row(bundle, session, &run.id)));
        }
    }
    for path in &catalog.paths {
        sidecars(path, 0, &runs, &mut rows);
    }
    rows.retain(|row| matches(row, filter));
    let key = |row: &Record| {
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rank = row.get("rank").and_then(Value::as_i64).unwrap_or(-1);
        (text("run_id"), text("session_id"), rank, text("kind"), text("title"), text("source_path"))
    };
    rows.sort_by_key(key);
    rows.dedup();
    Ok(rows)
}

/// A row with every key, in one order; what is not told is null.
fn row(told: &[(&str, Value)]) -> Record {
    let value = |key: &str| told.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    KEYS.into_iter().map(|key| (key.to_owned(), value(key).unwrap_or_default())).collect()
}

/// An attachment somebody wrote down: a title, a kind, and where it is.
fn named_row(item: &Value, run_id: &str, source_kind: &str, folder: &Path) -> Option<Record> {
    let item = item.as_object()?;
    let get = |key: &str| item.get(key).cloned().unwrap_or_default();
    let (title, kind) = (item.get("title")?.as_str()?, item.get("kind")?.as_str()?);
    let path = item.get("path").and_then(Value::as_str).map(|path| folder.join(path).display().to_string());
    let place = item.get("url").and_then(Value::as_str).map(str::to_owned).or_else(|| path.clone())?;
    let storage = item.get("storage").cloned().unwrap_or_else(|| "reference".into());
    let mut told = vec![
        ("run_id", run_id.into()),
        ("title", title.into()),
        ("kind", kind.into()),
        ("storage", storage),
        ("path", path.into()),
        ("source_path", place.into()),
        ("source_kind", source_kind.into()),
        ("metadata", item.get("metadata").cloned().unwrap_or_else(|| json!({}))),
    ];
    let plain = ["attachment_id", "url", "session_id", "job_id", "rank", "local_rank", "world_size"];
    let rest = ["start_ns", "end_ns", "source_namespace", "source_ref"];
    told.extend(plain.into_iter().chain(rest).map(|key| (key, get(key))));
    Some(row(&told))
}

/// A file of ours that belongs to a session.
fn own_row(run_id: &str, summary: &SessionSummary, path: &Path, kinds: [&str; 3], metadata: Value) -> Record {
    let [kind, source_kind, title] = kinds;
    let path = path.display().to_string();
    row(&[
        ("run_id", run_id.into()),
        ("title", title.into()),
        ("kind", kind.into()),
        ("storage", "copy".into()),
        ("path", path.clone().into()),
        ("source_path", path.into()),
        ("source_kind", source_kind.into()),
        ("source_namespace", "stormlog".into()),
        ("session_id", summary.session_id.clone().into()),
        ("job_id", summary.job_id.clone().into()),
        ("rank", summary.rank.into()),
        ("local_rank", summary.local_rank.into()),
        ("world_size", summary.world_size.into()),
        ("start_ns", summary.started_at_ns.into()),
        ("end_ns", summary.ended_at_ns.into()),
        ("metadata", metadata),
    ])
}

fn source_rows(source: &Source, session: &FoundSession, run_id: &str) -> Vec<Record> {
    let (summary, path) = (&session.summary, source.path());
    let own = |path: &Path, kinds, metadata| own_row(run_id, summary, path, kinds, metadata);
    match source {
        Source::Sink(_) => {
            let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path };
            let manifest = folder.join("manifest.json");
            let mut rows = vec![own(
                folder,
                ["telemetry_sink", "sink", "Telemetry sink"],
                json!({"manifest_path": manifest}),
            )];
            let stated = store_json::read_value(&manifest).unwrap_or_default();
            let list = |key: &str| stated[key].as_array().map_or(&[][..], Vec::as_slice);
            for segment in
                list("segments").iter().filter(|segment| segment["session_id"] == summary.session_id)
            {
                let Some(name) = segment["filename"].as_str() else { continue };
                let facts = ["closed", "event_count", "size_bytes"]
                    .map(|key| (key.to_owned(), segment[key].clone()))
                    .into_iter()
                    .collect::<Record>();
                let kinds = ["telemetry_sink_segment", "sink_segment", name];
                rows.push(own(&folder.join(name), kinds, Value::Object(facts)));
            }
            let rollups = folder.join("rollups.json");
            if rollups.is_file() {
                let counts = json!({
                    "manifest_segment_count": list("segments").len(),
                    "manifest_session_count": list("sessions").len(),
                });
                rows.push(own(&rollups, ["telemetry_rollup", "rollup", "Telemetry rollups"], counts));
            }
            rows
        }
        Source::DiagnoseBundle(_) => {
            let facts = json!({"manifest_path": path.join("manifest.json"), "session_status": summary.status.as_str()});
            vec![own(path, ["diagnose_bundle", "diagnose_bundle", "Diagnose bundle"], facts)]
        }
        _ => {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            vec![own(path, [source.kind(), source.kind(), &name], json!({}))]
        }
    }
}

fn bundle_row(bundle: &Bundle, session: &FoundSession, run_id: &str) -> Record {
    let facts = Value::Object(ooms::to_record(bundle));
    let mut found =
        own_row(run_id, &session.summary, &bundle.path, ["oom_bundle", "oom_bundle", "OOM bundle"], facts);
    let at = ooms::created_ns(bundle);
    found.insert("start_ns".to_owned(), at.into());
    found.insert("end_ns".to_owned(), at.into());
    found
}

/// The sidecars at a path and a few levels below it. A line of one belongs to the run of its session, of its job, or to the run
/// the sidecar lies in; one that belongs to none is listed without a run.
fn sidecars(path: &Path, depth: usize, runs: &[Run], rows: &mut Vec<Record>) {
    if depth > 3 || !path.is_dir() {
        return;
    }
    if let Ok(Value::Object(stated)) = store_json::read_value(&path.join(SIDECAR))
        && stated.get("format").and_then(Value::as_str) == Some(SIDECAR_FORMAT)
    {
        let items = stated.get("attachments").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for item in items {
            let text = |key: &str| item.get(key).and_then(Value::as_str);
            let id = text("session_id");
            let of_session = |run: &&Run| {
                id.is_some_and(|id| run.sessions.iter().any(|session| session.summary.session_id == id))
            };
            let of_job = |run: &&Run| {
                let job = text("job_id");
                job.is_some() && run.sessions.iter().any(|session| session.summary.job_id.as_deref() == job)
            };
            let around = |run: &&Run| path.starts_with(&run.path) && !run.path.is_empty();
            let run = runs
                .iter()
                .find(of_session)
                .or_else(|| runs.iter().find(of_job))
                .or_else(|| runs.iter().find(around));
            let run_id = text("run_id").or(run.map(|run| run.id.as_str())).unwrap_or_default();
            rows.extend(named_row(item, run_id, "attachment_sidecar", path));
        }
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        sidecars(&entry.path(), depth + 1, runs, rows);
    }
}

fn matches(row: &Record, filter: &AttachmentFilter) -> bool {
    let is = |wanted: &Option<String>, key: &str| {
        wanted.as_deref().is_none_or(|wanted| row.get(key).and_then(Value::as_str) == Some(wanted))
    };
    is(&filter.kind, "kind")
        && is(&filter.of.run_id, "run_id")
        && is(&filter.of.session_id, "session_id")
        && is(&filter.of.job_id, "job_id")
        && is(&filter.of.source_namespace, "source_namespace")
        && is(&filter.of.source_ref, "source_ref")
        && filter.of.rank.is_none_or(|rank| row.get("rank").and_then(Value::as_i64) == Some(rank))
}
