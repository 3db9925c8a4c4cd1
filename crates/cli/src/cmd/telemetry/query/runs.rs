//! `query runs`: what was started together. A run says so itself (`stormlog_run.json`, or the `run.json` of `stormlog run`); other
//! sessions belong together by their job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_catalog::run::layout::RUN_FILE;
use stormlog_model::Record;
use stormlog_store::run_record::read_run;
use stormlog_store::{FoundSession, json};

use super::catalog::Catalog;
use crate::exit::CtrlC;

pub(crate) const COLUMNS: [&str; 14] = [
    "run_id",
    "explicit",
    "title",
    "job_id",
    "started_at_ns",
    "ended_at_ns",
    "session_count",
    "attachment_count",
    "source_kind",
    "source_path",
    "source_namespace",
    "source_ref",
    "sessions",
    "ranks",
];

/// What runs are asked for; `None` is any.
#[derive(Debug, Default)]
pub(crate) struct RunFilter {
    pub(crate) run_id: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) rank: Option<i64>,
    pub(crate) source_namespace: Option<String>,
    pub(crate) source_ref: Option<String>,
}

/// What is kept of a run's own file. Its environment and its processes are most of it, and no row has them.
const KEPT: [&str; 13] = [
    "run_id",
    "title",
    "description",
    "command",
    "job_id",
    "started_at_ns",
    "ended_at_ns",
    "source_namespace",
    "source_ref",
    "sessions",
    "attachments",
    "tags",
    "metadata",
];

/// A run while its sessions are gathered.
pub(crate) struct Run {
    pub(crate) id: String,
    kind: &'static str,
    pub(crate) path: String,
    /// What the run says about itself; empty for one that was inferred.
    pub(crate) stated: Record,
    pub(crate) sessions: Vec<FoundSession>,
}

/// The rows, newest first.
pub(crate) fn rows(catalog: &mut Catalog, filter: &RunFilter, ctrl_c: &CtrlC) -> anyhow::Result<Vec<Record>> {
    let runs = gathered(catalog, ctrl_c)?;
    let mut rows: Vec<Record> =
        runs.into_iter().map(Run::into_record).filter(|row| matches(row, filter)).collect();
    rows.sort_by(|a, b| {
        let key = |row: &Record| (row["started_at_ns"].as_i64().unwrap_or(-1), row["run_id"].to_string());
        key(b).cmp(&key(a))
    });
    Ok(rows)
}

/// Every run with its sessions: those that say so, then those that were inferred.
pub(crate) fn gathered(catalog: &mut Catalog, ctrl_c: &CtrlC) -> anyhow::Result<Vec<Run>> {
    let mut stated: Vec<Run> = Vec::new();
    for path in &catalog.paths {
        gather(path, 0, &mut stated);
    }
    let owners = Owners::of(&stated);
    let mut inferred: BTreeMap<String, Run> = BTreeMap::new();
    for (_, session) in catalog.sessions(ctrl_c)? {
        let summary = &session.summary;
        if let Some(run) = owners.run_of(session).and_then(|number| stated.get_mut(number)) {
            run.sessions.push(session.clone());
            continue;
        }
        let id = match &summary.job_id {
            Some(job) => format!("job:{job}"),
            None => format!("session:{}", summary.session_id),
        };
        let run = inferred.entry(id.clone()).or_insert_with(|| Run {
            id,
            kind: "implicit_run",
            path: session.path.display().to_string(),
            stated: Record::new(),
            sessions: Vec::new(),
        });
        run.sessions.push(session.clone());
    }
    Ok(stated.into_iter().chain(inferred.into_values()).collect())
}

/// Runs that say so, at a path and a few levels below.
fn gather(path: &Path, depth: usize, runs: &mut Vec<Run>) {
    if depth > 3 || !path.is_dir() {
        return;
    }
    for (file, kind) in [("stormlog_run.json", "run_envelope"), (RUN_FILE, "run_directory")] {
        let stated = match file {
            // What the run of another version says is not ours to interpret; the catalog names it.
            RUN_FILE => match read_run(path) {
                Ok(stated) => stated,
                Err(_) => return,
            },
            _ => json::read_value(&path.join(file)).ok().and_then(|value| match value {
                Value::Object(stated) => Some(stated),
                _ => None,
            }),
        };
        let Some(mut stated) = stated else { continue };
        stated.retain(|key, _| KEPT.contains(&key.as_str()));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let id = stated.get("run_id").and_then(Value::as_str).map_or(name, str::to_owned);
        runs.push(Run { id, kind, path: path.display().to_string(), stated, sessions: Vec::new() });
        return;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        gather(&entry.path(), depth + 1, runs);
    }
}

