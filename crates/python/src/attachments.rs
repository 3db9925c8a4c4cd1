//! Rows of attachments made of the caller's objects, for `stormlog.run_catalog`. A row is the names and values of a `RunAttachmentRow`;
//! where the metadata is the caller's own it is left out, and the caller puts it there.

use std::path::PathBuf;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stormlog_catalog::query::{
    AttachmentFilter, AttachmentOwner, AttachmentRow, NamedAttachment, RunEnvelope, RunFacts, RunFilter,
    RunIndex, RunRow,
};
use stormlog_model::Record;
use stormlog_store::sink::SinkSegment;

use crate::record::object_to_python;

/// A structure of the catalog whose named fields are read from an object of the caller; `..` are the fields that object need not have.
macro_rules! given {
    ($name:ident => $of:ident { $($field:ident: $kind:ty),* $(,)? } $(.. $rest:expr)?) => {
        #[derive(FromPyObject)]
        struct $name { $($field: $kind),* }

        impl From<$name> for $of {
            fn from(given: $name) -> Self {
                $of { $($field: given.$field),* $(, ..$rest)? }
            }
        }
    };
}

given!(GivenOwner => AttachmentOwner {
    session_id: String, job_id: Option<String>, rank: Option<i64>, local_rank: Option<i64>,
    world_size: Option<i64>, started_at_ns: Option<i64>, ended_at_ns: Option<i64>,
});
given!(GivenSegment => SinkSegment {
    filename: String, event_count: u64, size_bytes: u64, closed: bool, session_id: Option<String>,
});
given!(GivenRunFilter => RunFilter {
    run_id: Option<String>, session_id: Option<String>, job_id: Option<String>, rank: Option<i64>,
    source_namespace: Option<String>, source_ref: Option<String>,
});
given!(GivenAttachmentFilter => AttachmentFilter {
    run_id: Option<String>, session_id: Option<String>, job_id: Option<String>, rank: Option<i64>,
    kind: Option<String>, source_namespace: Option<String>, source_ref: Option<String>,
});
given!(GivenFacts => RunFacts {
    run_id: String, job_id: Option<String>, source_namespace: Option<String>, source_ref: Option<String>,
} ..RunFacts::default());
given!(GivenRow => AttachmentRow {
    run_id: String, session_id: Option<String>, job_id: Option<String>, rank: Option<i64>, kind: String,
    source_namespace: Option<String>, source_ref: Option<String>,
} ..AttachmentRow::default());

/// A session of the caller, with where it is from.
#[derive(FromPyObject)]
struct GivenFileSession {
    source_path: PathBuf,
    source_kind: String,
    event_count: Option<u64>,
}

/// What every attachment that was named has.
#[derive(FromPyObject)]
struct GivenNamed {
    title: String,
    kind: String,
    storage: Option<String>,
    attachment_id: Option<String>,
    url: Option<String>,
    path: Option<String>,
    run_id: Option<String>,
    session_id: Option<String>,
    job_id: Option<String>,
    rank: Option<i64>,
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    source_namespace: Option<String>,
    source_ref: Option<String>,
}

impl GivenNamed {
    /// An empty text names nothing.
    fn named(self, file: PathBuf, ranks: [Option<i64>; 2]) -> NamedAttachment {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        NamedAttachment {
            title: self.title,
            kind: self.kind,
            storage: if self.storage.as_deref() == Some("copy") { "copy" } else { "reference" },
            attachment_id: self.attachment_id,
            url: text(self.url),
            path: text(self.path),
            run_id: self.run_id,
            session_id: self.session_id,
            job_id: self.job_id,
            rank: self.rank,
            local_rank: ranks[0],
            world_size: ranks[1],
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            created_at_utc: None,
            updated_at_utc: None,
            source_namespace: self.source_namespace,
            source_ref: self.source_ref,
            metadata: Record::new(),
            file,
        }
    }
}

