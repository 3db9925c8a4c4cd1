# Telemetry records, events, sessions and their files: the submodule `stormlog._native.telemetry`.
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, final

from stormlog.derived_fields import DerivedFields
from stormlog.session import SessionSummary

__all__ = [
    "EventBuffer",
    "LoadedSession",
    "Recorder",
    "Session",
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

_Event = TypeVar("_Event")

@final
class Session:
    @property
    def session_id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started_at_ns(self) -> int: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def source(self) -> str: ...

# An event is made without its `__init__`: the reader has checked it.
@final
class EventBuffer:
    def __len__(self) -> int: ...
    def event(self, index: int, event_class: type[_Event], /) -> _Event: ...

@final
class LoadedSession:
    @property
    def summary(self) -> Session: ...
    @property
    def events(self) -> EventBuffer: ...
    @property
    def sources(self) -> list[str]: ...
    @property
    def warnings(self) -> list[str]: ...

def validate_record(record: Mapping[str, Any]) -> None: ...
def event_from_record(
    event_class: type[_Event],
    record: Mapping[str, Any],
    permissive_legacy: bool,
    default_collector: str,
    default_sampling_interval_ms: object,
    default_session_id: str | None,
    /,
) -> _Event: ...
def resolve_distributed_identity(
    job_id: object,
    rank: object,
    local_rank: object,
    world_size: object,
    metadata: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
) -> dict[str, Any]: ...
def load_sessions(
    path: str | os.PathLike[str], permissive_legacy: bool, events_key: str | None
) -> list[LoadedSession]: ...
def new_session_id() -> str: ...
def legacy_session_id(parts: Sequence[str]) -> str: ...
def normalize_session_status(value: object) -> str: ...
def session_summary_from_record(payload: Mapping[str, Any]) -> Session: ...
def derive_event(event: object) -> DerivedFields: ...
def derive_session(events: Iterable[object]) -> tuple[float | None, float | None]: ...
def memory_feature_enabled(event: object, feature: str) -> bool: ...
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
        cls, directory: str | os.PathLike[str], summary: SessionSummary, ring_slots: int, keep_log: bool
    ) -> Self: ...
    def append(self, record: Mapping[str, Any]) -> bool: ...
    def sample(self, event_type: str, context: str | None, interval_s: float) -> bool: ...
    def loss(self) -> tuple[int, int, str | None]: ...
    def close(self, status: str, ended_at_ns: int) -> None: ...
