"""Landmarks for a timeline: lifecycle, alerts, trouble of a collector, out of memory, phases.

Derived from events of any shape (objects or mappings); an event that cannot be placed gives no marker.
What an event is on a timeline is a native rule (`crates/catalog/src/query/markers.rs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._telemetry.event_list import firsts, likely
from stormlog.phases import PhaseReplayIndex, format_phase_path
from stormlog.phases.policy import field_of

if TYPE_CHECKING:
    from stormlog.telemetry import LoadedTelemetrySession

__all__ = [
    "MARKER_KIND_ALERT",
    "MARKER_KIND_COLLECTOR",
    "MARKER_KIND_LIFECYCLE",
    "MARKER_KIND_OOM",
    "MARKER_KIND_PHASE",
    "MARKER_SEVERITY_CRITICAL",
    "MARKER_SEVERITY_INFO",
    "MARKER_SEVERITY_WARNING",
    "MARKER_SOURCE_PHASE_REPLAY",
    "MARKER_SOURCE_TELEMETRY_EVENT",
    "TimelineMarker",
    "derive_session_timeline_markers",
    "derive_timeline_markers",
    "timeline_marker_to_dict",
]

MARKER_KIND_ALERT = "alert"
MARKER_KIND_COLLECTOR = "collector"
MARKER_KIND_LIFECYCLE = "lifecycle"
MARKER_KIND_OOM = "oom"
MARKER_KIND_PHASE = "phase"
MARKER_SEVERITY_INFO = "info"
MARKER_SEVERITY_WARNING = "warning"
MARKER_SEVERITY_CRITICAL = "critical"
MARKER_SOURCE_PHASE_REPLAY = "phase_replay"
MARKER_SOURCE_TELEMETRY_EVENT = "telemetry_event"


@dataclasses.dataclass(frozen=True)
class TimelineMarker:
    """A moment or a span to show on a timeline."""

    session_id: str
    start_ns: int
    end_ns: int | None
    kind: str
    source: str
    severity: str
    label: str
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    event_type: str | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_interval(self) -> bool:
        """Whether it has a start and an end, unlike an instant."""
        return self.end_ns is not None and self.end_ns != self.start_ns


def derive_session_timeline_markers(
    session: LoadedTelemetrySession, *, include_phase_markers: bool = True
) -> list[TimelineMarker]:
    """The timeline markers (phases, alerts, errors) of a loaded session, in order of time."""
    return derive_timeline_markers(session.events, include_phase_markers=include_phase_markers)


def derive_timeline_markers(
    events: Sequence[Any], *, include_phase_markers: bool = True
) -> list[TimelineMarker]:
    """The timeline markers (phases, alerts, errors) of events, in order of time."""
    points = likely(events, _native.catalog.LANDMARK_TYPES)
    markers = [marker for event in points if (marker := _point(event)) is not None]
    if include_phase_markers:
        markers += _phases(events)
    return sorted(markers, key=_order)


def timeline_marker_to_dict(marker: TimelineMarker) -> dict[str, Any]:
    """The marker as a dictionary for JSON."""
    return dataclasses.asdict(marker)


def _point(event: Any) -> TimelineMarker | None:
    name, context = field_of(event, "event_type"), field_of(event, "context")
    session_id, at_ns = field_of(event, "session_id"), field_of(event, "timestamp_ns")
    if not isinstance(name, str) or not isinstance(session_id, str) or not isinstance(at_ns, int):
        return None
    metadata = field_of(event, "metadata")
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    reason = metadata.get("oom_reason")
    landmark = _native.catalog.landmark(
        name,
        not metadata.keys().isdisjoint(_native.issues.OOM_MARKS),
        reason if isinstance(reason, str) else None,
        context if isinstance(context, str) else None,
    )
    if landmark is None:
        return None
    return TimelineMarker(
        session_id=session_id,
        start_ns=at_ns,
        end_ns=None,
        kind=landmark.kind,
        source=MARKER_SOURCE_TELEMETRY_EVENT,
        severity=landmark.severity,
        label=landmark.label,
        rank=_integer(event, "rank"),
        local_rank=_integer(event, "local_rank"),
        world_size=_integer(event, "world_size"),
        event_type=name.strip(),
        metadata=metadata,
    )


def _phases(events: Sequence[Any]) -> list[TimelineMarker]:
    index = PhaseReplayIndex.from_events(events)
    ranks: dict[tuple[str, int], tuple[int | None, int | None]] = {}
    sessions: dict[str, None] = {}
    for event in firsts(events):
        session_id, rank = field_of(event, "session_id"), _integer(event, "rank")
        if not isinstance(session_id, str):
            continue
        sessions[session_id] = None
        if rank is not None and (session_id, rank) not in ranks:
            ranks[session_id, rank] = (_integer(event, "local_rank"), _integer(event, "world_size"))
    markers = []
    for span in (span for session_id in sessions for span in index.spans_for(session_id=session_id)):
        local_rank, world_size = ranks.get((span.session_id, span.rank), (None, None))
        markers.append(
            TimelineMarker(
                session_id=span.session_id,
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                kind=MARKER_KIND_PHASE,
                source=MARKER_SOURCE_PHASE_REPLAY,
                severity=MARKER_SEVERITY_INFO,
                label=f"Phase: {format_phase_path(span.path)}",
                rank=span.rank,
                local_rank=local_rank,
                world_size=world_size,
                event_type="phase",
                metadata={
                    "phase_path": list(span.path),
                    "scope_id": span.scope_id,
                    "thread_id": span.thread_id,
                    "thread_name": span.thread_name,
                    "sequence": span.sequence,
                    "synthetic_end": span.synthetic_end,
                },
            )
        )
    return markers


def _integer(event: Any, name: str) -> int | None:
    value = field_of(event, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _order(marker: TimelineMarker) -> tuple[int, int, int, str, str]:
    end_ns = marker.start_ns if marker.end_ns is None else marker.end_ns
    rank = -1 if marker.rank is None else marker.rank
    return marker.start_ns, end_ns, rank, marker.kind, marker.label