/// A `RunIdentityIndex` of the caller: its mappings are asked, not copied.
struct GivenIndex<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'py> GivenIndex<'_, 'py> {
    fn look_up(&self, mapping: &str, key: impl IntoPyObject<'py>) -> Option<String> {
        let key = key.into_bound_py_any(self.0.py()).ok()?;
        self.0.getattr(mapping).ok()?.call_method1("get", (key,)).ok()?.extract().ok()?
    }
}

impl RunIndex for GivenIndex<'_, '_> {
    fn of_source(&self, source: (&str, &str)) -> Option<String> {
        self.look_up("source_ref_to_run", source)
    }

    fn of_session(&self, session_id: &str) -> Option<String> {
        self.look_up("session_to_run", session_id)
    }

    fn of_job(&self, job_id: &str) -> Option<String> {
        self.look_up("job_to_run", job_id)
    }
}

type Row<'py> = Bound<'py, PyDict>;

fn to_rows<'py>(py: Python<'py>, rows: &[AttachmentRow]) -> PyResult<Vec<Row<'py>>> {
    rows.iter().map(|row| object_to_python(py, &row.to_record())).collect()
}

/// A row without its metadata.
fn to_row<'py>(py: Python<'py>, row: Option<AttachmentRow>) -> PyResult<Option<Row<'py>>> {
    let Some(row) = row else { return Ok(None) };
    let mut record = row.to_record();
    record.remove("metadata");
    object_to_python(py, &record).map(Some)
}

/// The run that something belongs to, by its source, its session, its job.
#[pyfunction]
fn run_of_identity(
    source: Option<(String, String)>,
    session_id: Option<&str>,
    job_id: Option<&str>,
    index: &Bound<'_, PyAny>,
) -> Option<String> {
    let source = source.as_ref().map(|(namespace, reference)| (namespace.as_str(), reference.as_str()));
    GivenIndex(index).of_identity(source, session_id, job_id)
}

/// What a run names itself.
#[pyfunction]
fn envelope_attachment<'py>(
    attachment: &Bound<'py, PyAny>,
    envelope: &Bound<'py, PyAny>,
) -> PyResult<Option<Row<'py>>> {
    let get = |name: &str| envelope.getattr(name)?.extract::<Option<String>>();
    let ranks = [attachment.getattr("local_rank")?.extract()?, attachment.getattr("world_size")?.extract()?];
    let path: PathBuf = envelope.getattr("path")?.extract()?;
    let run = RunEnvelope {
        run_id: envelope.getattr("run_id")?.extract()?,
        job_id: get("job_id")?,
        source_namespace: get("source_namespace")?,
        source_ref: get("source_ref")?,
        ..RunEnvelope::default()
    };
    let named = attachment.extract::<GivenNamed>()?.named(path, ranks);
    to_row(attachment.py(), Some(AttachmentRow::of_envelope(&named, &run)))
}

/// What a sidecar names, where it belongs to a run.
#[pyfunction]
fn sidecar_attachment<'py>(
    attachment: &Bound<'py, PyAny>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Option<Row<'py>>> {
    let file: PathBuf = attachment.getattr("sidecar_path")?.extract()?;
    let named = attachment.extract::<GivenNamed>()?.named(file, [None; 2]);
    to_row(attachment.py(), AttachmentRow::of_sidecar(&named, &GivenIndex(index)))
}

/// A sink, for every session in it that belongs to a run.
#[pyfunction]
fn sink_attachments<'py>(
    py: Python<'py>,
    path: PathBuf,
    manifest: Option<PathBuf>,
    sessions: Vec<GivenOwner>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Vec<Row<'py>>> {
    let owners: Vec<AttachmentOwner> = sessions.into_iter().map(Into::into).collect();
    to_rows(py, &AttachmentRow::of_sink(&path, manifest.as_deref(), &owners, &GivenIndex(index)))
}

/// The segments of a sink.
#[pyfunction]
fn segment_attachments<'py>(
    py: Python<'py>,
    path: PathBuf,
    segments: Vec<GivenSegment>,
    sessions: Vec<GivenOwner>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Vec<Row<'py>>> {
    let segments: Vec<SinkSegment> = segments.into_iter().map(Into::into).collect();
    let owners: Vec<AttachmentOwner> = sessions.into_iter().map(Into::into).collect();
    to_rows(py, &AttachmentRow::of_segments(&path, &segments, &owners, &GivenIndex(index)))
}

