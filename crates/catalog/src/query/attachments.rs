//! What belongs to runs, as rows: sinks with their segments and roll-ups, bundles, files of events, and what was named.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use stormlog_model::{Record, SessionSummary};
use stormlog_store::Source;
use stormlog_store::sink::{ROLLUP_FILENAME, SinkManifest};

use super::links::RunLinks;
use super::moment::utc_ns;
use super::named::NamedAttachment;
use super::ooms::BundleRow;
use super::runs::RunContext;
use super::sessions::SessionRow;
use super::store::{Store, diagnosed_session};
use super::{QueryError, is_wanted, record};

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
    pub source_kind: &'static str,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub metadata: Record,
}

impl AttachmentRow {
    /// The object form.
    pub fn to_record(&self) -> Record {
        record([
            ("run_id", self.run_id.as_str().into()),
            ("title", self.title.as_str().into()),
            ("kind", self.kind.as_str().into()),
            ("storage", self.storage.into()),
            ("attachment_id", self.attachment_id.as_deref().into()),
            ("url", self.url.as_deref().into()),
            ("path", self.path.as_deref().into()),
            ("session_id", self.session_id.as_deref().into()),
            ("job_id", self.job_id.as_deref().into()),
            ("rank", self.rank.into()),
            ("local_rank", self.local_rank.into()),
            ("world_size", self.world_size.into()),
            ("start_ns", self.start_ns.into()),
            ("end_ns", self.end_ns.into()),
            ("source_path", self.source_path.as_str().into()),
            ("source_kind", self.source_kind.into()),
            ("source_namespace", self.source_namespace.as_deref().into()),
            ("source_ref", self.source_ref.as_deref().into()),
            ("metadata", Value::Object(self.metadata.clone())),
        ])
    }

    fn named(of: &NamedAttachment, run_id: &str, source_kind: &'static str) -> Self {
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
            source_kind,
            source_namespace: of.source_namespace.clone(),
            source_ref: of.source_ref.clone(),
            metadata: of.metadata.clone(),
        }
    }

    /// A file or directory of ours that lasted as long as its session; `kinds` are its kind, its source's and its title.
    fn own(
        run_id: &str,
        session: Option<&SessionSummary>,
        path: &Path,
        kinds: [&str; 2],
        source_kind: &'static str,
        metadata: Value,
    ) -> Self {
        let [kind, title] = kinds;
        let path = path.display().to_string();
        let metadata = if let Value::Object(metadata) = metadata { metadata } else { Record::new() };
        AttachmentRow {
            run_id: run_id.to_owned(),
            title: title.to_owned(),
            kind: kind.to_owned(),
            storage: "copy",
            path: Some(path.clone()),
            session_id: session.map(|session| session.session_id.clone()),
            job_id: session.and_then(|session| session.job_id.clone()),
            rank: session.map(|session| session.rank),
            local_rank: session.map(|session| session.local_rank),
            world_size: session.map(|session| session.world_size),
            start_ns: session.map(|session| session.started_at_ns),
            end_ns: session.and_then(|session| session.ended_at_ns),
            source_path: path,
            source_kind,
            source_namespace: Some("stormlog".to_owned()),
            metadata,
            ..AttachmentRow::default()
        }
    }
}

impl AttachmentFilter {
    fn matches(&self, row: &AttachmentRow) -> bool {
        is_wanted(&self.run_id, Some(&row.run_id))
            && is_wanted(&self.session_id, row.session_id.as_deref())
            && is_wanted(&self.job_id, row.job_id.as_deref())
            && (self.rank.is_none() || self.rank == row.rank)
            && is_wanted(&self.kind, Some(&row.kind))
            && is_wanted(&self.source_namespace, row.source_namespace.as_deref())
            && is_wanted(&self.source_ref, row.source_ref.as_deref())
    }
}

impl Store {
    /// What belongs to the runs, by run, session, rank and kind.
    pub fn attachments(&mut self, filter: &AttachmentFilter) -> Result<Vec<AttachmentRow>, QueryError> {
        let sessions = self.session_rows()?;
        let contexts = self.contexts(&sessions);
        let links = RunLinks::of_contexts(&contexts, &sessions);
        let mut rows = Vec::new();
        self.each_attachment(&contexts, &links, &sessions, &mut |row| {
            if filter.matches(&row) {
                rows.push(row);
            }
        })?;
        rows.sort_by_cached_key(|row| {
            let session = row.session_id.clone().unwrap_or_default();
            let rank = row.rank.unwrap_or(-1);
            (row.run_id.clone(), session, rank, row.kind.clone(), row.title.clone(), row.source_path.clone())
        });
        Ok(rows)
    }

    /// What sidecars name, in time order.
    pub fn named_attachments(&self, filter: &super::NamedFilter) -> Vec<NamedAttachment> {
        let found = self.catalog.attachments.iter().filter(|row| filter.matches(row));
        let mut rows: Vec<NamedAttachment> = found.cloned().collect();
        rows.sort_by_cached_key(|row| {
            (row.start_ns.unwrap_or(-1), row.title.clone(), row.file.display().to_string())
        });
        rows
    }

