//! OOM exceptions and their bundles.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_model::{Event, Record, SessionSummary};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{
    BundleContent, BundleWriter, Environment, Evidence, ExceptionText, HeldBy, Retention,
};
use stormlog_postmortem::classify::{ExceptionFacts as Facts, classify};
use stormlog_track::evidence_now;

use crate::error::raise;

/// What is known of an exception: its class's name and module, every base as `module.Name`, its text, its errno.
#[pyclass(frozen, get_all, module = "stormlog._native.oom")]
struct ExceptionFacts {
    type_name: String,
    module: String,
    bases: Vec<String>,
    message: String,
    errno: Option<i32>,
}

#[pymethods]
impl ExceptionFacts {
    #[new]
    #[pyo3(signature = (*, type_name, module, bases, message, errno=None))]
    fn new(
        type_name: String,
        module: String,
        bases: Vec<String>,
        message: String,
        errno: Option<i32>,
    ) -> Self {
        ExceptionFacts { type_name, module, bases, message, errno }
    }
}

/// Whether memory ran out, by which sign, and the cause a bundle names.
#[pyclass(frozen, get_all, module = "stormlog._native.oom")]
struct ExceptionVerdict {
    is_oom: bool,
    reason: Option<String>,
    cause: Option<&'static str>,
}

/// Whether an exception means that memory ran out.
#[pyfunction]
fn classify_exception(facts: &ExceptionFacts) -> ExceptionVerdict {
    let ExceptionFacts { type_name, module, bases, message, errno } = facts;
    let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
    let found = classify(&Facts { type_name, module, bases: &bases, message, errno: *errno });
    let cause = found.cause().map(Cause::as_str);
    ExceptionVerdict { is_oom: found.is_oom, reason: found.reason.map(|reason| reason.into_owned()), cause }
}

/// A place that holds memory, as `stormlog._tracking.failure.Holder` has it.
#[derive(FromPyObject)]
pub(crate) struct Holder {
    place: String,
    size: u64,
    note: Option<String>,
}

/// Everything in a bundle but its events.
pub(crate) struct BundleInput {
    pub(crate) root: PathBuf,
    pub(crate) backend: String,
    pub(crate) reason: String,
    pub(crate) cause: Option<String>,
    /// Class name, module and text.
    pub(crate) exception: (String, String, String),
    pub(crate) context: Option<String>,
    pub(crate) custom_metadata: Record,
    pub(crate) system: Record,
    pub(crate) held_by: Vec<Holder>,
    pub(crate) tries: Vec<String>,
}

/// The retention of 0.4.3's settings: 0 or less means no limit.
pub(crate) fn retention(max_dumps: i64, max_total_mb: i64) -> Retention {
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    Retention { max_bundles: count(max_dumps), max_total_bytes: count(max_total_mb).saturating_mul(1 << 20) }
}

/// Writes a bundle and gives its path.
pub(crate) fn write<'e>(
    writer: &mut BundleWriter,
    given: &BundleInput,
    session: Option<&SessionSummary>,
    events: impl IntoIterator<Item = &'e Event>,
) -> PyResult<PathBuf> {
    let cause = given.cause.as_deref().and_then(Cause::of_word).unwrap_or(Cause::OomException);
    let cwd = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
    let (type_name, module, message) = &given.exception;
    let held_by = given.held_by.iter().map(|holder| HeldBy {
        place: holder.place.clone(),
        bytes: holder.size,
        note: holder.note.clone(),
    });
    let evidence = Evidence { held_by: held_by.collect(), tries: given.tries.clone(), ..evidence_now(cause) };
    let content = BundleContent {
        created_at_ns: stormlog_store::wall_ns(),
        pid: u64::from(std::process::id()),
        backend: &given.backend,
        reason: &given.reason,
        exception: Some(ExceptionText { type_name, module, message }),
        context: given.context.as_deref(),
        session,
        custom_metadata: &given.custom_metadata,
        environment: Environment { cwd: cwd.as_deref(), system: &given.system },
        evidence: &evidence,
    };
    writer.write(&given.root, &content, events).map(|written| written.path).map_err(raise)
}

/// Removes what the retention no longer allows below `root`, but never `keep`.
#[pyfunction]
fn prune_bundles(
    py: Python<'_>,
    root: PathBuf,
    keep: PathBuf,
    max_dumps: i64,
    max_total_mb: i64,
) -> Vec<PathBuf> {
    py.detach(|| retention(max_dumps, max_total_mb).enforce(&root, &keep).removed)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ExceptionFacts>()?;
    module.add_class::<ExceptionVerdict>()?;
    module.add_function(wrap_pyfunction!(classify_exception, module)?)?;
    module.add_function(wrap_pyfunction!(prune_bundles, module)?)
}
