"""What follows from an event's counters: gap, utilisation, fragmentation, cache share, degraded collector.

Works on event objects and on mappings. An unknown counter gives an unknown field, never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from stormlog import _native
from stormlog._telemetry.event_list import passing

__all__ = [
    "DerivedFields",
    "SessionDerivedFields",
    "compute_event_fields",
    "compute_session_fields",
    "enrich_event",
]


class DerivedFields(TypedDict, total=False):
    """The fields derived from one event; None where a counter they need is unknown."""

    allocator_gap_bytes: int | None
    utilization_ratio: float | None
    fragmentation_ratio: float | None
    allocator_cache_ratio: float | None
    is_degraded_collector: bool


class SessionDerivedFields(TypedDict, total=False):
    """The fields derived from the events of a session."""

    peak_utilization_ratio: float | None
    avg_fragmentation_ratio: float | None
    is_session_interrupted: bool


FRAGMENTATION_DISABLED = "Collector capabilities disable fragmentation analysis."


def memory_feature_enabled(event: Any, feature: str) -> bool:
    """False only where the event's own capabilities say so: silence is not a no."""
    return _native.telemetry.memory_feature_enabled(event, feature)


def fragmentation_unavailable_reason(events: Sequence[Any]) -> str | None:
    """Why there is no fragmentation to report, where every event rules it out."""
    feature = "supports_fragmentation_analysis"
    if len(events) == 0 or any(memory_feature_enabled(event, feature) for event in passing(events)):
        return None
    return FRAGMENTATION_DISABLED


def compute_event_fields(event: Any) -> DerivedFields:
    """The derived fields of one event; every key is present."""
    return _native.telemetry.derive_event(event)


def compute_session_fields(events: Sequence[Any]) -> SessionDerivedFields:
    """The derived fields of a session's events in order: interrupted means the last one is not a `stop`."""
    peak, average = _native.telemetry.derive_session(passing(events))
    last = _get(events[-1], "event_type") if len(events) > 0 else ""
    return {
        "peak_utilization_ratio": peak,
        "avg_fragmentation_ratio": average,
        "is_session_interrupted": last != "stop",
    }


def enrich_event(event: Any) -> dict[str, Any]:
    """The event as a dictionary, with its derived fields under `derived`."""
    if isinstance(event, Mapping):
        raw = dict(event)
    elif dataclasses.is_dataclass(event) and not isinstance(event, type):
        raw = dataclasses.asdict(event)
    else:
        raw = dict(vars(event))
    raw["derived"] = dict(compute_event_fields(event))
    return raw


def _get(event: Any, name: str) -> Any:
    return event.get(name, "") if isinstance(event, Mapping) else getattr(event, name, "")
