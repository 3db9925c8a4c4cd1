"""Reading a `stormlog_run.json`: whole and exact, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from stormlog.run_catalog._models import (
    RUN_ENVELOPE_FORMAT,
    RUN_ENVELOPE_SCHEMA_VERSION,
    AttachmentStorage,
    CatalogRunAttachment,
    CatalogRunEnvelope,
    CatalogRunSessionRef,
)

_Check = Callable[[Any], bool]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _at_least(minimum: int) -> _Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _optional(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _is_storage(value: Any) -> bool:
    return attachment_storage_or_none(value) is not None


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value)) and len(set(value)) == len(value)


def _is_list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_IDENTITY: dict[str, _Check] = {
    "job_id": _optional(_is_name),
    "rank": _optional(_at_least(0)),
    "local_rank": _optional(_at_least(0)),
    "world_size": _optional(_at_least(1)),
    "source_namespace": _optional(_is_name),
    "source_ref": _optional(_is_name),
    "metadata": _is_mapping,
}
_SESSION = {**_IDENTITY, "session_id": _is_name, "role": _optional(_is_name)}
_ATTACHMENT = {
    **_IDENTITY,
    "attachment_id": _optional(_is_name),
    "title": _is_name,
    "kind": _is_name,
    "storage": _is_storage,
    "url": _is_name,
    "path": _is_name,
    "run_id": _optional(_is_name),
    "session_id": _optional(_is_name),
    "start_ns": _optional(_at_least(0)),
    "end_ns": _optional(_at_least(0)),
    "created_at_utc": _optional(_is_text),
    "updated_at_utc": _optional(_is_text),
}


def _is_session(value: Any) -> bool:
    return _has_shape(value, _SESSION, {"session_id", "metadata"})


def _is_attachment(value: Any) -> bool:
    return (
        _has_shape(value, _ATTACHMENT, {"title", "kind", "storage", "metadata"})
        and ("url" in value or "path" in value)
        and _is_ordered(value, "start_ns", "end_ns")
    )


_ENVELOPE: dict[str, _Check] = {
    "schema_version": lambda value: True,
    "format": lambda value: True,
    "run_id": _is_name,
    "title": _optional(_is_name),
    "description": _optional(_is_text),
    "job_id": _optional(_is_name),
    "started_at_ns": _optional(_at_least(0)),
    "ended_at_ns": _optional(_at_least(0)),
    "created_at_utc": _optional(_is_text),
    "updated_at_utc": _optional(_is_text),
    "source_namespace": _optional(_is_name),
    "source_ref": _optional(_is_name),
    "tags": _is_tags,
    "sessions": _is_list_of(_is_session),
    "attachments": _is_list_of(_is_attachment),
    "metadata": _is_mapping,
}


def _has_shape(value: Any, checks: Mapping[str, _Check], required: set[str]) -> bool:
    return (
        isinstance(value, Mapping)
        and required <= value.keys() <= checks.keys()
        and all(checks[key](given) for key, given in value.items())
    )


def _is_ordered(value: Mapping[str, Any], first: str, last: str) -> bool:
    start, end = value.get(first), value.get(last)
    return start is None or end is None or end >= start


def run_envelope_from_payload(payload: Mapping[str, Any], envelope_path: Path) -> CatalogRunEnvelope | None:
    """What the file says; None if anything in it is missing, unknown or of the wrong kind."""
    required = {"schema_version", "format", "run_id", "metadata"}
    if not (
        is_run_envelope(payload)
        and _has_shape(payload, _ENVELOPE, required)
        and _is_ordered(payload, "started_at_ns", "ended_at_ns")
    ):
        return None
    run_id = payload["run_id"]
    told = {key: payload.get(key) for key in _ENVELOPE if key not in {"schema_version", "format"}}
    told["tags"] = tuple(payload.get("tags", ()))
    told["sessions"] = tuple(map(_session, payload.get("sessions", ())))
    attachments = payload.get("attachments", ())
    told["attachments"] = tuple(_attachment(item, envelope_path, run_id) for item in attachments)
    told["metadata"] = dict(payload["metadata"])
    return CatalogRunEnvelope(path=envelope_path, **cast(dict[str, Any], told))


def is_run_envelope(payload: Mapping[str, Any]) -> bool:
    """Whether it calls itself a run of the version we know."""
    version = payload.get("schema_version")
    is_known = version == RUN_ENVELOPE_SCHEMA_VERSION and type(version) is int
    return is_known and payload.get("format") == RUN_ENVELOPE_FORMAT


def attachment_storage_or_none(value: Any) -> AttachmentStorage | None:
    """How an attachment is kept; None for what is no way to keep one."""
    return cast(AttachmentStorage, value) if value in ("reference", "copy") else None


def attachment_storage_or_default(value: Any) -> AttachmentStorage:
    """How an attachment is kept; a reference where it does not say."""
    return attachment_storage_or_none(value) or "reference"


def resolved_beside(path: str | None, file: Path) -> str | None:
    """A path as a file beside it means it."""
    return None if path is None else str((file.parent / path).resolve())


def _session(item: Mapping[str, Any]) -> CatalogRunSessionRef:
    told = {key: item.get(key) for key in _SESSION}
    told["metadata"] = dict(item["metadata"])
    return CatalogRunSessionRef(**cast(dict[str, Any], told))


def _attachment(item: Mapping[str, Any], file: Path, run_id: str) -> CatalogRunAttachment:
    told = {key: item.get(key) for key in _ATTACHMENT}
    told["path"] = resolved_beside(item.get("path"), file)
    told["run_id"] = item.get("run_id") or run_id
    told["metadata"] = dict(item["metadata"])
    return CatalogRunAttachment(**cast(dict[str, Any], told))
