//! What belongs to runs: sinks with their segments and roll-ups, bundles, files of events, and what was named.

use std::path::Path;

use rustc_hash::FxHashMap;
use stormlog_model::SessionSummary;
use stormlog_store::Source;
use stormlog_store::sink::{ROLLUP_FILENAME, SinkManifest};

use super::QueryError;
use super::attachment_row::{AttachmentFilter, AttachmentOwner, AttachmentRow};
use super::links::RunLinks;
use super::named::NamedAttachment;
use super::ooms::BundleRow;
use super::runs::RunContext;
use super::sessions::SessionRow;
use super::store::{Store, diagnosed_session};

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
            envelope.attachments.iter().for_each(|one| take(AttachmentRow::of_envelope(one, envelope)));
        }
        self.catalog
            .attachments
            .iter()
            .filter_map(|one| AttachmentRow::of_sidecar(one, links))
            .for_each(&mut *take);
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
                        sink_rows(path, &manifest, links).into_iter().for_each(&mut *take);
                    }
                }
                Source::DiagnoseBundle(path) => {
                    let Some(summary) = diagnosed_session(path) else { continue };
                    let (owner, status) = (AttachmentOwner::from(&summary), summary.status.as_str());
                    let manifest = source.manifest_path.as_deref();
                    let row = AttachmentRow::of_diagnosis(path, manifest, &owner, status, links);
                    row.into_iter().for_each(&mut *take);
                }
                _ => {
                    let path = source.path();
                    let here =
                        by_path.get(path.display().to_string().as_str()).map_or(&[][..], Vec::as_slice);
                    for row in here.iter().map(|at| &sessions[*at]) {
                        let owner = AttachmentOwner::from(&row.summary);
                        let row =
                            AttachmentRow::of_file(path, row.source_kind, row.event_count, &owner, links);
                        row.into_iter().for_each(&mut *take);
                    }
                }
            }
        }
        let by_id: FxHashMap<&str, &SessionSummary> =
            members().map(|at| (sessions[*at].summary.session_id.as_str(), &sessions[*at].summary)).collect();
        for bundle in &self.catalog.bundles {
            let Some(session_id) = bundle.session_id.as_deref() else { continue };
            let owner = by_id.get(session_id).map(|summary| AttachmentOwner::from(*summary));
            let made = BundleRow::of(bundle);
            let at = made.created_at_utc.as_deref();
            let row = AttachmentRow::of_bundle(&bundle.path, at, session_id, owner.as_ref(), links);
            row.into_iter().for_each(|row| take(AttachmentRow { metadata: made.to_catalog_record(), ..row }));
        }
        Ok(())
    }
}

/// A sink, its segments and its roll-ups, for every session in it that belongs to a run.
fn sink_rows(path: &Path, manifest: &SinkManifest, links: &RunLinks) -> Vec<AttachmentRow> {
    let owners: Vec<AttachmentOwner> = manifest.sessions.iter().map(AttachmentOwner::from).collect();
    let mut rows = AttachmentRow::of_sink(path, Some(&path.join("manifest.json")), &owners, links);
    rows.extend(AttachmentRow::of_segments(path, &manifest.segments, &owners, links));
    if path.join(ROLLUP_FILENAME).exists() {
        rows.extend(AttachmentRow::of_rollups(path, &owners, manifest.segments.len(), links));
    }
    rows
}
