# Telemetry records, events, sessions and their files: the submodule `stormlog._native.telemetry`.
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, final

__all__ = [
    "EventBuffer",
    "Recorder",
    "derive_event",
    "derive_session",
    "event_from_record",
    "first_events",
    "legacy_session_id",
    "likely_events",
    "load_sessions",
    "memory_feature_enabled",
    "new_session_id",
    "normalize_session_status",
    "resolve_distributed_identity",
    "session_summary_from_record",
    "validate_record",
]

# The fields of a TelemetryEventV4 in its order.
_EventFields: TypeAlias = tuple[
    Literal[4],
    str,
    int,
    str,
    str,
    int,
    int,
    str,
    int,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str | None,
    int,
    int,
    int,
    dict[str, Any],
]
# The fields of a SessionSummary in its order.
_SummaryFields: TypeAlias = tuple[str, str, int, int | None, str, int, str | None, int, int, int, str]

@final
class EventBuffer:
    def __len__(self) -> int: ...
    def fields(self, index: int) -> _EventFields: ...

def validate_record(record: Mapping[str, Any]) -> None: ...
def event_from_record(
    record: Mapping[str, Any],
    permissive_legacy: bool,
    default_collector: str,
    default_sampling_interval_ms: object,
    default_session_id: str | None,
) -> _EventFields: ...
def resolve_distributed_identity(
    job_id: object,
    rank: object,
    local_rank: object,
    world_size: object,
    metadata: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
) -> tuple[str | None, int, int, int]: ...
def load_sessions(
    path: str | os.PathLike[str], permissive_legacy: bool, events_key: str | None
) -> list[tuple[_SummaryFields, EventBuffer, list[str], list[str]]]: ...
def new_session_id() -> str: ...
def legacy_session_id(parts: Sequence[str]) -> str: ...
def normalize_session_status(value: object) -> str: ...
def session_summary_from_record(payload: Mapping[str, Any]) -> _SummaryFields: ...
def derive_event(event: object) -> tuple[int | None, float | None, float | None, float | None, bool]: ...
def derive_session(events: Iterable[object]) -> tuple[float | None, float | None]: ...
def memory_feature_enabled(event: object, feature: str) -> bool: ...

# Kind and path of everything with telemetry at a path.
def likely_events(
    buffer: EventBuffer,
    types: Sequence[str] | None,
    said: Sequence[tuple[str, Sequence[str] | None]],
    rank: int | None,
    time_ns: tuple[int | None, int | None],
) -> list[int]: ...
def first_events(buffer: EventBuffer) -> list[int]: ...

@final
class Recorder:
    def __new__(
        cls, directory: str | os.PathLike[str], summary: str, ring_slots: int, keep_log: bool
    ) -> Self: ...
    def append(self, record: str) -> bool: ...
    def loss(self) -> tuple[int, int, str | None]: ...
    def close(self, status: str, ended_at_ns: int) -> None: ...
