"""Runs: what was started together, and everything that belongs to it.

A run is what a `stormlog_run.json` says, or the sessions of one job. Nothing here reads a directory: the rows
are made of what `stormlog.query` has found.
"""

from stormlog.run_catalog._attachments import (
    diagnose_attachment_rows,
    envelope_attachment_rows,
    flat_telemetry_attachment_rows,
    local_attachment_row,
    oom_attachment_rows,
    rollup_attachment_rows,
    sidecar_attachment_rows,
    sink_attachment_rows,
    sink_segment_attachment_rows,
)
from stormlog.run_catalog._contexts import (
    build_identity_index,
    build_run_contexts,
    run_attachment_matches,
    run_id_for_identity,
    run_matches,
)
from stormlog.run_catalog._envelope import (
    attachment_storage_or_default,
    attachment_storage_or_none,
    is_run_envelope,
    run_envelope_from_payload,
)
from stormlog.run_catalog._models import (
    RUN_ENVELOPE_FILENAME,
    RUN_ENVELOPE_FORMAT,
    RUN_ENVELOPE_SCHEMA_VERSION,
    AttachmentStorage,
    CatalogRunAttachment,
    CatalogRunEnvelope,
    CatalogRunSessionRef,
    RunAttachmentFilter,
    RunAttachmentRow,
    RunContext,
    RunFilter,
    RunIdentityConflict,
    RunIdentityIndex,
    RunRow,
)

__all__ = [
    "RUN_ENVELOPE_FILENAME",
    "RUN_ENVELOPE_FORMAT",
    "RUN_ENVELOPE_SCHEMA_VERSION",
    "AttachmentStorage",
    "CatalogRunAttachment",
    "CatalogRunEnvelope",
    "CatalogRunSessionRef",
    "RunAttachmentFilter",
    "RunAttachmentRow",
    "RunContext",
    "RunFilter",
    "RunIdentityConflict",
    "RunIdentityIndex",
    "RunRow",
    "attachment_storage_or_default",
    "attachment_storage_or_none",
    "build_identity_index",
    "build_run_contexts",
    "diagnose_attachment_rows",
    "envelope_attachment_rows",
    "flat_telemetry_attachment_rows",
    "is_run_envelope",
    "local_attachment_row",
    "oom_attachment_rows",
    "rollup_attachment_rows",
    "run_attachment_matches",
    "run_envelope_from_payload",
    "run_id_for_identity",
    "run_matches",
    "sidecar_attachment_rows",
    "sink_attachment_rows",
    "sink_segment_attachment_rows",
]
