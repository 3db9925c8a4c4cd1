//! Which run a session, a job or a source belongs to, where only one run claims it.

use rustc_hash::FxHashMap;

use super::runs::RunContext;
use super::sessions::SessionRow;
use super::sources::quoted;

/// The runs by what belongs to them.
#[derive(Debug, Default)]
pub struct RunLinks {
    /// By session.
    pub sessions: FxHashMap<String, String>,
    /// By job.
    pub jobs: FxHashMap<String, String>,
    /// By namespace and reference of a source.
    pub sources: FxHashMap<(String, String), String>,
    /// What several runs claim.
    pub conflicts: Vec<RunConflict>,
}

/// An identity that more than one run claims.
#[derive(Debug, Clone)]
pub struct RunConflict {
    /// `session_id`, `job_id` or `source_ref`.
    pub kind: &'static str,
    /// The identity.
    pub value: String,
    /// The runs, sorted.
    pub runs: Vec<String>,
}

impl RunConflict {
    /// The sentence that is shown.
    pub fn message(&self) -> String {
        format!("ambiguous run {} {}: {}", self.kind, quoted(&self.value), self.runs.join(", "))
    }
}

/// What one run claims.
#[derive(Debug, Clone, Default)]
pub struct RunClaims {
    /// The run.
    pub run_id: String,
    /// Its job.
    pub job_id: Option<String>,
    /// Namespace and reference of its source.
    pub source: Option<(String, String)>,
    /// Its sessions, each with its job.
    pub sessions: Vec<(String, Option<String>)>,
}

/// Claims in the order they were made, each with its runs.
struct Claims<K> {
    order: Vec<K>,
    runs: FxHashMap<K, Vec<String>>,
}

impl<K: Clone + Eq + std::hash::Hash> Claims<K> {
    fn new() -> Self {
        Claims { order: Vec::new(), runs: FxHashMap::default() }
    }

    fn add(&mut self, key: K, run: &str) {
        let runs = self.runs.entry(key.clone()).or_default();
        if runs.is_empty() {
            self.order.push(key);
        }
        if !runs.iter().any(|known| known == run) {
            runs.push(run.to_owned());
        }
    }

    fn settle(
        mut self,
        kind: &'static str,
        name: impl Fn(&K) -> String,
        conflicts: &mut Vec<RunConflict>,
    ) -> FxHashMap<K, String> {
        let mut once = FxHashMap::default();
        for key in self.order {
            let mut runs = self.runs.remove(&key).unwrap_or_default();
            if runs.len() > 1 {
                runs.sort();
                conflicts.push(RunConflict { kind, value: name(&key), runs });
            } else if let Some(run) = runs.pop() {
                once.insert(key, run);
            }
        }
        once
    }
}

impl RunLinks {
    pub(super) fn of_contexts(contexts: &[RunContext], rows: &[SessionRow]) -> Self {
        RunLinks::of(contexts.iter().map(|run| {
            RunClaims {
                run_id: run.facts.run_id.clone(),
                job_id: run.facts.job_id.clone(),
                source: run.facts.source_namespace.clone().zip(run.facts.source_ref.clone()),
                sessions: run
                    .members
                    .iter()
                    .map(|at| (rows[*at].summary.session_id.clone(), rows[*at].summary.job_id.clone()))
                    .collect(),
            }
        }))
    }

    /// What each run alone claims; what several do belongs to none.
    pub fn of(runs: impl IntoIterator<Item = RunClaims>) -> Self {
        let (mut sessions, mut jobs, mut sources) = (Claims::new(), Claims::new(), Claims::new());
        for run in runs {
            if let Some(job) = run.job_id {
                jobs.add(job, &run.run_id);
            }
            if let Some(source) = run.source {
                sources.add(source, &run.run_id);
            }
            for (session_id, job) in run.sessions {
                sessions.add(session_id, &run.run_id);
                if let Some(job) = job {
                    jobs.add(job, &run.run_id);
                }
            }
        }
        let mut conflicts = Vec::new();
        RunLinks {
            sessions: sessions.settle("session_id", String::clone, &mut conflicts),
            jobs: jobs.settle("job_id", String::clone, &mut conflicts),
            sources: sources.settle("source_ref", |(a, b)| format!("{a}:{b}"), &mut conflicts),
            conflicts,
        }
    }
}

/// Which run an identity belongs to: that of files, or an index of the caller.
pub trait RunIndex {
    /// The run that alone claims a source (namespace, reference).
    fn of_source(&self, source: (&str, &str)) -> Option<String>;
    /// The run that alone claims a session.
    fn of_session(&self, session_id: &str) -> Option<String>;
    /// The run that alone claims a job.
    fn of_job(&self, job_id: &str) -> Option<String>;

    /// The run of something that does not name one: by its source, its session, its job.
    fn of_identity(
        &self,
        source: Option<(&str, &str)>,
        session_id: Option<&str>,
        job_id: Option<&str>,
    ) -> Option<String> {
        let by_source = source.and_then(|source| self.of_source(source));
        let by_session = || session_id.and_then(|id| self.of_session(id));
        by_source.or_else(by_session).or_else(|| job_id.and_then(|job| self.of_job(job)))
    }
}

impl RunIndex for RunLinks {
    fn of_source(&self, (namespace, reference): (&str, &str)) -> Option<String> {
        self.sources.get(&(namespace.to_owned(), reference.to_owned())).cloned()
    }

    fn of_session(&self, session_id: &str) -> Option<String> {
        self.sessions.get(session_id).cloned()
    }

    fn of_job(&self, job_id: &str) -> Option<String> {
        self.jobs.get(job_id).cloned()
    }
}
