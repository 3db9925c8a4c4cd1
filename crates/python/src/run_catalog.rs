//! The catalog's rules about runs for objects of the caller: `stormlog.run_catalog` and `stormlog.timeline_markers`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use stormlog_catalog::query::{
    self, LANDMARK_TYPES, RUN_ENVELOPE_FILE, RUN_ENVELOPE_FORMAT, RUN_ENVELOPE_VERSION, RunClaims,
    RunEnvelope, RunLinks, RunSession, SessionRef,
};

use crate::record::{Foreign, free_form, object_to_python};

/// A session of the caller.
#[derive(FromPyObject)]
struct GivenSession {
    session_id: String,
    job_id: Option<String>,
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    source_path: String,
}

impl RunSession for GivenSession {
    fn session_id(&self) -> &str {
        &self.session_id
    }

    fn job_id(&self) -> Option<&str> {
        self.job_id.as_deref()
    }

    fn started_at_ns(&self) -> i64 {
        self.started_at_ns
    }

    fn ended_at_ns(&self) -> Option<i64> {
        self.ended_at_ns
    }

    fn source_path(&self) -> &str {
        &self.source_path
    }
}

/// A session that an envelope names, or a session of a context.
#[derive(FromPyObject)]
struct GivenMember {
    session_id: String,
    job_id: Option<String>,
}

/// A `CatalogRunEnvelope` of the caller, as far as a run is made of it.
#[derive(FromPyObject)]
struct GivenEnvelope {
    run_id: String,
    path: PathBuf,
    job_id: Option<String>,
    started_at_ns: Option<i64>,
    ended_at_ns: Option<i64>,
    sessions: Vec<GivenMember>,
}

/// A `RunContext` of the caller, as far as it claims something.
#[derive(FromPyObject)]
struct GivenContext {
    run_id: String,
    job_id: Option<String>,
    source_namespace: Option<String>,
    source_ref: Option<String>,
    sessions: Vec<GivenMember>,
}

/// A run made of sessions; `members` are their places.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct RunContext {
    run_id: String,
    explicit: bool,
    title: Option<String>,
    job_id: Option<String>,
    started_at_ns: Option<i64>,
    ended_at_ns: Option<i64>,
    source_path: String,
    source_kind: &'static str,
    members: Vec<usize>,
}

/// An identity that more than one run claims.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
#[derive(Clone)]
struct RunConflict {
    kind: &'static str,
    value: String,
    runs: Vec<String>,
    message: String,
}

/// Which run an identity belongs to, where only one claims it.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct RunIdentities {
    sessions: Py<PyDict>,
    jobs: Py<PyDict>,
    sources: Py<PyDict>,
    conflicts: Vec<RunConflict>,
}

/// What an event is on a timeline.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct Landmark {
    kind: &'static str,
    severity: &'static str,
    label: String,
}

/// The runs that describe themselves, in their order, then those of the sessions that none of them has.
#[pyfunction]
fn run_contexts(sessions: Vec<GivenSession>, envelopes: Vec<GivenEnvelope>) -> Vec<RunContext> {
    let named = |given: GivenMember| SessionRef { session_id: given.session_id, ..SessionRef::default() };
    let envelopes: Vec<RunEnvelope> = envelopes
        .into_iter()
        .map(|given| RunEnvelope {
            run_id: given.run_id,
            path: given.path,
            job_id: given.job_id.filter(|job| !job.is_empty()),
            started_at_ns: given.started_at_ns,
            ended_at_ns: given.ended_at_ns,
            sessions: given.sessions.into_iter().map(named).collect(),
            ..RunEnvelope::default()
        })
        .collect();
    let contexts = query::run_contexts(&envelopes, &sessions).into_iter().map(|context| {
        let facts = context.facts;
        RunContext {
            run_id: facts.run_id,
            explicit: facts.explicit,
            title: facts.title,
            job_id: facts.job_id,
            started_at_ns: facts.started_at_ns,
            ended_at_ns: facts.ended_at_ns,
            source_path: facts.source_path,
            source_kind: facts.source_kind,
            members: context.members,
        }
    });
    contexts.collect()
}

/// Which run each session, job and source belongs to.
#[pyfunction]
fn run_identities(py: Python<'_>, contexts: Vec<GivenContext>) -> PyResult<RunIdentities> {
    let links = RunLinks::of(contexts.into_iter().map(|given| RunClaims {
        run_id: given.run_id,
        job_id: given.job_id,
        source: given.source_namespace.zip(given.source_ref),
        sessions: given.sessions.into_iter().map(|member| (member.session_id, member.job_id)).collect(),
    }));
    let conflicts = links.conflicts.into_iter().map(|conflict| RunConflict {
        message: conflict.message(),
        kind: conflict.kind,
        value: conflict.value,
        runs: conflict.runs,
    });
    let (sessions, jobs, sources) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    links.sessions.into_iter().try_for_each(|(session, run)| sessions.set_item(session, run))?;
    links.jobs.into_iter().try_for_each(|(job, run)| jobs.set_item(job, run))?;
    links.sources.into_iter().try_for_each(|(source, run)| sources.set_item(source, run))?;
    let conflicts = conflicts.collect();
    Ok(RunIdentities {
        sessions: sessions.unbind(),
        jobs: jobs.unbind(),
        sources: sources.unbind(),
        conflicts,
    })
}

/// The object form of what a `stormlog_run.json` states; `None` if anything in it is missing, unknown or of the wrong kind.
#[pyfunction]
fn run_envelope<'py>(
    py: Python<'py>,
    payload: &Bound<'py, PyAny>,
    path: PathBuf,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let payload = Value::Object(free_form(payload, Foreign::Opaque)?);
    RunEnvelope::of(&payload, &path).map(|found| object_to_python(py, &found.to_record())).transpose()
}

/// Whether a mapping calls itself a run of the version we know.
#[pyfunction]
fn is_run_envelope(payload: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(RunEnvelope::is_one(&Value::Object(free_form(payload, Foreign::Opaque)?)))
}

/// What an event of that type is on a timeline, if anything.
#[pyfunction]
fn landmark(
    event_type: &str,
    has_oom_mark: bool,
    oom_reason: Option<&str>,
    context: Option<&str>,
) -> Option<Landmark> {
    let query::Landmark { kind, severity, label } =
        query::landmark(event_type, has_oom_mark, oom_reason, context)?;
    Some(Landmark { kind, severity, label })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LANDMARK_TYPES", LANDMARK_TYPES)?;
    module.add("RUN_ENVELOPE_FILE", RUN_ENVELOPE_FILE)?;
    module.add("RUN_ENVELOPE_FORMAT", RUN_ENVELOPE_FORMAT)?;
    module.add("RUN_ENVELOPE_VERSION", RUN_ENVELOPE_VERSION)?;
    module.add_class::<RunContext>()?;
    module.add_class::<RunConflict>()?;
    module.add_class::<RunIdentities>()?;
    module.add_class::<Landmark>()?;
    module.add_function(wrap_pyfunction!(run_contexts, module)?)?;
    module.add_function(wrap_pyfunction!(run_identities, module)?)?;
    module.add_function(wrap_pyfunction!(run_envelope, module)?)?;
    module.add_function(wrap_pyfunction!(is_run_envelope, module)?)?;
    module.add_function(wrap_pyfunction!(landmark, module)?)
}
