"""Telemetry events of schemas 2, 3 and 4: make, check, read, load and project them.

The rules and the readers are native; what is here is their Python face. Making an event checks it, except
where the reader that made it has checked it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from stormlog import _native
from stormlog._telemetry.event_list import TelemetryEventList, passing
from stormlog.session import SessionSummary, select_default_loaded_session, session_summary_of
from stormlog.telemetry_model import (
    ProjectedTelemetryRecord,
    project_telemetry_mapping,
    unique_projected_correlations,
    unique_projected_resources,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "SCHEMA_VERSION_LATEST",
    "SCHEMA_VERSION_V2",
    "SCHEMA_VERSION_V3",
    "SCHEMA_VERSION_V4",
    "LoadedTelemetrySession",
    "ProjectedTelemetryRecord",
    "TelemetryEvent",
    "TelemetryEventLike",
    "TelemetryEventList",
    "TelemetryEventV2",
    "TelemetryEventV3",
    "TelemetryEventV4",
    "load_telemetry_events",
    "load_telemetry_sessions",
    "project_telemetry_event",
    "project_telemetry_events",
    "resolve_distributed_identity",
    "telemetry_event_from_record",
    "telemetry_event_to_dict",
    "validate_telemetry_record",
]

SCHEMA_VERSION_V2: Literal[2] = 2
SCHEMA_VERSION_V3: Literal[3] = 3
SCHEMA_VERSION_V4: Literal[4] = 4
SCHEMA_VERSION_LATEST: Literal[4] = SCHEMA_VERSION_V4
UNKNOWN_PID = -1
UNKNOWN_HOST = "unknown"


@dataclass
class TelemetryEventV2:
    """An event of schema 2: no session."""

    schema_version: Literal[2]
    timestamp_ns: int
    event_type: str
    collector: str
    sampling_interval_ms: int
    pid: int
    host: str
    device_id: int
    allocator_allocated_bytes: int
    allocator_reserved_bytes: int
    allocator_active_bytes: int | None
    allocator_inactive_bytes: int | None
    allocator_change_bytes: int
    device_used_bytes: int
    device_free_bytes: int | None
    device_total_bytes: int | None
    context: str | None
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate_telemetry_record(telemetry_event_to_dict(self))


@dataclass
class TelemetryEventV3:
    """An event of schema 3: it names its session."""

    schema_version: Literal[3]
    session_id: str
    timestamp_ns: int
    event_type: str
    collector: str
    sampling_interval_ms: int
    pid: int
    host: str
    device_id: int
    allocator_allocated_bytes: int
    allocator_reserved_bytes: int
    allocator_active_bytes: int | None
    allocator_inactive_bytes: int | None
    allocator_change_bytes: int
    device_used_bytes: int
    device_free_bytes: int | None
    device_total_bytes: int | None
    context: str | None
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate_telemetry_record(telemetry_event_to_dict(self))


@dataclass
class TelemetryEventV4:
    """An event of schema 4: any counter may be unknown, and `metadata` says which ever can be known."""

    schema_version: Literal[4]
    session_id: str
    timestamp_ns: int
    event_type: str
    collector: str
    sampling_interval_ms: int
    pid: int
    host: str
    device_id: int
    allocator_allocated_bytes: int | None
    allocator_reserved_bytes: int | None
    allocator_active_bytes: int | None
    allocator_inactive_bytes: int | None
    allocator_change_bytes: int | None
    device_used_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None
    context: str | None
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validate_telemetry_record(telemetry_event_to_dict(self))


TelemetryEvent = TelemetryEventV4
TelemetryEventLike = TelemetryEventV2 | TelemetryEventV3 | TelemetryEventV4

# Keys of the object form, in the order in which they are written; a schema 2 event has no `session_id`.
_KEYS_V4 = (
    *("schema_version", "session_id", "timestamp_ns", "event_type", "collector", "sampling_interval_ms"),
    *("pid", "host", "job_id", "rank", "local_rank", "world_size", "device_id"),
    *("allocator_allocated_bytes", "allocator_reserved_bytes", "allocator_active_bytes"),
    *("allocator_inactive_bytes", "allocator_change_bytes", "device_used_bytes", "device_free_bytes"),
    *("device_total_bytes", "context"),
)
_KEYS_V2 = tuple(key for key in _KEYS_V4 if key != "session_id")

OPTIONAL_V4_FIELDS = OPTIONAL_V3_FIELDS = OPTIONAL_V2_FIELDS = ("job_id", "rank", "local_rank", "world_size")
REQUIRED_V4_FIELDS = REQUIRED_V3_FIELDS = (
    *(key for key in _KEYS_V4 if key not in OPTIONAL_V4_FIELDS),
    "metadata",
)
REQUIRED_V2_FIELDS = tuple(key for key in REQUIRED_V3_FIELDS if key != "session_id")
KNOWN_V4_FIELD_SET = KNOWN_V3_FIELD_SET = frozenset((*_KEYS_V4, "metadata"))
KNOWN_V2_FIELD_SET = KNOWN_V3_FIELD_SET - {"session_id"}


@dataclass
class LoadedTelemetrySession:
    """The events of one session with what is known about it."""

    summary: SessionSummary
    events: MutableSequence[TelemetryEventV4]
    sources_loaded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def telemetry_records(self) -> list[ProjectedTelemetryRecord]:
        """The events in the common envelope."""
        return project_telemetry_events(self.events)

    def resources(self) -> list[dict[str, Any]]:
        """Every observed resource, once."""
        return unique_projected_resources(map(project_telemetry_event, passing(self.events)))

    def correlations(self) -> list[dict[str, Any]]:
        """Every correlation, once."""
        return unique_projected_correlations(map(project_telemetry_event, passing(self.events)))


def validate_telemetry_record(record: Mapping[str, Any]) -> None:
    """Checks a record of schema 2, 3 or 4: ValueError for the first rule it breaks."""
    _native.telemetry.validate_record(record)


def telemetry_event_to_dict(event: TelemetryEventLike) -> dict[str, Any]:
    """The object form of an event, keys in the order in which they are written."""
    keys = _KEYS_V2 if isinstance(event, TelemetryEventV2) else _KEYS_V4
    record = {key: getattr(event, key) for key in keys}
    record["metadata"] = dict(event.metadata)
    return record


def telemetry_event_from_record(
    record: Mapping[str, Any],
    permissive_legacy: bool = True,
    default_collector: str = "legacy.unknown",
    default_sampling_interval_ms: int = 0,
    default_session_id: str | None = None,
) -> TelemetryEventV4:
    """Reads a record of schema 2, 3 or 4, or one from before the schemas, as an event of schema 4."""
    return _native.telemetry.event_from_record(
        TelemetryEventV4,
        record,
        permissive_legacy,
        default_collector,
        default_sampling_interval_ms,
        default_session_id,
    )


def resolve_distributed_identity(
    *,
    job_id: Any = None,
    rank: Any = None,
    local_rank: Any = None,
    world_size: Any = None,
    metadata: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Job id, rank, local rank and world size: explicit values, then metadata, then environment."""
    return _native.telemetry.resolve_distributed_identity(job_id, rank, local_rank, world_size, metadata, env)


