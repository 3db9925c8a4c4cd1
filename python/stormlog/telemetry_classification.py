"""What an event counts as: an alert, an out-of-memory error, a collector in trouble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stormlog.issues import normalize_text_dimension

__all__ = [
    "ALERT_EVENT_TYPES",
    "COLLECTOR_DEGRADED_STATUSES",
    "COLLECTOR_TRANSITION_TYPES",
    "event_backend",
    "event_severity",
    "is_alert_event",
    "is_collector_degradation_event",
    "is_oom_event",
]

ALERT_EVENT_TYPES = frozenset({"warning", "critical", "error"})
COLLECTOR_TRANSITION_TYPES = frozenset({"collector_degraded", "collector_recovered"})
COLLECTOR_DEGRADED_STATUSES = frozenset({"degraded", "unhealthy"})


class TelemetryClassifiable(Protocol):
    """What has to be known of an event."""

    @property
    def event_type(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


def is_alert_event(event: TelemetryClassifiable) -> bool:
    """Whether it is an alert, by its type or by the severity it states."""
    return (
        event.event_type in ALERT_EVENT_TYPES
        or normalize_text_dimension(event.metadata.get("severity")) in ALERT_EVENT_TYPES
    )


def event_severity(event: TelemetryClassifiable) -> str:
    """The severity it states, or the one of its type."""
    stated = event.metadata.get("severity")
    if isinstance(stated, str) and stated.strip():
        return normalize_text_dimension(stated)
    if event.event_type in {"critical", "error"}:
        return "critical"
    return "warning" if event.event_type == "warning" else "info"


def is_oom_event(event: TelemetryClassifiable) -> bool:
    """Whether it is an error that is marked as an out-of-memory error."""
    return event.event_type == "error" and not event.metadata.keys().isdisjoint(
        {"oom_reason", "oom_dump_path"}
    )


def is_collector_degradation_event(event: TelemetryClassifiable) -> bool:
    """Whether it says that a collector is in trouble."""
    health = normalize_text_dimension(event.metadata.get("collector_health_status"))
    return event.event_type == "collector_degraded" or health in COLLECTOR_DEGRADED_STATUSES


def event_backend(event: TelemetryClassifiable) -> str:
    """The backend it names, for grouping."""
    return normalize_text_dimension(event.metadata.get("backend"))
