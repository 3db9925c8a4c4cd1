# Trackers, phases, and the memory of this process: the submodule `stormlog._native.tracking`.
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias, final

from stormlog._native.telemetry import Session
from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.failure import Holder
from stormlog.session import SessionSummary
from stormlog.telemetry_sink import TelemetrySinkConfig

__all__ = [
    "Boundary",
    "Phases",
    "ProcessProbe",
    "Reading",
    "Sample",
    "Tracker",
    "TrackerSettings",
    "host_memory",
]

# RSS at the start, the mark before, whether the mark was reset.
_Window: TypeAlias = tuple[int, int | None, bool]

# The memory of a device or process at one moment, in bytes; None is unknown.
@final
class Sample:
    def __new__(
        cls,
        device_id: int,
        *,
        allocated: int | None = None,
        reserved: int | None = None,
        used: int | None = None,
        free: int | None = None,
        total: int | None = None,
        active: int | None = None,
        inactive: int | None = None,
    ) -> Self: ...
    @property
    def device_id(self) -> int: ...
    @property
    def allocated(self) -> int | None: ...
    @property
    def reserved(self) -> int | None: ...
    @property
    def used(self) -> int | None: ...
    @property
    def free(self) -> int | None: ...
    @property
    def total(self) -> int | None: ...
    @property
    def active(self) -> int | None: ...
    @property
    def inactive(self) -> int | None: ...

# What a collector answers with: the sample, the fields it could not fill, its error, other numbers by name.
@final
class Reading:
    def __new__(
        cls,
        sample: Sample | None,
        *,
        partial_fields: Sequence[str] = ...,
        error: str | None = None,
        facts: Mapping[str, int] = ...,
    ) -> Self: ...
    @property
    def sample(self) -> Sample | None: ...
    @property
    def partial_fields(self) -> list[str]: ...
    @property
    def error(self) -> str | None: ...
    @property
    def facts(self) -> dict[str, int]: ...

# `metadata` is the JSON text that every event's metadata ends with; `wording` is `cpu` or `device`.
@final
class TrackerSettings:
    def __new__(
        cls,
        *,
        session: SessionSummary,
        collector: str,
        backend: str,
        sampling_interval: float,
        max_events: int,
        metadata: str,
        wording: str,
        flight_events: int = 0,
        max_dumps: int = 0,
        max_total_mb: int = 0,
        says_health: bool = False,
        alerts: bool = False,
        thresholds: Mapping[str, float] = ...,
        total_bytes: int | None = None,
    ) -> Self: ...

# The event to emit where a phase begins or ends; its metadata is JSON text.
@final
class Boundary:
    @property
    def event_type(self) -> str: ...
    @property
    def context(self) -> str: ...
    @property
    def metadata(self) -> str: ...
    @property
    def scope_id(self) -> str: ...
    @property
    def path(self) -> list[str]: ...

@final
class Phases:
    def __new__(cls) -> Self: ...
    def reset(self) -> None: ...
    def enter(
        self, session_id: str, rank: int, thread: tuple[int, str], name: str, attributes: str
    ) -> Boundary: ...
    def exit(self, session_id: str, rank: int, scope_id: str, thread_id: int) -> Boundary: ...

@final
class ProcessProbe:
    def __new__(cls) -> Self: ...
    def memory(self) -> tuple[int, int]: ...
    def peak_rss(self) -> int | None: ...
    def begin_peak(self) -> _Window: ...
    def end_peak(self, window: _Window) -> tuple[int, int | None]: ...

def host_memory() -> tuple[int | None, int | None]: ...

@final
class Tracker:
    def __new__(
        cls,
        settings: TrackerSettings,
        event_class: type[TrackingEvent],
        sink: TelemetrySinkConfig | None,
        recording_dir: str | os.PathLike[str] | None,
        collector: Callable[[], Reading] | None,
        on_alert: Callable[[TrackingEvent], object] | None,
    ) -> Self: ...
    def start(self) -> None: ...
    def stop(self, longest: float) -> bool: ...
    def is_running(self) -> bool: ...
    def add_event(
        self,
        event_type: str,
        change: int | None,
        context: str | None,
        metadata: str | None,
        sample: Sample | None,
    ) -> None: ...
    def events(
        self, event_types: Sequence[str] | None, last: int | None, since: float | None
    ) -> list[TrackingEvent]: ...
    def records(self, last: int | None) -> list[dict[str, Any]]: ...
    def count_since(self, since: float) -> int: ...
    def timeline(self, interval: float) -> tuple[list[float], list[list[int | None]]]: ...
    def statistics(self) -> dict[str, Any]: ...
    def sample_now(self) -> Reading: ...
    def set_threshold(self, name: str, value: float) -> None: ...
    def clear(self) -> None: ...
    def session(self) -> Session | None: ...
    def take_warnings(self) -> list[str]: ...
    def export(self, path: str | os.PathLike[str], format: str) -> bool: ...
    # `exception` is the class's name, its module and the text.
    def dump(
        self,
        *,
        root: str | os.PathLike[str],
        backend: str,
        reason: str,
        cause: str | None,
        exception: tuple[str, str, str],
        context: str | None,
        custom_metadata: Mapping[str, Any],
        system: Mapping[str, Any],
        held_by: Sequence[Holder] = ...,
        tries: Sequence[str] = ...,
    ) -> Path | None: ...