/// Which run a session belongs to: the first that lists it or has it in its directory. Looked up, not searched for: each of
/// 10,000 sessions against each of 10,000 runs took 40 s.
struct Owners {
    by_session: FxHashMap<String, usize>,
    by_directory: FxHashMap<PathBuf, usize>,
}

impl Owners {
    fn of(runs: &[Run]) -> Self {
        let mut owners = Owners { by_session: FxHashMap::default(), by_directory: FxHashMap::default() };
        for (number, run) in runs.iter().enumerate() {
            let listed = run.stated.get("sessions").and_then(Value::as_array);
            for entry in listed.into_iter().flatten() {
                if let Some(id) = entry.as_str().or_else(|| entry.get("session_id").and_then(Value::as_str)) {
                    owners.by_session.entry(id.to_owned()).or_insert(number);
                }
            }
            owners.by_directory.entry(PathBuf::from(&run.path)).or_insert(number);
        }
        owners
    }

    fn run_of(&self, session: &FoundSession) -> Option<usize> {
        let listed = self.by_session.get(&session.summary.session_id).copied();
        let around = session.path.ancestors().filter_map(|path| self.by_directory.get(path).copied());
        around.chain(listed).min()
    }
}

impl Run {
    fn into_record(mut self) -> Record {
        self.sessions
            .sort_by_key(|session| (session.summary.started_at_ns, session.summary.session_id.clone()));
        let summaries = || self.sessions.iter().map(|session| &session.summary);
        let stated = |key: &str| self.stated.get(key).cloned().filter(|value| !value.is_null());
        let text = |key: &str| stated(key).unwrap_or(Value::Null);
        let mut jobs: Vec<&String> = summaries().filter_map(|summary| summary.job_id.as_ref()).collect();
        jobs.dedup();
        let job = if let [only] = jobs.as_slice() { Some((*only).clone()) } else { None };
        let first = summaries().map(|summary| summary.session_id.clone()).next().unwrap_or_default();
        let title = match (&job, self.kind) {
            (_, "run_envelope" | "run_directory") => stated("title").unwrap_or_else(|| text("command")),
            (Some(job), _) => format!("Distributed job {job}").into(),
            (None, _) => format!("Session {first}").into(),
        };
        let mut ids: Vec<String> = summaries().map(|summary| summary.session_id.clone()).collect();
        ids.dedup();
        let mut ranks: Vec<i64> = summaries().map(|summary| summary.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let attachments = self.stated.get("attachments").and_then(Value::as_array).map_or(0, Vec::len);
        let started = summaries().map(|summary| summary.started_at_ns).min();
        let ended = summaries().map(|summary| summary.ended_at_ns).collect::<Option<Vec<i64>>>();
        let ended = ended.and_then(|ends| ends.into_iter().max());
        let mut row = Record::new();
        let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
        put("run_id", self.id.as_str().into());
        put("explicit", (self.kind != "implicit_run").into());
        put("title", title);
        put("description", text("description"));
        put("job_id", stated("job_id").unwrap_or_else(|| job.clone().into()));
        put("started_at_ns", stated("started_at_ns").unwrap_or_else(|| started.into()));
        put("ended_at_ns", stated("ended_at_ns").unwrap_or_else(|| ended.into()));
        put("source_path", self.path.as_str().into());
        put("source_kind", self.kind.into());
        put("source_namespace", text("source_namespace"));
        put("source_ref", text("source_ref"));
        put("session_count", ids.len().into());
        put("attachment_count", attachments.into());
        put("sessions", ids.into());
        put("ranks", ranks.into());
        put("tags", stated("tags").unwrap_or_else(|| Value::Array(Vec::new())));
        put("metadata", stated("metadata").unwrap_or_else(|| Value::Object(Record::new())));
        row
    }
}

fn matches(row: &Record, filter: &RunFilter) -> bool {
    let is = |wanted: &Option<String>, key: &str| {
        wanted.as_deref().is_none_or(|wanted| row.get(key).and_then(Value::as_str) == Some(wanted))
    };
    let holds = |key: &str, wanted: &dyn Fn(&Value) -> bool| {
        row.get(key).and_then(Value::as_array).is_some_and(|items| items.iter().any(wanted))
    };
    is(&filter.run_id, "run_id")
        && is(&filter.job_id, "job_id")
        && is(&filter.source_namespace, "source_namespace")
        && is(&filter.source_ref, "source_ref")
        && filter.session_id.as_deref().is_none_or(|id| holds("sessions", &|item| item == id))
        && filter.rank.is_none_or(|rank| holds("ranks", &|item| *item == rank))
}
