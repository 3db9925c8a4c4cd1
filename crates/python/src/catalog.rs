//! `stormlog.query` and `stormlog.issues` over the catalog: questions as keyword arguments, rows as dictionaries of named values.
//!
//! Rows cross as the object form the commands print, so that both front-ends show the same answer; the dataclasses of 0.4.3 are made of them in
//! Python. Events cross as an [`EventBuffer`]. The interpreter is released while files are read.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stormlog_catalog::query::{
    AttachmentFilter, BundleFilter, BundleRow, CorrelationFilter, EventFilter, EventOrigin, IssueFilter,
    NamedFilter, Options, QueryError, RunFilter, SessionFilter, Store, WarningKind,
};
use stormlog_catalog::run::finish_abandoned;
use stormlog_model::Record;

use crate::error::raise;
use crate::events::EventBuffer;
use crate::record::object_to_python;

type Rows<'py> = Vec<Bound<'py, PyDict>>;

/// What is at some paths, ready to be asked. Each source is loaded once, when a question needs its events.
#[pyclass(frozen, module = "stormlog._native.catalog")]
struct Catalog {
    store: Mutex<Store>,
}

/// Events in time order, each with the number of where it was found.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct EventAnswer {
    events: Py<EventBuffer>,
    origin_of: Vec<usize>,
    origins: Vec<Origin>,
}

/// Where events were found.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
#[derive(Clone)]
struct Origin {
    source_path: String,
    source_kind: &'static str,
    session_status: &'static str,
}

impl From<EventOrigin> for Origin {
    fn from(origin: EventOrigin) -> Self {
        let EventOrigin { source_path, source_kind, session_status } = origin;
        Origin { source_path, source_kind, session_status }
    }
}

impl Catalog {
    /// Asks without the interpreter.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Store) -> Result<T, QueryError> + Send,
    ) -> PyResult<T> {
        let answer = py.detach(|| question(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner)));
        answer.map_err(raise)
    }

    fn listed<'py>(
        &self,
        py: Python<'py>,
        list: impl FnOnce(&Store) -> Vec<Record> + Send,
    ) -> PyResult<Rows<'py>> {
        rows(py, self.ask(py, |store| Ok(list(store)))?)
    }
}

