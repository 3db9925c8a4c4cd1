//! Something that belongs to a run, as a row: how each kind of attachment becomes one. The rows of `stormlog query`, and those that
//! `stormlog.run_catalog` makes of the caller's own objects, are made here; nothing here reads a file but to see whether a sink has roll-ups.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use stormlog_model::{Record, SessionSummary};
use stormlog_store::sink::{ROLLUP_FILENAME, SinkSegment};

use super::attachment_keys::{Listed, Pair, listed, object};
use super::envelope::RunEnvelope;
use super::is_wanted;
use super::links::RunIndex;
use super::moment::utc_ns;
use super::named::NamedAttachment;

/// Which attachments; `None` is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct AttachmentFilter {
    pub run_id: Option<String>,
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub kind: Option<String>,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
}

/// A session as far as the row of its attachment repeats it.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of a session's row")]
pub struct AttachmentOwner {
    pub session_id: String,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub local_rank: Option<i64>,
    pub world_size: Option<i64>,
    pub started_at_ns: Option<i64>,
    pub ended_at_ns: Option<i64>,
}

impl From<&SessionSummary> for AttachmentOwner {
    fn from(summary: &SessionSummary) -> Self {
        AttachmentOwner {
            session_id: summary.session_id.clone(),
            job_id: summary.job_id.clone(),
            rank: Some(summary.rank),
            local_rank: Some(summary.local_rank),
            world_size: Some(summary.world_size),
            started_at_ns: Some(summary.started_at_ns),
            ended_at_ns: summary.ended_at_ns,
        }
    }
}

/// Something that belongs to a run.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of 0.4.3's rows")]
pub struct AttachmentRow {
    pub run_id: String,
    pub title: String,
    pub kind: String,
    pub storage: &'static str,
    pub attachment_id: Option<String>,
    pub url: Option<String>,
    pub path: Option<String>,
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub local_rank: Option<i64>,
    pub world_size: Option<i64>,
    pub start_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub source_path: String,
    pub source_kind: String,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub metadata: Record,
}

