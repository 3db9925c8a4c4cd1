"""What can be asked for, and the rows of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stormlog._row import Row
from stormlog.issues import IssueKind, IssueState
from stormlog.telemetry import TelemetryEvent, telemetry_event_to_dict

SummaryMetric = Literal[
    "session_count_by_status",
    "peak_allocator_allocated_bytes",
    "peak_allocator_reserved_bytes",
    "peak_device_used_bytes",
    "alert_count",
    "collector_degradation_transitions",
    "interrupted_sessions_with_oom_bundles",
    "hidden_memory_gap_growth",
]
SummaryGroupBy = Literal["session", "session-rank", "rank", "status"]


@dataclass(frozen=True)
class SessionFilter:
    """Which sessions; None is any."""

    session_id: str | None = None
    status: str | None = None
    job_id: str | None = None
    rank: int | None = None
    world_size: int | None = None
    has_oom_bundle: bool | None = None
    source_kind: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Which events; None is any. Both ends of the time are included."""

    session_id: str | None = None
    event_type: str | None = None
    rank: int | None = None
    collector: str | None = None
    status: str | None = None
    time_start_ns: int | None = None
    time_end_ns: int | None = None
    has_alert: bool | None = None
    collector_health_status: str | None = None
    backend: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class OOMBundleFilter:
    """Which OOM bundles; None is any. Times are ISO 8601, UTC where they say no zone."""

    session_id: str | None = None
    backend: str | None = None
    reason: str | None = None
    created_after: str | None = None
    created_before: str | None = None


@dataclass(frozen=True)
class IssueFilter:
    """Which issues; None is any."""

    fingerprint_id: str | None = None
    kind: IssueKind | None = None
    state: IssueState | None = None
    severity: str | None = None
    session_id: str | None = None


@dataclass(frozen=True)
class SessionRow(Row):
    """One session, as one source knows it."""

    session_id: str
    status: str
    started_at_ns: int
    ended_at_ns: int | None
    host: str
    pid: int
    job_id: str | None
    rank: int
    local_rank: int
    world_size: int
    source: str
    source_path: str
    source_kind: str
    source_count: int
    warning_count: int
    event_count: int | None
    oom_bundle_count: int


@dataclass(frozen=True)
class EventRow:
    """One event and where it was found."""

    event: TelemetryEvent
    source_path: str
    source_kind: str
    session_status: str

    def as_dict(self) -> dict[str, Any]:
        """The event's record with where it was found."""
        origin = {name: value for name, value in vars(self).items() if name != "event"}
        return {**telemetry_event_to_dict(self.event), **origin}


@dataclass(frozen=True)
class OOMBundleRow(Row):
    """One OOM bundle."""

    bundle_path: str
    created_at_utc: str | None
    backend: str | None
    reason: str | None
    event_count: int | None
    session_id: str | None
    session_status: str | None
    exception_type: str | None
    exception_module: str | None


@dataclass(frozen=True)
class SummaryRow:
    """One number of one group; `details` are further columns."""

    metric: str
    group_by: str
    value: int | float | str | None
    session_id: str | None = None
    rank: int | None = None
    status: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The row as a dictionary for JSON."""
        fields = {name: value for name, value in vars(self).items() if name != "details"}
        return {**fields, **self.details}
