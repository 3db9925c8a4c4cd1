"""What belongs to a run, as rows: sinks and their segments, rollups, bundles, files, and what was named.

How a row is made is a native rule (`crates/catalog/src/query/attachment_row.rs`), the same as for the
commands; metadata stays the caller's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stormlog import _native
from stormlog.correlation import ExternalAttachment
from stormlog.run_catalog._contexts import build_identity_index
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
    return [
        RunAttachmentRow(**_native.catalog.envelope_attachment(one, envelope), metadata=one.metadata)
        for envelope in envelopes
        if envelope.run_id in contexts
        for one in envelope.attachments
    ]


def sidecar_attachment_rows(
    attachments: Sequence[ExternalAttachment], identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """What sidecar files name, where it belongs to a run."""
    rows = ((_native.catalog.sidecar_attachment(one, identity_index), one) for one in attachments)
    return [RunAttachmentRow(**row, metadata=one.metadata) for row, one in rows if row is not None]


def sink_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """A sink, its segments and its rollups, for every session in it that belongs to a run."""
    rows = _rows(
        _native.catalog.sink_attachments(source.path, source.manifest_path, manifest.sessions, identity_index)
    )
    rows += sink_segment_attachment_rows(source, manifest, identity_index)
    if (source.path / ROLLUP_FILENAME).exists():
        rows += rollup_attachment_rows(source, manifest, identity_index)
    return rows


def sink_segment_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """The segments of a sink."""
    return _rows(
        _native.catalog.segment_attachments(source.path, manifest.segments, manifest.sessions, identity_index)
    )


def rollup_attachment_rows(
    source: CatalogSourceLike, manifest: TelemetrySinkManifest, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """The rollups of a sink."""
    segments = len(manifest.segments)
    return _rows(_native.catalog.rollup_attachments(source.path, manifest.sessions, segments, identity_index))


def diagnose_attachment_rows(
    source: CatalogSourceLike, summary: SessionSummary | None, identity_index: RunIdentityIndex
) -> list[RunAttachmentRow]:
    """A bundle of `diagnose`."""
    if summary is None:
        return []
    return _rows(
        _native.catalog.diagnose_attachments(
            source.path, source.manifest_path, summary, summary.status, identity_index
        )
    )


def flat_telemetry_attachment_rows(
    source: CatalogSourceLike, contexts: Mapping[str, RunContext]
) -> list[RunAttachmentRow]:
    """A file of events, once for each of its sessions."""
    sessions = [session for context in contexts.values() for session in context.sessions]
    here = [session for session in sessions if session.source_path == str(source.path)]
    return _rows(_native.catalog.file_attachments(here, build_identity_index(contexts)))


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
        row = _native.catalog.bundle_attachment(
            bundle.bundle_path, bundle.created_at_utc, bundle.session_id, session, identity_index
        )
        if row is not None:
            rows.append(RunAttachmentRow(**row, metadata=bundle.as_dict()))
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


def _rows(found: Sequence[dict[str, Any]]) -> list[RunAttachmentRow]:
    return [RunAttachmentRow(**row) for row in found]
