//! Which run a session, a job or a source belongs to, where only one run claims it.

use rustc_hash::FxHashMap;

use super::runs::RunContext;
use super::sessions::SessionRow;
use super::sources::quoted;

/// The runs by what belongs to them.
#[derive(Debug, Default)]
pub(super) struct Links {
    sessions: FxHashMap<String, String>,
    jobs: FxHashMap<String, String>,
    sources: FxHashMap<(String, String), String>,
    /// What several runs claim, a sentence each.
    pub(super) conflicts: Vec<String>,
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
        kind: &str,
        name: impl Fn(&K) -> String,
        conflicts: &mut Vec<String>,
    ) -> FxHashMap<K, String> {
        let mut once = FxHashMap::default();
        for key in self.order {
            let mut runs = self.runs.remove(&key).unwrap_or_default();
            if runs.len() > 1 {
                runs.sort();
                conflicts.push(format!("ambiguous run {kind} {}: {}", quoted(&name(&key)), runs.join(", ")));
            } else if let Some(run) = runs.pop() {
                once.insert(key, run);
            }
        }
        once
    }
}

impl Links {
    pub(super) fn of(contexts: &[RunContext], rows: &[SessionRow]) -> Self {
        let (mut sessions, mut jobs, mut sources) = (Claims::new(), Claims::new(), Claims::new());
        for run in contexts {
            if let Some(job) = &run.job_id {
                jobs.add(job.clone(), &run.run_id);
            }
            if let (Some(namespace), Some(reference)) = (&run.source_namespace, &run.source_ref) {
                sources.add((namespace.clone(), reference.clone()), &run.run_id);
            }
            for row in run.members.iter().map(|at| &rows[*at].summary) {
                sessions.add(row.session_id.clone(), &run.run_id);
                if let Some(job) = &row.job_id {
                    jobs.add(job.clone(), &run.run_id);
                }
            }
        }
        let mut conflicts = Vec::new();
        Links {
            sessions: sessions.settle("session_id", String::clone, &mut conflicts),
            jobs: jobs.settle("job_id", String::clone, &mut conflicts),
            sources: sources.settle("source_ref", |(a, b)| format!("{a}:{b}"), &mut conflicts),
            conflicts,
        }
    }

    /// The run of a session, or of its job.
    pub(super) fn run_of(&self, session_id: Option<&str>, job_id: Option<&str>) -> Option<&str> {
        let by_session = session_id.and_then(|id| self.sessions.get(id));
        by_session.or_else(|| job_id.and_then(|job| self.jobs.get(job))).map(String::as_str)
    }

    /// The run of a source.
    pub(super) fn run_of_source(&self, namespace: Option<&str>, reference: Option<&str>) -> Option<&str> {
        let key = (namespace?.to_owned(), reference?.to_owned());
        self.sources.get(&key).map(String::as_str)
    }
}