    pub(super) fn each_attachment(
        &mut self,
        contexts: &[RunContext],
        links: &RunLinks,
        sessions: &[SessionRow],
        take: &mut dyn FnMut(AttachmentRow),
    ) -> Result<(), QueryError> {
        links.conflicts.iter().for_each(|conflict| self.conflict(conflict.message()));
        for envelope in &self.catalog.envelopes {
            for attachment in &envelope.attachments {
                let run_id = attachment.run_id.as_deref().unwrap_or(&envelope.run_id);
                let mut row = AttachmentRow::named(attachment, run_id, "run_envelope_attachment");
                row.job_id = row.job_id.or_else(|| envelope.job_id.clone());
                row.source_namespace = row.source_namespace.or_else(|| envelope.source_namespace.clone());
                row.source_ref = row.source_ref.or_else(|| envelope.source_ref.clone());
                take(row);
            }
        }
        for attachment in &self.catalog.attachments {
            let by_source =
                links.run_of_source(attachment.source_namespace.as_deref(), attachment.source_ref.as_deref());
            let by_session = || links.run_of(attachment.session_id.as_deref(), attachment.job_id.as_deref());
            let run_id = attachment.run_id.as_deref().or(by_source).or_else(by_session);
            if let Some(run_id) = run_id {
                let row = AttachmentRow::named(attachment, run_id, "attachment_sidecar");
                take(AttachmentRow { local_rank: None, world_size: None, ..row });
            }
        }
        let mut by_path: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        let members = || contexts.iter().flat_map(|context| &context.members);
        for at in members() {
            by_path.entry(sessions[*at].source_path.as_str()).or_default().push(*at);
        }
        for number in 0..self.source_count() {
            let source = &self.catalog.sources[number];
            match &source.source {
                Source::Sink(path) => {
                    if let Some(manifest) = self.manifest(number) {
                        sink_rows(path, &manifest, links, take);
                    }
                }
                Source::DiagnoseBundle(path) => {
                    let Some(summary) = diagnosed_session(path) else { continue };
                    let run = links.run_of(Some(&summary.session_id), summary.job_id.as_deref());
                    if let Some(run) = run {
                        let manifest = source.manifest_path.as_ref().map(|path| path.display().to_string());
                        let facts =
                            json!({"manifest_path": manifest, "session_status": summary.status.as_str()});
                        let kinds = ["diagnose_bundle", "Diagnose bundle"];
                        take(AttachmentRow::own(run, Some(&summary), path, kinds, "diagnose_bundle", facts));
                    }
                }
                _ => {
                    let path = source.path();
                    let here =
                        by_path.get(path.display().to_string().as_str()).map_or(&[][..], Vec::as_slice);
                    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                    let title = name.unwrap_or_else(|| "Telemetry file".to_owned());
                    for row in here.iter().map(|at| &sessions[*at]) {
                        let summary = &row.summary;
                        let run = links.run_of(Some(&summary.session_id), summary.job_id.as_deref());
                        if let Some(run) = run {
                            let facts = json!({"event_count": row.event_count});
                            let kinds = ["telemetry_file", title.as_str()];
                            take(AttachmentRow::own(run, Some(summary), path, kinds, row.source_kind, facts));
                        }
                    }
                }
            }
        }
        let by_id: FxHashMap<&str, &SessionSummary> =
            members().map(|at| (sessions[*at].summary.session_id.as_str(), &sessions[*at].summary)).collect();
        for bundle in &self.catalog.bundles {
            let Some(session_id) = bundle.session_id.as_deref() else { continue };
            let session = by_id.get(session_id).copied();
            let job_id = session.and_then(|session| session.job_id.as_deref());
            let Some(run) = links.run_of(Some(session_id), job_id) else { continue };
            let made = BundleRow::of(bundle);
            let at = utc_ns(made.created_at_utc.as_deref());
            let facts = Value::Object(made.to_catalog_record());
            let row = AttachmentRow::own(
                run,
                session,
                &bundle.path,
                ["oom_bundle", "OOM bundle"],
                "oom_bundle",
                facts,
            );
            take(AttachmentRow { session_id: Some(session_id.to_owned()), start_ns: at, end_ns: at, ..row });
        }
        Ok(())
    }
}

/// A sink, its segments and its roll-ups, for every session in it that belongs to a run.
fn sink_rows(path: &Path, manifest: &SinkManifest, links: &RunLinks, take: &mut dyn FnMut(AttachmentRow)) {
    let run_of = |id: &str, job: Option<&str>| links.run_of(Some(id), job);
    let with_run = || {
        manifest.sessions.iter().filter_map(|summary| {
            run_of(&summary.session_id, summary.job_id.as_deref()).map(|run| (run, summary))
        })
    };
    let facts = json!({"manifest_path": path.join("manifest.json").display().to_string()});
    for (run, summary) in with_run() {
        let kinds = ["telemetry_sink", "Telemetry sink"];
        take(AttachmentRow::own(run, Some(summary), path, kinds, "sink", facts.clone()));
    }
    for segment in &manifest.segments {
        let Some(id) = segment.session_id.as_deref() else { continue };
        let summary = manifest.sessions.iter().find(|summary| summary.session_id == id);
        let Some(run) = run_of(id, summary.and_then(|summary| summary.job_id.as_deref())) else { continue };
        let facts = json!({
            "event_count": segment.event_count, "size_bytes": segment.size_bytes, "closed": segment.closed,
        });
        let kinds = ["telemetry_sink_segment", segment.filename.as_str()];
        let row =
            AttachmentRow::own(run, summary, &path.join(&segment.filename), kinds, "sink_segment", facts);
        take(AttachmentRow { session_id: Some(id.to_owned()), ..row });
    }
    let rollups = path.join(ROLLUP_FILENAME);
    if rollups.exists() {
        let counts = json!({
            "manifest_session_count": manifest.sessions.len(), "manifest_segment_count": manifest.segments.len(),
        });
        for (run, summary) in with_run() {
            let kinds = ["telemetry_rollup", "Telemetry rollups"];
            take(AttachmentRow::own(run, Some(summary), &rollups, kinds, "rollup", counts.clone()));
        }
    }
}
