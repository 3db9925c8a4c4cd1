//! OOM exceptions and their bundles.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_model::{Event, Record, SessionSummary};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{
    BundleContent, BundleWriter, Environment, Evidence, ExceptionText, HeldBy, Retention,
};
use stormlog_postmortem::classify::{ExceptionFacts, classify};
use stormlog_track::evidence_now;

use crate::error::raise;
use crate::phases::object;

/// The facts of an exception: its class's name and module, every base as `module.Name`, its text, its errno.
pub(crate) type Facts = (String, String, Vec<String>, String, Option<i32>);

/// Whether memory ran out, by which sign, and the cause a bundle names.
#[pyfunction]
fn classify_exception(facts: Facts) -> (bool, Option<String>, Option<&'static str>) {
    let (type_name, module, bases, message, errno) = &facts;
    let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
    let found = classify(&ExceptionFacts { type_name, module, bases: &bases, message, errno: *errno });
    let cause = found.cause().map(Cause::as_str);
    (found.is_oom, found.reason.map(|reason| reason.into_owned()), cause)
}

/// Everything in a bundle but its events, as it crosses: JSON texts where there is structure.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Given {
    root: PathBuf,
    backend: String,
    reason: String,
    cause: Option<String>,
    exception: (String, String, String),
    context: Option<String>,
    custom_metadata: String,
    system: String,
    /// Place, bytes and note of what held most.
    #[pyo3(default)]
    held_by: Vec<(String, u64, Option<String>)>,
    #[pyo3(default)]
    tries: Vec<String>,
}

/// The retention of 0.4.3's settings: nothing or less than nothing is no limit.
pub(crate) fn retention(max_dumps: i64, max_total_mb: i64) -> Retention {
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    Retention { max_bundles: count(max_dumps), max_total_bytes: count(max_total_mb).saturating_mul(1 << 20) }
}

/// Writes a bundle and gives its path.
pub(crate) fn write<'e>(
    writer: &mut BundleWriter,
    given: &Given,
    session: Option<&SessionSummary>,
    events: impl IntoIterator<Item = &'e Event>,
) -> PyResult<PathBuf> {
    let (custom_metadata, system): (Record, Record) =
        (object(&given.custom_metadata)?, object(&given.system)?);
    let cause = given.cause.as_deref().and_then(Cause::of_word).unwrap_or(Cause::OomException);
    let cwd = std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned());
    let (type_name, module, message) = &given.exception;
    let held_by = given.held_by.iter().map(|(place, bytes, note)| HeldBy {
        place: place.clone(),
        bytes: *bytes,
        note: note.clone(),
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
        custom_metadata: &custom_metadata,
        environment: Environment { cwd: cwd.as_deref(), system: &system },
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
    module.add_function(wrap_pyfunction!(classify_exception, module)?)?;
    module.add_function(wrap_pyfunction!(prune_bundles, module)?)
}