/// The roll-ups of a sink.
#[pyfunction]
fn rollup_attachments<'py>(
    py: Python<'py>,
    path: PathBuf,
    sessions: Vec<GivenOwner>,
    segment_count: usize,
    index: &Bound<'py, PyAny>,
) -> PyResult<Vec<Row<'py>>> {
    let owners: Vec<AttachmentOwner> = sessions.into_iter().map(Into::into).collect();
    to_rows(py, &AttachmentRow::of_rollups(&path, &owners, segment_count, &GivenIndex(index)))
}

/// A bundle of `diagnose`: no row or one.
#[pyfunction]
fn diagnose_attachments<'py>(
    py: Python<'py>,
    path: PathBuf,
    manifest: Option<PathBuf>,
    session: GivenOwner,
    status: &str,
    index: &Bound<'py, PyAny>,
) -> PyResult<Vec<Row<'py>>> {
    let (owner, index) = (session.into(), GivenIndex(index));
    let row = AttachmentRow::of_diagnosis(&path, manifest.as_deref(), &owner, status, &index);
    to_rows(py, row.as_slice())
}

/// A file of events, for each of its sessions that belongs to a run.
#[pyfunction]
fn file_attachments<'py>(
    py: Python<'py>,
    sessions: Vec<Bound<'py, PyAny>>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Vec<Row<'py>>> {
    let mut rows = Vec::new();
    for session in sessions {
        let owner = session.extract::<GivenOwner>()?.into();
        let file = session.extract::<GivenFileSession>()?;
        let kind = file.source_kind.as_str();
        let index = GivenIndex(index);
        rows.extend(AttachmentRow::of_file(&file.source_path, kind, file.event_count, &owner, &index));
    }
    to_rows(py, &rows)
}

/// An OOM bundle at the moment it was made, where its session belongs to a run.
#[pyfunction]
fn bundle_attachment<'py>(
    py: Python<'py>,
    path: PathBuf,
    created_at_utc: Option<&str>,
    session_id: &str,
    session: Option<GivenOwner>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Option<Row<'py>>> {
    let owner = session.map(AttachmentOwner::from);
    let (owner, index) = (owner.as_ref(), GivenIndex(index));
    to_row(py, AttachmentRow::of_bundle(&path, created_at_utc, session_id, owner, &index))
}

/// Whether a run is requested.
#[pyfunction]
fn is_run_wanted(row: &Bound<'_, PyAny>, filters: GivenRunFilter) -> PyResult<bool> {
    let facts = row.extract::<GivenFacts>()?.into();
    let (sessions, ranks) = (row.getattr("sessions")?.extract()?, row.getattr("ranks")?.extract()?);
    Ok(RunFilter::from(filters).matches(&RunRow { facts, sessions, ranks, attachment_count: 0 }))
}

/// Whether an attachment is requested.
#[pyfunction]
fn is_attachment_wanted(row: GivenRow, filters: GivenAttachmentFilter) -> bool {
    AttachmentFilter::from(filters).matches(&row.into())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_of_identity, module)?)?;
    module.add_function(wrap_pyfunction!(envelope_attachment, module)?)?;
    module.add_function(wrap_pyfunction!(sidecar_attachment, module)?)?;
    module.add_function(wrap_pyfunction!(sink_attachments, module)?)?;
    module.add_function(wrap_pyfunction!(segment_attachments, module)?)?;
    module.add_function(wrap_pyfunction!(rollup_attachments, module)?)?;
    module.add_function(wrap_pyfunction!(diagnose_attachments, module)?)?;
    module.add_function(wrap_pyfunction!(file_attachments, module)?)?;
    module.add_function(wrap_pyfunction!(bundle_attachment, module)?)?;
    module.add_function(wrap_pyfunction!(is_run_wanted, module)?)?;
    module.add_function(wrap_pyfunction!(is_attachment_wanted, module)?)
}
