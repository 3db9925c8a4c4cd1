//! Runs as rows: what was started together.
//!
//! A run is what a `stormlog_run.json` describes, what `stormlog run` recorded in one directory, or else the sessions of one job. A session
//! belongs to the files that name it, else to the run directory it is in, else to its job.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use stormlog_model::Record;

use super::envelope::RunEnvelope;
use super::links::RunLinks;
use super::sessions::SessionRow;
use super::sources::RunDirectory;
use super::store::Store;
use super::{QueryError, is_wanted, record};

/// Which runs; `None` is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct RunFilter {
    pub run_id: Option<String>,
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
}

/// What is known of a run; `explicit` where it is described or recorded as one.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct RunFacts {
    pub run_id: String,
    pub explicit: bool,
    pub title: Option<String>,
    pub description: Option<String>,
    pub job_id: Option<String>,
    pub started_at_ns: Option<i64>,
    pub ended_at_ns: Option<i64>,
    pub source_path: String,
    pub source_kind: &'static str,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub tags: Vec<String>,
    pub metadata: Record,
}

/// One run with what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct RunRow {
    /// What is known of it.
    pub facts: RunFacts,
    /// Number of its attachments.
    pub attachment_count: u64,
    /// Its sessions, in time order.
    pub sessions: Vec<String>,
    /// Their ranks, each once.
    pub ranks: Vec<i64>,
}

/// A session as far as runs are made of it.
#[allow(missing_docs, reason = "the names are those of a session's row")]
pub trait RunSession {
    fn session_id(&self) -> &str;
    fn job_id(&self) -> Option<&str>;
    fn started_at_ns(&self) -> i64;
    fn ended_at_ns(&self) -> Option<i64>;
    fn source_path(&self) -> &str;
}

impl RunSession for SessionRow {
    fn session_id(&self) -> &str {
        &self.summary.session_id
    }

    fn job_id(&self) -> Option<&str> {
        self.summary.job_id.as_deref()
    }

    fn started_at_ns(&self) -> i64 {
        self.summary.started_at_ns
    }

    fn ended_at_ns(&self) -> Option<i64> {
        self.summary.ended_at_ns
    }

    fn source_path(&self) -> &str {
        &self.source_path
    }
}

/// A run with the places of its sessions among the sessions it was made of.
#[derive(Debug)]
pub struct RunContext {
    /// What is known of it.
    pub facts: RunFacts,
    /// In time order.
    pub members: Vec<usize>,
}

impl RunRow {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let facts = &self.facts;
        record([
            ("run_id", facts.run_id.as_str().into()),
            ("explicit", facts.explicit.into()),
            ("title", facts.title.as_deref().into()),
            ("description", facts.description.as_deref().into()),
            ("job_id", facts.job_id.as_deref().into()),
            ("started_at_ns", facts.started_at_ns.into()),
            ("ended_at_ns", facts.ended_at_ns.into()),
            ("source_path", facts.source_path.as_str().into()),
            ("source_kind", facts.source_kind.into()),
            ("source_namespace", facts.source_namespace.as_deref().into()),
            ("source_ref", facts.source_ref.as_deref().into()),
            ("session_count", self.sessions.len().into()),
            ("attachment_count", self.attachment_count.into()),
            ("sessions", self.sessions.clone().into()),
            ("ranks", self.ranks.clone().into()),
            ("tags", facts.tags.clone().into()),
            ("metadata", Value::Object(facts.metadata.clone())),
        ])
    }
}

impl RunFilter {
    /// Whether a run is requested.
    pub fn matches(&self, row: &RunRow) -> bool {
        let facts = &row.facts;
        is_wanted(&self.run_id, Some(&facts.run_id))
            && self.session_id.as_ref().is_none_or(|id| row.sessions.contains(id))
            && is_wanted(&self.job_id, facts.job_id.as_deref())
            && self.rank.is_none_or(|rank| row.ranks.contains(&rank))
            && is_wanted(&self.source_namespace, facts.source_namespace.as_deref())
            && is_wanted(&self.source_ref, facts.source_ref.as_deref())
    }
}

