"""What belongs to a run, as rows: sinks and their segments, rollups, bundles, files, and what was named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormlog._moment import utc_ns
from stormlog.correlation import ExternalAttachment
from stormlog.run_catalog._contexts import build_identity_index, run_id_for_identity
from stormlog.run_catalog._envelope import attachment_storage_or_default
from stormlog.run_catalog._models import (
    CatalogRunEnvelope,
    CatalogSourceLike,
    OOMBundleLike,
    RunAttachmentRow,
    RunContext,
    RunIdentityIndex,
    SessionRowLike,
)
from stormlog.session import SessionSummary
from stormlog.telemetry_rollups import ROLLUP_FILENAME
from stormlog.telemetry_sink import TelemetrySinkManifest


def envelope_attachment_rows(
    envelopes: Sequence[CatalogRunEnvelope], contexts: Mapping[str, RunContext]
) -> list[RunAttachmentRow]:
    """What runs name themselves."""
    rows = []
    for envelope in envelopes:
        for attachment in envelope.attachments if envelope.run_id in contexts else ():
            fields = {name: value for name, value in vars(attachment).items() if not name.endswith("_utc")}
            fields["run_id"] = attachment.run_id or envelope.run_id
            fields["job_id"] = attachment.job_id or envelope.job_id
            fields["source_namespace"] = attachment.source_namespace or envelope.source_namespace
            fields["source_ref"] = attachment.source_ref or envelope.source_ref
            place = attachment.url or attachment.path or str(envelope.path)
            rows.append(RunAttachmentRow(**fields, source_path=place, source_kind="run_envelope_attachment"))
    return rows


def sidecar_attachment_rows(
    attachments: Sequence[ExternalAttachment], identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """What sidecar files name, where it belongs to a run."""
    rows = []
    for attachment in attachments:
        run_id = run_id_for_identity(
            run_id=attachment.run_id,
            session_id=attachment.session_id,
            job_id=attachment.job_id,
            source_namespace=attachment.source_namespace,
            source_ref=attachment.source_ref,
            identity_index=identity_index,
        )
        if run_id is None:
            continue
        skipped = {"run_id", "storage", "sidecar_path", "created_at_utc", "updated_at_utc"}
        fields = {name: value for name, value in vars(attachment).items() if name not in skipped}
        rows.append(
            RunAttachmentRow(
                **fields,
                run_id=run_id,
                storage=attachment_storage_or_default(attachment.storage),
                local_rank=None,
                world_size=None,
                source_path=attachment.url or attachment.path or attachment.sidecar_path,
                source_kind="attachment_sidecar",
            )
        )
    return rows


def sink_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """A sink, its segments and its rollups, for every session in it that belongs to a run."""
    metadata = {"manifest_path": None if source.manifest_path is None else str(source.manifest_path)}
    rows = []
    for summary in manifest.sessions:
        run_id = _run_of(summary.session_id, summary.job_id, identity_index)
        if run_id is not None:
            kinds = ("telemetry_sink", "sink", "Telemetry sink")
            rows.append(_of_session(run_id, summary, str(source.path), kinds, metadata))
    rows += sink_segment_attachment_rows(source, manifest, identity_index)
    if (source.path / ROLLUP_FILENAME).exists():
        rows += rollup_attachment_rows(source, manifest, identity_index)
    return rows


def sink_segment_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """The segments of a sink."""
    sessions = {summary.session_id: summary for summary in manifest.sessions}
    rows = []
    for segment in manifest.segments:
        if segment.session_id is None:
            continue
        summary = sessions.get(segment.session_id)
        job_id = None if summary is None else summary.job_id
        run_id = _run_of(segment.session_id, job_id, identity_index)
        if run_id is None:
            continue
        kinds = ("telemetry_sink_segment", "sink_segment", segment.filename)
        metadata = {
            "event_count": segment.event_count,
            "size_bytes": segment.size_bytes,
            "closed": segment.closed,
        }
        path = str(source.path / segment.filename)
        rows.append(_of_session(run_id, summary, path, kinds, metadata, session_id=segment.session_id))
    return rows


def rollup_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """The rollups of a sink."""
    metadata = {
        "manifest_session_count": len(manifest.sessions),
        "manifest_segment_count": len(manifest.segments),
    }
    rows = []
    for summary in manifest.sessions:
        run_id = _run_of(summary.session_id, summary.job_id, identity_index)
        if run_id is not None:
            kinds = ("telemetry_rollup", "rollup", "Telemetry rollups")
            path = str(source.path / ROLLUP_FILENAME)
            rows.append(_of_session(run_id, summary, path, kinds, metadata))
    return rows


def diagnose_attachment_rows(
    source: CatalogSourceLike, summary: SessionSummary | None, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """A bundle of `diagnose`."""
    run_id = None if summary is None else _run_of(summary.session_id, summary.job_id, identity_index)
    if summary is None or run_id is None:
        return []
    metadata = {
        "manifest_path": None if source.manifest_path is None else str(source.manifest_path),
        "session_status": summary.status,
    }
    kinds = ("diagnose_bundle", "diagnose_bundle", "Diagnose bundle")
    return [_of_session(run_id, summary, str(source.path), kinds, metadata)]


def flat_telemetry_attachment_rows(
    source: CatalogSourceLike, contexts: Mapping[str, RunContext]
) -> list[RunAttachmentRow]:
    """A file of events, once for each of its sessions."""
    index = build_identity_index(contexts)
    rows = []
    for session in (session for context in contexts.values() for session in context.sessions):
        if session.source_path != str(source.path):
            continue
        run_id = _run_of(session.session_id, session.job_id, index)
        if run_id is not None:
            title = Path(session.source_path).name or "Telemetry file"
            kinds = ("telemetry_file", session.source_kind, title)
            metadata = {"event_count": session.event_count}
            rows.append(_of_session(run_id, session, session.source_path, kinds, metadata))
    return rows


def oom_attachment_rows(
    bundles: Sequence[OOMBundleLike],
    identity_index: RunIdentityIndex,
    session_by_id: Mapping[str, SessionRowLike],
) -> list[RunAttachmentRow]:
    """The OOM bundles, each at the moment it was made."""
    rows = []
    for bundle in bundles:
        if bundle.session_id is None:
            continue
        session = session_by_id.get(bundle.session_id)
        job_id = None if session is None else session.job_id
        run_id = _run_of(bundle.session_id, job_id, identity_index)
        if run_id is None:
            continue
        made_ns = utc_ns(bundle.created_at_utc)
        rows.append(
            local_attachment_row(
                run_id=run_id,
                title="OOM bundle",
                kind="oom_bundle",
                path=str(bundle.bundle_path),
                session_id=bundle.session_id,
                job_id=job_id,
                rank=None if session is None else session.rank,
                local_rank=None if session is None else session.local_rank,
                world_size=None if session is None else session.world_size,
                start_ns=made_ns,
                end_ns=made_ns,
                source_kind="oom_bundle",
                metadata=bundle.as_dict(),
            )
        )
    return rows


def local_attachment_row(
    *,
    run_id: str,
    title: str,
    kind: str,
    path: str,
    session_id: str | None,
    job_id: str | None,
    rank: int | None,
    local_rank: int | None,
    world_size: int | None,
    start_ns: int | None,
    end_ns: int | None,
    source_kind: str,
    metadata: Mapping[str, Any],
) -> RunAttachmentRow:
    """A file or directory of ours that belongs to a run."""
    return RunAttachmentRow(
        run_id=run_id,
        title=title,
        kind=kind,
        storage="copy",
        attachment_id=None,
        url=None,
        path=path,
        session_id=session_id,
        job_id=job_id,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        start_ns=start_ns,
        end_ns=end_ns,
        source_path=path,
        source_kind=source_kind,
        source_namespace="stormlog",
        source_ref=None,
        metadata=metadata,
    )


def _run_of(session_id: str, job_id: str | None, index: RunIdentityIndex) -> str | None:
    return run_id_for_identity(
        run_id=None,
        session_id=session_id,
        job_id=job_id,
        source_namespace=None,
        source_ref=None,
        identity_index=index,
    )


def _of_session(
    run_id: str,
    session: SessionSummary | SessionRowLike | None,
    path: str,
    kinds: tuple[str, str, str],
    metadata: Mapping[str, Any],
    *,
    session_id: str | None = None,
) -> RunAttachmentRow:
    """The row of what lasted as long as its session; `kinds` are its kind, its source's, its title."""
    kind, source_kind, title = kinds
    return local_attachment_row(
        run_id=run_id,
        title=title,
        kind=kind,
        path=path,
        session_id=session_id if session is None else session.session_id,
        job_id=None if session is None else session.job_id,
        rank=None if session is None else session.rank,
        local_rank=None if session is None else session.local_rank,
        world_size=None if session is None else session.world_size,
        start_ns=None if session is None else session.started_at_ns,
        end_ns=None if session is None else session.ended_at_ns,
        source_kind=source_kind,
        metadata=metadata,
    )
