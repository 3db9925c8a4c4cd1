"""Phases rebuilt from events: which were open, from when to when.

The rules are native (`crates/analyze/src/phases`), the same as for the commands; what is here reads events of
any class, dictionaries and objects alike. A phase that was never left ends with its session's last event.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.phases import policy
from stormlog.phases.runtime import PHASE_SCOPE_ATTRIBUTES_KEY, PHASE_SCOPE_METADATA_KEY

__all__ = [
    "PhaseBoundaryRecord",
    "PhaseReplayIndex",
    "PhaseSpan",
    "is_phase_boundary_event",
    "parse_phase_boundary",
]

_Group = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class PhaseBoundaryRecord:
    """The beginning or the end of a phase, as an event states it."""

    action: str
    name: str
    path: tuple[str, ...]
    depth: int
    scope_id: str
    parent_scope_id: str | None
    thread_id: int
    thread_name: str
    sequence: int
    session_id: str
    timestamp_ns: int
    attributes: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PhaseSpan:
    """A phase from its beginning to its end; `synthetic_end` when it was never left."""

    session_id: str
    rank: int
    thread_id: int
    thread_name: str
    scope_id: str
    path: tuple[str, ...]
    start_ns: int
    end_ns: int
    sequence: int
    synthetic_end: bool = False

    @property
    def depth(self) -> int:
        """How many phases it is inside of, itself included."""
        return len(self.path)


class PhaseReplayIndex:
    """The phases of a recording, to be asked by time."""

    def __init__(self, intervals_by_group: Mapping[_Group, Sequence[PhaseSpan]]) -> None:
        self._spans = {
            group: sorted(spans, key=lambda span: (span.start_ns, span.end_ns))
            for group, spans in intervals_by_group.items()
        }
        self._intervals = {
            group: _native.analysis.PhaseIntervals([(span.start_ns, span.end_ns) for span in spans])
            for group, spans in self._spans.items()
        }

    @classmethod
    def from_events(cls, events: Sequence[Any]) -> PhaseReplayIndex:
        """Rebuilds the phases of these events, in whatever order they come."""
        replay = _native.analysis.PhaseReplay()
        buffer = untouched(events)
        if buffer is not None:
            replay.observe_buffer(buffer)
        else:
            for event in passing(events):
                _observe(replay, event)
        spans: dict[_Group, list[PhaseSpan]] = defaultdict(list)
        for phase in replay.phases():
            spans[phase.session_id, phase.rank].append(_span(phase))
        return cls(spans)

    def spans_for(self, *, session_id: str, rank: int | None = None) -> list[PhaseSpan]:
        """Every phase of a session, or of one of its ranks."""
        return [span for group in self._groups(session_id, rank) for span in self._spans[group]]

    def active_spans(self, *, timestamp_ns: int, session_id: str, rank: int | None = None) -> list[PhaseSpan]:
        """The phases open at a moment; both ends belong to a phase."""
        return [
            self._spans[group][number]
            for group in self._groups(session_id, rank)
            for number in self._intervals[group].at(timestamp_ns)
        ]

    def resolve(
        self,
        *,
        timestamp_ns: int,
        session_id: str | None,
        rank: int | None = None,
        origin_thread_id: int | None = None,
        origin_phase_scope_id: str | None = None,
    ) -> policy.PhaseAttribution | None:
        """Which phase a moment belongs to."""
        if session_id is None:
            return None
        return policy.attribute_active_spans(
            self.active_spans(timestamp_ns=timestamp_ns, session_id=session_id, rank=rank),
            origin_thread_id=origin_thread_id,
            origin_phase_scope_id=origin_phase_scope_id,
        )

    def resolve_for_event(self, event: Any) -> policy.PhaseAttribution | None:
        """Which phase an event belongs to."""
        return policy.resolve_phase_for_event(self, event)

    def _groups(self, session_id: str, rank: int | None) -> Iterator[_Group]:
        for group in self._spans:
            if group[0] == session_id and rank in (None, group[1]):
                yield group


def parse_phase_boundary(event: Any) -> PhaseBoundaryRecord | None:
    """The boundary an event states; None when it is none, or not whole."""
    scope = _scope_of(event)
    session_id = policy.field_of(event, "session_id")
    timestamp_ns = policy.field_of(event, "timestamp_ns")
    if scope is None or not isinstance(session_id, str) or not isinstance(timestamp_ns, int):
        return None
    found = _native.analysis.phase_boundary(_type_of(event), scope)
    if found is None:
        return None
    attributes = scope.get(PHASE_SCOPE_ATTRIBUTES_KEY)
    return PhaseBoundaryRecord(
        action=found.action,
        name=found.name,
        path=tuple(found.path),
        depth=len(found.path),
        scope_id=found.scope_id,
        parent_scope_id=found.parent_scope_id,
        thread_id=found.thread_id,
        thread_name=found.thread_name,
        sequence=found.sequence,
        session_id=session_id,
        timestamp_ns=timestamp_ns,
        attributes=dict(attributes) if isinstance(attributes, Mapping) else {},
    )


def is_phase_boundary_event(event: Any) -> bool:
    """Whether an event is the beginning or the end of a phase, and whole."""
    return parse_phase_boundary(event) is not None


def _observe(replay: _native.analysis.PhaseReplay, event: Any) -> None:
    session_id = policy.field_of(event, "session_id")
    timestamp_ns = policy.field_of(event, "timestamp_ns")
    rank = policy.rank_of(event)
    if isinstance(session_id, str) and isinstance(timestamp_ns, int) and rank is not None:
        replay.observe(session_id, rank, timestamp_ns, _type_of(event), _scope_of(event))


def _type_of(event: Any) -> str:
    value = policy.field_of(event, "event_type", "")
    return value if isinstance(value, str) else ""


def _scope_of(event: Any) -> Mapping[str, Any] | None:
    metadata = policy.field_of(event, "metadata", {})
    scope = metadata.get(PHASE_SCOPE_METADATA_KEY) if isinstance(metadata, Mapping) else None
    return scope if isinstance(scope, Mapping) else None


def _span(phase: _native.analysis.ReplayedPhase) -> PhaseSpan:
    return PhaseSpan(
        session_id=phase.session_id,
        rank=phase.rank,
        thread_id=phase.thread_id,
        thread_name=phase.thread_name,
        scope_id=phase.scope_id,
        path=tuple(phase.path),
        start_ns=phase.start_ns,
        end_ns=phase.end_ns,
        sequence=phase.sequence,
        synthetic_end=phase.synthetic_end,
    )
