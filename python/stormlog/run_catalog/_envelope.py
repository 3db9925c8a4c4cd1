"""Reading a `stormlog_run.json`: whole and exact, or not at all.

What a file may contain is a native rule (`crates/catalog/src/query/envelope.rs`); metadata stays the
caller's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from stormlog import _native
from stormlog.run_catalog._models import (
    AttachmentStorage,
    CatalogRunAttachment,
    CatalogRunEnvelope,
    CatalogRunSessionRef,
)


def run_envelope_from_payload(payload: Mapping[str, Any], envelope_path: Path) -> CatalogRunEnvelope | None:
    """What the file states; None if anything in it is missing, unknown or of the wrong kind."""
    row = _native.catalog.run_envelope(payload, envelope_path)
    if row is None:
        return None
    for name in ("sessions", "attachments"):
        for part, given in zip(row[name], payload.get(name) or (), strict=True):
            part["metadata"] = dict(given["metadata"])
    row["metadata"] = dict(payload["metadata"])
    return envelope_of(row)


def envelope_of(row: Mapping[str, Any]) -> CatalogRunEnvelope:
    """The envelope of a row of the native catalog."""
    parts = {
        "path": Path(row["path"]),
        "tags": tuple(row["tags"]),
        "sessions": tuple(CatalogRunSessionRef(**one) for one in row["sessions"]),
        "attachments": tuple(CatalogRunAttachment(**one) for one in row["attachments"]),
    }
    return CatalogRunEnvelope(**{**row, **parts})


def is_run_envelope(payload: Mapping[str, Any]) -> bool:
    """Whether it calls itself a run of the version we know."""
    return _native.catalog.is_run_envelope(payload)


def attachment_storage_or_none(value: Any) -> AttachmentStorage | None:
    """How an attachment is kept; None for what is not a way to keep one."""
    return cast(AttachmentStorage, value) if value in ("reference", "copy") else None


def attachment_storage_or_default(value: Any) -> AttachmentStorage:
    """How an attachment is kept; a reference where it does not say."""
    return attachment_storage_or_none(value) or "reference"
