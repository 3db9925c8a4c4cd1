"""Telemetry records in one envelope that does not depend on the backend: resource, attributes, correlation.

The identity of a record is a digest of its JSON text, so that the same event has the same `record_id`
wherever and by whatever release it is projected. Projected records are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

__all__ = [
    "TELEMETRY_PROJECTION_SCHEMA_VERSION",
    "ProjectedTelemetryRecord",
    "project_telemetry_mapping",
    "projected_record_to_dict",
    "unique_projected_correlations",
    "unique_projected_resources",
]

TELEMETRY_PROJECTION_SCHEMA_VERSION: Literal[1] = 1

_BACKENDS_IN_COLLECTOR_NAMES = ("cuda", "rocm", "mps", "cpu", "tensorflow")
_SEVERITY_OF_EVENT_TYPE = {
    "critical": "critical",
    "error": "error",
    "warning": "warning",
    "collector_degraded": "warning",
    **dict.fromkeys(
        ("collector_recovered", "start", "stop", "phase_enter", "phase_exit", "sample"),
        "info",
    ),
}
_IDENTITY = ("job_id", "rank", "local_rank", "world_size")
_ATTRIBUTE_OF_FIELD = {
    "sampling_interval_ms": "sampling.interval_ms",
    "allocator_allocated_bytes": "memory.allocator.allocated_bytes",
    "allocator_reserved_bytes": "memory.allocator.reserved_bytes",
    "allocator_active_bytes": "memory.allocator.active_bytes",
    "allocator_inactive_bytes": "memory.allocator.inactive_bytes",
    "allocator_change_bytes": "memory.allocator.change_bytes",
    "device_used_bytes": "memory.device.used_bytes",
    "device_free_bytes": "memory.device.free_bytes",
    "device_total_bytes": "memory.device.total_bytes",
}


@dataclass(frozen=True)
class ProjectedTelemetryRecord:
    """One event in the common envelope."""

    schema_version: Literal[1]
    record_id: str
    timestamp_ns: int
    observed_timestamp_ns: int
    session_id: str
    source_kind: str
    event_type: str
    stage: str | None
    severity: str | None
    severity_text: str | None
    body: str | None
    resource: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[str, Any] = field(default_factory=dict)


def project_telemetry_mapping(
    record: Mapping[str, Any], *, observed_timestamp_ns: int | None = None
) -> ProjectedTelemetryRecord:
    """Projects a record; it was observed when it was recorded, unless another time is given."""
    session_id = record.get("session_id")
    if not _is_text(session_id):
        raise ValueError("projected telemetry record requires session_id")
    timestamp_ns = record.get("timestamp_ns")
    if not _is_integer(timestamp_ns):
        raise ValueError("projected telemetry record requires integer timestamp_ns")
    if observed_timestamp_ns is not None:
        if not _is_integer(observed_timestamp_ns):
            raise ValueError("projected telemetry record requires integer observed_timestamp_ns")
        if observed_timestamp_ns < 0:
            raise ValueError("projected telemetry record requires non-negative observed_timestamp_ns")
    event_type = record.get("event_type")
    if not _is_text(event_type):
        raise ValueError("projected telemetry record requires event_type")
    metadata = record.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise ValueError("projected telemetry record metadata must be a mapping")

    kind = _source_kind(record, metadata)
    severity_text = metadata.get("severity_text")
    body = record.get("context")
    return ProjectedTelemetryRecord(
        schema_version=TELEMETRY_PROJECTION_SCHEMA_VERSION,
        record_id=_record_id(record),
        timestamp_ns=timestamp_ns,
        observed_timestamp_ns=timestamp_ns if observed_timestamp_ns is None else observed_timestamp_ns,
        session_id=session_id,
        source_kind=kind,
        event_type=event_type,
        stage=_stage(metadata),
        severity=_severity(event_type, metadata),
        severity_text=None if severity_text is None else str(severity_text),
        body=None if body is None else str(body),
        resource=_frozen(_resource(record, kind)),
        attributes=_frozen(_attributes(record, metadata)),
        correlation=_frozen(_correlation(record, metadata)),
    )


def projected_record_to_dict(record: ProjectedTelemetryRecord) -> dict[str, Any]:
    """The record as plain dictionaries and lists, keys in the order of the class."""
    return {name: _thawed(value) for name, value in vars(record).items()}


def unique_projected_resources(records: Iterable[ProjectedTelemetryRecord]) -> list[dict[str, Any]]:
    """Every resource that occurs, once, in order of appearance."""
    return _unique(records, lambda record: record.resource)


def unique_projected_correlations(records: Iterable[ProjectedTelemetryRecord]) -> list[dict[str, Any]]:
    """Every correlation that occurs, once, in order of appearance."""
    return _unique(records, lambda record: record.correlation)


def _unique(
    records: Iterable[ProjectedTelemetryRecord],
    part: Callable[[ProjectedTelemetryRecord], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        value = _thawed(part(record))
        found.setdefault(_canonical_text(value), value)
    return list(found.values())


def _source_kind(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    backend = metadata.get("backend")
    if _is_text(backend):
        return backend.strip().lower()
    collector = record.get("collector")
    if isinstance(collector, str):
        lower = collector.lower()
        for name in _BACKENDS_IN_COLLECTOR_NAMES:
            if name in lower:
                return name
    device_id = record.get("device_id")
    return "gpu" if isinstance(device_id, int) and device_id >= 0 else "other"


def _stage(metadata: Mapping[str, Any]) -> str | None:
    scope = metadata.get("phase_scope")
    if not isinstance(scope, Mapping):
        return None
    name = scope.get("name")
    path = scope.get("path")
    if not _is_text(name) and isinstance(path, list) and path:
        name = path[-1]
    return name if _is_text(name) else None


def _severity(event_type: str, metadata: Mapping[str, Any]) -> str | None:
    stated = metadata.get("severity")
    if _is_text(stated):
        return stated.strip().lower()
    return _SEVERITY_OF_EVENT_TYPE.get(event_type.strip().lower())


def _resource(record: Mapping[str, Any], kind: str) -> dict[str, Any]:
    names = ("collector", "host", "pid", "device_id", *_IDENTITY)
    return {"source_kind": kind, **{name: record.get(name) for name in names}}


def _attributes(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {**metadata, **{name: record.get(key) for key, name in _ATTRIBUTE_OF_FIELD.items()}}


def _correlation(record: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    correlation = {name: record.get(name) for name in ("session_id", *_IDENTITY)}
    scope = metadata.get("phase_scope")
    if isinstance(scope, Mapping):
        for name in ("scope_id", "parent_scope_id", "sequence"):
            if scope.get(name) is not None:
                correlation[f"phase.{name}"] = scope[name]
    return correlation


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _record_id(record: Mapping[str, Any]) -> str:
    import hashlib  # not at the top: loading events needs neither it nor `json`

    # 32 hexadecimal digits are 128 bits: enough to tell any two records apart.
    digest = hashlib.sha256(_canonical_text(record).encode("utf-8")).hexdigest()
    return f"telemetry-{digest[:32]}"


def _canonical_text(value: Mapping[str, Any]) -> str:
    import json

    # Keys that are no strings become strings only when written: hence once more, to sort them as such.
    written = json.dumps(_thawed(value), sort_keys=True, default=str)
    return json.dumps(json.loads(written), sort_keys=True)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({str(key): _frozen(inner) for key, inner in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(inner) for inner in value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _thawed(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_thawed(inner) for inner in value]
    return value