def load_telemetry_sessions(
    path: str | Path, permissive_legacy: bool = True, events_key: str | None = None
) -> list[LoadedTelemetrySession]:
    """The sessions at a path (a file of any format we write, or a directory), the default one first."""
    found = _native.telemetry.load_sessions(path, permissive_legacy, events_key)
    return [loaded_session_of(session) for session in found]


def loaded_session_of(found: _native.telemetry.LoadedSession) -> LoadedTelemetrySession:
    """The Python face of a session that was loaded natively."""
    return LoadedTelemetrySession(
        summary=session_summary_of(found.summary),
        events=TelemetryEventList(buffer=found.events, event_class=TelemetryEventV4),
        sources_loaded=found.sources,
        warnings=found.warnings,
    )


def load_telemetry_events(
    path: str | Path,
    permissive_legacy: bool = True,
    events_key: str | None = None,
    session_id: str | None = None,
) -> MutableSequence[TelemetryEventV4]:
    """The events of one session at a path: the named one, or the one meant by default."""
    sessions = load_telemetry_sessions(path, permissive_legacy, events_key)
    if not sessions:
        return []
    if session_id is None:
        chosen = select_default_loaded_session(sessions)
    else:
        chosen = next((one for one in sessions if one.summary.session_id == session_id), None)
        if chosen is None:
            raise ValueError(f"Requested session_id not found: {session_id}")
    events: MutableSequence[TelemetryEventV4] = chosen.events if chosen is not None else []
    return events


def project_telemetry_event(event: TelemetryEvent | Mapping[str, Any]) -> ProjectedTelemetryRecord:
    """An event, or a record of any schema, in the common envelope."""
    if not isinstance(event, (TelemetryEventV3, TelemetryEventV4)):
        event = telemetry_event_from_record(event)
    return project_telemetry_mapping(telemetry_event_to_dict(event))


def project_telemetry_events(
    events: Iterable[TelemetryEvent | Mapping[str, Any]],
) -> list[ProjectedTelemetryRecord]:
    """Events or records in the common envelope."""
    return [project_telemetry_event(event) for event in passing(events)]