fn rows(py: Python<'_>, records: Vec<Record>) -> PyResult<Rows<'_>> {
    records.iter().map(|record| object_to_python(py, record)).collect()
}

#[pymethods]
impl Catalog {
    /// Finds what is at the paths. A run whose supervisor was killed too is finished first, as every command does that looks at one.
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>) -> Self {
        let store = py.detach(|| {
            paths.iter().for_each(|path| drop(finish_abandoned(path)));
            Store::open(&paths, Options { go_on: Box::new(|| true), retain_events: true })
        });
        Catalog { store: Mutex::new(store) }
    }

    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        self.listed(py, |store| store.catalog().sources.iter().map(|source| source.to_record()).collect())
    }

    fn oom_bundles<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        self.listed(py, |store| {
            store.catalog().bundles.iter().map(|bundle| BundleRow::of(bundle).to_catalog_record()).collect()
        })
    }

    /// What sidecars name, in the order of the files.
    fn sidecar_attachments<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        self.listed(py, |store| {
            store.catalog().attachments.iter().map(|row| row.to_sidecar_record()).collect()
        })
    }

    fn run_envelopes<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        self.listed(py, |store| store.catalog().envelopes.iter().map(|run| run.to_record()).collect())
    }

    /// Path and message of what could not be read.
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        self.listed(py, |store| {
            let shown = store.catalog().warnings.iter().filter(|warning| warning.kind != WarningKind::Empty);
            let record = |warning: &stormlog_catalog::query::Warning| {
                let fields = [("path", &warning.path), ("message", &warning.message)];
                fields.map(|(key, text)| (key.to_owned(), text.as_str().into())).into_iter().collect()
            };
            shown.map(record).collect()
        })
    }

    #[pyo3(signature = (*, run_id, session_id, job_id, rank, source_namespace, source_ref))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn runs<'py>(
        &self,
        py: Python<'py>,
        run_id: Option<String>,
        session_id: Option<String>,
        job_id: Option<String>,
        rank: Option<i64>,
        source_namespace: Option<String>,
        source_ref: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter = RunFilter { run_id, session_id, job_id, rank, source_namespace, source_ref };
        let found = self.ask(py, |store| store.runs(&filter))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    #[pyo3(signature = (*, run_id, session_id, job_id, rank, kind, source_namespace, source_ref))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn run_attachments<'py>(
        &self,
        py: Python<'py>,
        run_id: Option<String>,
        session_id: Option<String>,
        job_id: Option<String>,
        rank: Option<i64>,
        kind: Option<String>,
        source_namespace: Option<String>,
        source_ref: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter =
            AttachmentFilter { run_id, session_id, job_id, rank, kind, source_namespace, source_ref };
        let found = self.ask(py, |store| store.attachments(&filter))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    #[pyo3(signature = (*, session_id, job_id, rank, kind))]
    fn attachments<'py>(
        &self,
        py: Python<'py>,
        session_id: Option<String>,
        job_id: Option<String>,
        rank: Option<i64>,
        kind: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter = NamedFilter { session_id, job_id, rank, kind };
        let record = |row: &stormlog_catalog::query::NamedAttachment| row.to_sidecar_record();
        self.listed(py, |store| store.named_attachments(&filter).iter().map(record).collect())
    }

    #[pyo3(signature = (*, session_id, status, job_id, rank, world_size, has_oom_bundle, source_kind))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn sessions<'py>(
        &self,
        py: Python<'py>,
        session_id: Option<String>,
        status: Option<String>,
        job_id: Option<String>,
        rank: Option<i64>,
        world_size: Option<i64>,
        has_oom_bundle: Option<bool>,
        source_kind: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter =
            SessionFilter { session_id, status, job_id, rank, world_size, has_oom_bundle, source_kind };
        let found = self.ask(py, |store| store.sessions(&filter))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    #[pyo3(signature = (
        *, session_id, event_type, rank, collector, status, time_start_ns, time_end_ns, has_alert,
        collector_health_status, backend, limit
    ))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn events(
        &self,
        py: Python<'_>,
        session_id: Option<String>,
        event_type: Option<String>,
        rank: Option<i64>,
        collector: Option<String>,
        status: Option<String>,
        time_start_ns: Option<i128>,
        time_end_ns: Option<i128>,
        has_alert: Option<bool>,
        collector_health_status: Option<String>,
        backend: Option<String>,
        limit: Option<i64>,
    ) -> PyResult<EventAnswer> {
        let filter = EventFilter {
            session_id,
            event_type,
            rank,
            collector,
            status,
            time_start_ns,
            time_end_ns,
            has_alert,
            collector_health_status,
            backend,
            limit,
        };
        let found = self.ask(py, |store| store.events(&filter))?;
        Ok(EventAnswer {
            events: Py::new(py, EventBuffer::new(found.events))?,
            origin_of: found.origin_of,
            origins: found.origins.into_iter().map(Origin::from).collect(),
        })
    }

    #[pyo3(signature = (*, session_id, backend, reason, created_after, created_before))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn bundles<'py>(
        &self,
        py: Python<'py>,
        session_id: Option<String>,
        backend: Option<String>,
        reason: Option<String>,
        created_after: Option<String>,
        created_before: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter = BundleFilter { session_id, backend, reason, created_after, created_before };
        let found = self.ask(py, |store| store.bundles(&filter))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    #[pyo3(signature = (states, *, fingerprint_id, kind, state, severity, session_id))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn issues<'py>(
        &self,
        py: Python<'py>,
        states: Vec<(String, String)>,
        fingerprint_id: Option<String>,
        kind: Option<String>,
        state: Option<String>,
        severity: Option<String>,
        session_id: Option<String>,
    ) -> PyResult<Rows<'py>> {
        let filter = IssueFilter { fingerprint_id, kind, state, severity, session_id };
        let found = self.ask(py, |store| store.issues(&filter, &states))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    fn summarize<'py>(&self, py: Python<'py>, metric: &str, group_by: Option<&str>) -> PyResult<Rows<'py>> {
        let found = self.ask(py, |store| store.summarize(metric, group_by))?;
        rows(py, found.iter().map(|row| row.to_record()).collect())
    }

    /// The moment that was asked about, and the evidence around it.
    #[pyo3(signature = (*, session_id, job_id, rank, scope, at_ns, record_id, window_ns, kinds, limit))]
    #[allow(clippy::too_many_arguments, reason = "the keywords are the fields of 0.4.3's filter")]
    fn correlate<'py>(
        &self,
        py: Python<'py>,
        session_id: Option<String>,
        job_id: Option<String>,
        rank: Option<i64>,
        scope: &str,
        at_ns: Option<i128>,
        record_id: Option<String>,
        window_ns: i128,
        kinds: Vec<String>,
        limit: Option<usize>,
    ) -> PyResult<(Bound<'py, PyDict>, Rows<'py>)> {
        let is_distributed = scope == "distributed";
        let filter = CorrelationFilter {
            session_id,
            job_id,
            rank,
            is_distributed,
            at_ns,
            record_id,
            window_ns,
            kinds,
            limit,
        };
        let found = self.ask(py, |store| store.correlate(&filter))?;
        let evidence = rows(py, found.evidence.iter().map(|row| row.to_record()).collect())?;
        Ok((object_to_python(py, &found.anchor)?, evidence))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Origin>()?;
    module.add_class::<EventAnswer>()?;
    module.add_class::<Catalog>()
}