impl Store {
    /// The runs, newest first.
    pub fn runs(&mut self, filter: &RunFilter) -> Result<Vec<RunRow>, QueryError> {
        let sessions = self.session_rows()?;
        let contexts = self.contexts(&sessions);
        let mut counts: FxHashMap<String, u64> = FxHashMap::default();
        let links = RunLinks::of_contexts(&contexts, &sessions);
        self.each_attachment(&contexts, &links, &sessions, &mut |row| {
            *counts.entry(row.run_id).or_default() += 1
        })?;
        let row = |context: RunContext| {
            let of = |at: &usize| &sessions[*at].summary;
            let mut ranks: Vec<i64> = context.members.iter().map(|at| of(at).rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            RunRow {
                attachment_count: counts.get(&context.facts.run_id).copied().unwrap_or(0),
                sessions: context.members.iter().map(|at| of(at).session_id.clone()).collect(),
                ranks,
                facts: context.facts,
            }
        };
        let mut rows: Vec<RunRow> = contexts.into_iter().map(row).filter(|row| filter.matches(row)).collect();
        rows.sort_by(|a, b| {
            let key = |row: &RunRow| (row.facts.started_at_ns.unwrap_or(-1), row.facts.run_id.clone());
            key(b).cmp(&key(a))
        });
        Ok(rows)
    }

    pub(super) fn contexts(&self, rows: &[SessionRow]) -> Vec<RunContext> {
        contexts_of(&self.catalog.envelopes, &self.catalog.runs, rows)
    }
}

/// The runs that describe themselves, in their order, then those of the sessions that none of them has.
pub fn run_contexts<S: RunSession>(envelopes: &[RunEnvelope], rows: &[S]) -> Vec<RunContext> {
    contexts_of(envelopes, &[], rows)
}

/// The runs that describe themselves, those of run directories, then those of the sessions that none of them has.
fn contexts_of<S: RunSession>(
    envelopes: &[RunEnvelope],
    directories: &[RunDirectory],
    rows: &[S],
) -> Vec<RunContext> {
    let finder = Finder::of(rows);
    let mut contexts: Vec<RunContext> =
        envelopes.iter().map(|envelope| of_envelope(envelope, rows, &finder)).collect();
    let named = |contexts: &[RunContext]| -> FxHashSet<String> {
        let members = contexts.iter().flat_map(|context| &context.members);
        members.map(|at| rows[*at].session_id().to_owned()).collect()
    };
    let mut taken = named(&contexts);
    let mut ids: FxHashSet<String> = contexts.iter().map(|context| context.facts.run_id.clone()).collect();
    // Looked up, not searched for: each of 10,000 sessions against each of 10,000 runs took 40 s.
    let by_path: FxHashMap<&Path, usize> =
        directories.iter().enumerate().map(|(at, run)| (run.path.as_path(), at)).collect();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); directories.len()];
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| !taken.contains(row.session_id())) {
        let around = Path::new(row.source_path()).ancestors().find_map(|above| by_path.get(above));
        if let Some(run) = around {
            members[*run].push(at);
        }
    }
    for (run, members) in directories.iter().zip(members) {
        taken.extend(members.iter().map(|at| rows[*at].session_id().to_owned()));
        let context = of_directory(run, rows, members, &mut ids);
        contexts.push(context);
    }
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let mut group_of: FxHashMap<String, usize> = FxHashMap::default();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| !taken.contains(row.session_id())) {
        let base = match row.job_id() {
            Some(job) => format!("job:{job}"),
            None => format!("session:{}", row.session_id()),
        };
        let group = *group_of.entry(base.clone()).or_insert_with(|| {
            groups.push((base, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(at);
    }
    for (base, mut members) in groups {
        in_time(&mut members, rows);
        contexts.push(implicit(unused(base, &mut ids), rows, members));
    }
    contexts
}

/// Session rows by id and by job.
struct Finder<'a> {
    sessions: FxHashMap<&'a str, usize>,
    jobs: FxHashMap<&'a str, Vec<usize>>,
}

impl<'a> Finder<'a> {
    fn of<S: RunSession>(rows: &'a [S]) -> Self {
        let mut found = Finder { sessions: FxHashMap::default(), jobs: FxHashMap::default() };
        for (at, row) in rows.iter().enumerate() {
            // A session that is in several sources is a member once.
            found.sessions.entry(row.session_id()).or_insert(at);
            if let Some(job) = row.job_id() {
                found.jobs.entry(job).or_default().push(at);
            }
        }
        found
    }
}

fn of_envelope<S: RunSession>(envelope: &RunEnvelope, rows: &[S], finder: &Finder<'_>) -> RunContext {
    let wanted: FxHashSet<&str> =
        envelope.sessions.iter().map(|session| session.session_id.as_str()).collect();
    let mut members: Vec<usize> = wanted.iter().filter_map(|id| finder.sessions.get(id).copied()).collect();
    if members.is_empty() {
        let of_job = envelope.job_id.as_deref().and_then(|job| finder.jobs.get(job));
        members = of_job.cloned().unwrap_or_default();
    }
    in_time(&mut members, rows);
    let facts = RunFacts {
        run_id: envelope.run_id.clone(),
        explicit: true,
        title: envelope.title.clone(),
        description: envelope.description.clone(),
        job_id: envelope.job_id.clone().or_else(|| common_job(rows, &members)),
        started_at_ns: envelope.started_at_ns.or_else(|| first_start(rows, &members)),
        ended_at_ns: envelope.ended_at_ns.or_else(|| last_end(rows, &members)),
        source_path: envelope.path.display().to_string(),
        source_kind: "run_envelope",
        source_namespace: envelope.source_namespace.clone(),
        source_ref: envelope.source_ref.clone(),
        tags: envelope.tags.clone(),
        metadata: envelope.metadata.clone(),
    };
    RunContext { facts, members }
}

fn of_directory<S: RunSession>(
    run: &RunDirectory,
    rows: &[S],
    mut members: Vec<usize>,
    ids: &mut FxHashSet<String>,
) -> RunContext {
    in_time(&mut members, rows);
    let name = run.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let facts = RunFacts {
        run_id: unused(name, ids),
        explicit: true,
        title: (!run.head.command.is_empty()).then(|| run.head.command.join(" ")),
        job_id: common_job(rows, &members),
        started_at_ns: run.head.started_at_ns.or_else(|| first_start(rows, &members)),
        ended_at_ns: run.head.ended_at_ns.or_else(|| last_end(rows, &members)),
        source_path: run.path.display().to_string(),
        source_kind: "run_directory",
        ..RunFacts::default()
    };
    RunContext { facts, members }
}

fn implicit<S: RunSession>(run_id: String, rows: &[S], members: Vec<usize>) -> RunContext {
    let job_id = common_job(rows, &members);
    let first = members.first().map(|at| &rows[*at]);
    let title = match (&job_id, first) {
        (Some(job), _) => Some(format!("Distributed job {job}")),
        (None, first) => first.map(|row| format!("Session {}", row.session_id())),
    };
    let facts = RunFacts {
        run_id,
        explicit: false,
        title,
        job_id,
        started_at_ns: first_start(rows, &members),
        ended_at_ns: last_end(rows, &members),
        source_path: first.map(|row| row.source_path().to_owned()).unwrap_or_default(),
        source_kind: "implicit_run",
        ..RunFacts::default()
    };
    RunContext { facts, members }
}

/// An id that no run has yet.
fn unused(base: String, taken: &mut FxHashSet<String>) -> String {
    let mut candidate = base.clone();
    let mut suffix = 0;
    while !taken.insert(candidate.clone()) {
        suffix += 1;
        candidate =
            if suffix == 1 { format!("implicit:{base}") } else { format!("implicit:{base}:{suffix}") };
    }
    candidate
}

fn in_time<S: RunSession>(members: &mut [usize], rows: &[S]) {
    members.sort_by_key(|at| (rows[*at].started_at_ns(), rows[*at].session_id(), *at));
}

fn common_job<S: RunSession>(rows: &[S], members: &[usize]) -> Option<String> {
    let mut jobs = members.iter().filter_map(|at| rows[*at].job_id());
    let first = jobs.next()?;
    jobs.all(|job| job == first).then(|| first.to_owned())
}

fn first_start<S: RunSession>(rows: &[S], members: &[usize]) -> Option<i64> {
    members.iter().map(|at| rows[*at].started_at_ns()).min()
}

/// The last end, once all have ended.
fn last_end<S: RunSession>(rows: &[S], members: &[usize]) -> Option<i64> {
    let ends: Option<Vec<i64>> = members.iter().map(|at| rows[*at].ended_at_ns()).collect();
    ends?.into_iter().max()
}
