"""What an event counts as: an alert, an out-of-memory error, a collector in trouble.

The rules are native (`crates/model/src/classify.rs`); events of any class may be asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stormlog import _native
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

ALERT_EVENT_TYPES = frozenset(_native.issues.ALERT_EVENT_TYPES)
COLLECTOR_TRANSITION_TYPES = frozenset(_native.issues.COLLECTOR_TRANSITION_TYPES)
COLLECTOR_DEGRADED_STATUSES = frozenset(_native.issues.COLLECTOR_DEGRADED_STATUSES)


class TelemetryClassifiable(Protocol):
    """What has to be known of an event."""

    @property
    def event_type(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


def is_alert_event(event: TelemetryClassifiable) -> bool:
    """Whether it is an alert, by its type or by the severity it states."""
    return _native.issues.is_alert(event.event_type, _stated(event, "severity"))


def event_severity(event: TelemetryClassifiable) -> str:
    """The severity it states, or the one of its type."""
    return _native.issues.severity_of(event.event_type, _stated(event, "severity"))


def is_oom_event(event: TelemetryClassifiable) -> bool:
    """Whether it is an error that is marked as an out-of-memory error."""
    return _native.issues.is_oom(
        event.event_type, not event.metadata.keys().isdisjoint(_native.issues.OOM_MARKS)
    )


def is_collector_degradation_event(event: TelemetryClassifiable) -> bool:
    """Whether it says that a collector is in trouble."""
    return _native.issues.is_collector_degradation(
        event.event_type, _stated(event, "collector_health_status")
    )


def event_backend(event: TelemetryClassifiable) -> str:
    """The backend it names, for grouping."""
    return normalize_text_dimension(event.metadata.get("backend"))


def _stated(event: TelemetryClassifiable, name: str) -> str | None:
    value = event.metadata.get(name)
    return value if isinstance(value, str) else None