impl AttachmentRow {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let listed = listed!(self);
        let run: [Pair; 1] = [("run_id", self.run_id.as_str().into())];
        let files: [Pair; 2] = [
            ("source_path", self.source_path.as_str().into()),
            ("source_kind", self.source_kind.as_str().into()),
        ];
        let first = run.into_iter().chain(listed.subject()).chain(listed.owner());
        object(first.chain(files).chain(listed.source()))
    }

    /// What a run names itself.
    pub fn of_envelope(attachment: &NamedAttachment, envelope: &RunEnvelope) -> Self {
        let run_id = attachment.run_id.as_deref().unwrap_or(&envelope.run_id);
        let row = Self::named(attachment, run_id, "run_envelope_attachment");
        AttachmentRow {
            job_id: row.job_id.or_else(|| envelope.job_id.clone()),
            source_namespace: row.source_namespace.or_else(|| envelope.source_namespace.clone()),
            source_ref: row.source_ref.or_else(|| envelope.source_ref.clone()),
            ..row
        }
    }

    /// What a sidecar names, where it belongs to a run.
    pub fn of_sidecar(attachment: &NamedAttachment, runs: &dyn RunIndex) -> Option<Self> {
        let source = attachment.source_namespace.as_deref().zip(attachment.source_ref.as_deref());
        let session = attachment.session_id.as_deref();
        let run_id = attachment.run_id.clone();
        let run_id = run_id.or_else(|| runs.of_identity(source, session, attachment.job_id.as_deref()))?;
        let row = Self::named(attachment, &run_id, "attachment_sidecar");
        Some(AttachmentRow { local_rank: None, world_size: None, ..row })
    }

    /// A sink, once for every session in it that belongs to a run.
    pub fn of_sink(
        path: &Path,
        manifest: Option<&Path>,
        sessions: &[AttachmentOwner],
        runs: &dyn RunIndex,
    ) -> Vec<Self> {
        let facts = json!({"manifest_path": manifest.map(|path| path.display().to_string())});
        let kinds = ["telemetry_sink", "sink", "Telemetry sink"];
        let row = |owner| Self::of_owner(owner, path, kinds, facts.clone(), runs);
        sessions.iter().filter_map(row).collect()
    }

    /// The segments of a sink, each for its session.
    pub fn of_segments(
        path: &Path,
        segments: &[SinkSegment],
        sessions: &[AttachmentOwner],
        runs: &dyn RunIndex,
    ) -> Vec<Self> {
        let by_id: FxHashMap<&str, &AttachmentOwner> =
            sessions.iter().map(|owner| (owner.session_id.as_str(), owner)).collect();
        let row = |segment: &SinkSegment| {
            let id = segment.session_id.as_deref()?;
            let owner = by_id.get(id).copied();
            let run = runs.of_identity(None, Some(id), owner.and_then(|owner| owner.job_id.as_deref()))?;
            let facts = json!({
                "event_count": segment.event_count, "size_bytes": segment.size_bytes, "closed": segment.closed,
            });
            let kinds = ["telemetry_sink_segment", "sink_segment", &segment.filename];
            let row = Self::own(&run, owner, &path.join(&segment.filename), kinds, facts);
            Some(AttachmentRow { session_id: Some(id.to_owned()), ..row })
        };
        segments.iter().filter_map(row).collect()
    }

    /// The roll-ups of a sink, once for every session in it that belongs to a run.
    pub fn of_rollups(
        path: &Path,
        sessions: &[AttachmentOwner],
        segments: usize,
        runs: &dyn RunIndex,
    ) -> Vec<Self> {
        let facts = json!({"manifest_session_count": sessions.len(), "manifest_segment_count": segments});
        let path = path.join(ROLLUP_FILENAME);
        let kinds = ["telemetry_rollup", "rollup", "Telemetry rollups"];
        let row = |owner| Self::of_owner(owner, &path, kinds, facts.clone(), runs);
        sessions.iter().filter_map(row).collect()
    }

    /// A bundle of `diagnose`, where its session belongs to a run.
    pub fn of_diagnosis(
        path: &Path,
        manifest: Option<&Path>,
        owner: &AttachmentOwner,
        status: &str,
        runs: &dyn RunIndex,
    ) -> Option<Self> {
        let manifest = manifest.map(|path| path.display().to_string());
        let facts = json!({"manifest_path": manifest, "session_status": status});
        Self::of_owner(owner, path, ["diagnose_bundle", "diagnose_bundle", "Diagnose bundle"], facts, runs)
    }

    /// A file of events, for one of its sessions that belongs to a run.
    pub fn of_file(
        path: &Path,
        kind: &str,
        events: Option<u64>,
        owner: &AttachmentOwner,
        runs: &dyn RunIndex,
    ) -> Option<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy());
        let title = name.as_deref().unwrap_or("Telemetry file");
        Self::of_owner(owner, path, ["telemetry_file", kind, title], json!({"event_count": events}), runs)
    }

    /// An OOM bundle at the moment it was made, where its session belongs to a run; without the bundle's own facts.
    pub fn of_bundle(
        path: &Path,
        created_at_utc: Option<&str>,
        session_id: &str,
        owner: Option<&AttachmentOwner>,
        runs: &dyn RunIndex,
    ) -> Option<Self> {
        let job = owner.and_then(|owner| owner.job_id.as_deref());
        let run = runs.of_identity(None, Some(session_id), job)?;
        let at = utc_ns(created_at_utc);
        let row = Self::own(&run, owner, path, ["oom_bundle", "oom_bundle", "OOM bundle"], Value::Null);
        Some(AttachmentRow { session_id: Some(session_id.to_owned()), start_ns: at, end_ns: at, ..row })
    }

    fn of_owner(
        owner: &AttachmentOwner,
        path: &Path,
        kinds: [&str; 3],
        facts: Value,
        runs: &dyn RunIndex,
    ) -> Option<Self> {
        let run = runs.of_identity(None, Some(&owner.session_id), owner.job_id.as_deref())?;
        Some(Self::own(&run, Some(owner), path, kinds, facts))
    }

    fn named(of: &NamedAttachment, run_id: &str, source_kind: &str) -> Self {
        AttachmentRow {
            run_id: run_id.to_owned(),
            title: of.title.clone(),
            kind: of.kind.clone(),
            storage: of.storage,
            attachment_id: of.attachment_id.clone(),
            url: of.url.clone(),
            path: of.path.clone(),
            session_id: of.session_id.clone(),
            job_id: of.job_id.clone(),
            rank: of.rank,
            local_rank: of.local_rank,
            world_size: of.world_size,
            start_ns: of.start_ns,
            end_ns: of.end_ns,
            source_path: of.place(),
            source_kind: source_kind.to_owned(),
            source_namespace: of.source_namespace.clone(),
            source_ref: of.source_ref.clone(),
            metadata: of.metadata.clone(),
        }
    }

    /// A file or directory of ours that lasted as long as its session; `kinds` are its kind, its source's and its title.
    fn own(
        run_id: &str,
        owner: Option<&AttachmentOwner>,
        path: &Path,
        kinds: [&str; 3],
        metadata: Value,
    ) -> Self {
        let [kind, source_kind, title] = kinds;
        let path = path.display().to_string();
        let metadata = if let Value::Object(metadata) = metadata { metadata } else { Record::new() };
        AttachmentRow {
            run_id: run_id.to_owned(),
            title: title.to_owned(),
            kind: kind.to_owned(),
            storage: "copy",
            path: Some(path.clone()),
            session_id: owner.map(|owner| owner.session_id.clone()),
            job_id: owner.and_then(|owner| owner.job_id.clone()),
            rank: owner.and_then(|owner| owner.rank),
            local_rank: owner.and_then(|owner| owner.local_rank),
            world_size: owner.and_then(|owner| owner.world_size),
            start_ns: owner.and_then(|owner| owner.started_at_ns),
            end_ns: owner.and_then(|owner| owner.ended_at_ns),
            source_path: path,
            source_kind: source_kind.to_owned(),
            source_namespace: Some("stormlog".to_owned()),
            metadata,
            ..AttachmentRow::default()
        }
    }
}

impl AttachmentFilter {
    /// Whether an attachment is requested.
    pub fn matches(&self, row: &AttachmentRow) -> bool {
        is_wanted(&self.run_id, Some(&row.run_id))
            && is_wanted(&self.session_id, row.session_id.as_deref())
            && is_wanted(&self.job_id, row.job_id.as_deref())
            && (self.rank.is_none() || self.rank == row.rank)
            && is_wanted(&self.kind, Some(&row.kind))
            && is_wanted(&self.source_namespace, row.source_namespace.as_deref())
            && is_wanted(&self.source_ref, row.source_ref.as_deref())
    }
}
