"""Phases rebuilt from events: which were open, from when to when.

Reads dictionaries and objects alike and trusts neither: a boundary that is not whole is passed over, an end
without its beginning is no span. A phase nobody left ends with its session's last event, and says so.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stormlog import _native
from stormlog._telemetry.event_list import TelemetryEventList, passing, untouched
from stormlog.phases import policy
from stormlog.phases.runtime import (
    PHASE_ENTER_EVENT,
    PHASE_EXIT_EVENT,
    PHASE_SCOPE_ATTRIBUTES_KEY,
    PHASE_SCOPE_METADATA_KEY,
)

__all__ = [
    "PhaseBoundaryRecord",
    "PhaseReplayIndex",
    "PhaseSpan",
    "is_phase_boundary_event",
    "parse_phase_boundary",
]

_ACTIONS = {PHASE_ENTER_EVENT: "enter", PHASE_EXIT_EVENT: "exit"}
_Group = tuple[str, int]
_RUN = 64


@dataclasses.dataclass(frozen=True)
class PhaseBoundaryRecord:
    """The beginning or the end of a phase, as an event told it."""

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
    """A phase from its beginning to its end; `synthetic_end` when nobody left it."""

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
        self._starts = {group: [span.start_ns for span in spans] for group, spans in self._spans.items()}
        # The latest end of each run of spans: one look tells that none of them is open any more.
        self._ends = {
            group: [
                max(span.end_ns for span in spans[first : first + _RUN])
                for first in range(0, len(spans), _RUN)
            ]
            for group, spans in self._spans.items()
        }

    @classmethod
    def from_events(cls, events: Sequence[Any]) -> PhaseReplayIndex:
        """Rebuilds the phases of these events, in whatever order they come."""
        boundaries, last_seen = _boundaries(events)
        spans: dict[_Group, list[PhaseSpan]] = defaultdict(list)
        open_by_thread: dict[tuple[str, int, int], list[PhaseBoundaryRecord]] = {}
        for rank, boundary in boundaries:
            thread = (boundary.session_id, rank, boundary.thread_id)
            stack = open_by_thread.setdefault(thread, [])
            if boundary.action == "enter":
                stack.append(boundary)
            elif stack and stack[-1].scope_id == boundary.scope_id:
                opened = stack.pop()
                if not stack:
                    # Which threads come last decides the order of what they left open.
                    del open_by_thread[thread]
                span = _span(opened, rank, boundary.timestamp_ns, boundary.thread_name)
                spans[boundary.session_id, rank].append(span)
        for (session_id, rank, _), stack in open_by_thread.items():
            group = (session_id, rank)
            spans[group].extend(
                _span(left, rank, last_seen[group], left.thread_name, synthetic=True) for left in stack
            )
        return cls(spans)

    def spans_for(self, *, session_id: str, rank: int | None = None) -> list[PhaseSpan]:
        """Every phase of a session, or of one of its ranks."""
        return [span for group in self._groups(session_id, rank) for span in self._spans[group]]

    def active_spans(self, *, timestamp_ns: int, session_id: str, rank: int | None = None) -> list[PhaseSpan]:
        """The phases open at a moment; both ends belong to a phase."""
        found: list[PhaseSpan] = []
        for group in self._groups(session_id, rank):
            begun = bisect_right(self._starts[group], timestamp_ns)
            spans, ends = self._spans[group], self._ends[group]
            for first in range(0, begun, _RUN):
                if ends[first // _RUN] >= timestamp_ns:
                    run = spans[first : min(first + _RUN, begun)]
                    found.extend(span for span in run if span.end_ns >= timestamp_ns)
        return found

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
    """The boundary an event tells of; None when it is none, or not whole."""
    action = _ACTIONS.get(_hashable(policy.field_of(event, "event_type", "")))
    metadata = policy.field_of(event, "metadata", {})
    scope = metadata.get(PHASE_SCOPE_METADATA_KEY) if isinstance(metadata, Mapping) else None
    session_id = policy.field_of(event, "session_id")
    timestamp_ns = policy.field_of(event, "timestamp_ns")
    if action is None or not isinstance(scope, Mapping):
        return None
    if not isinstance(session_id, str) or not isinstance(timestamp_ns, int):
        return None
    if scope.get("action") != action or not _is_whole(scope):
        return None
    path = tuple(part for part in scope["path"] if isinstance(part, str) and part)
    if not path:
        return None
    depth, attributes = scope.get("depth"), scope.get(PHASE_SCOPE_ATTRIBUTES_KEY)
    return PhaseBoundaryRecord(
        action=action,
        name=scope["name"].strip(),
        path=path,
        depth=depth if isinstance(depth, int) and depth == len(path) else len(path),
        scope_id=scope["scope_id"],
        parent_scope_id=scope.get("parent_scope_id"),
        thread_id=scope["thread_id"],
        thread_name=scope["thread_name"],
        sequence=scope["sequence"],
        session_id=session_id,
        timestamp_ns=timestamp_ns,
        attributes=dict(attributes) if isinstance(attributes, Mapping) else {},
    )


def is_phase_boundary_event(event: Any) -> bool:
    """Whether an event is the beginning or the end of a phase, and whole."""
    return parse_phase_boundary(event) is not None


def _is_whole(scope: Mapping[str, Any]) -> bool:
    kinds = {
        "name": str,
        "scope_id": str,
        "thread_name": str,
        "path": list,
        "sequence": int,
        "thread_id": int,
    }
    parent = scope.get("parent_scope_id")
    return (
        all(isinstance(scope.get(key), kind) for key, kind in kinds.items())
        and bool(scope["name"].strip())
        and (parent is None or isinstance(parent, str))
    )


def _boundaries(
    events: Sequence[Any],
) -> tuple[list[tuple[int, PhaseBoundaryRecord]], dict[_Group, int]]:
    """The boundaries with their ranks, in order, and the last moment each group was seen at."""
    found: list[tuple[int, PhaseBoundaryRecord]] = []
    last_seen: dict[_Group, int] = {}
    buffer = untouched(events)
    if buffer is not None and isinstance(events, TelemetryEventList):
        groups, places = _native.analysis.event_groups(buffer)
        last_seen = {(session_id, rank): at_ns for session_id, rank, at_ns in groups}
        events = [events._at(place, keep=False) for place in places]
    for event in passing(events):
        session_id = policy.field_of(event, "session_id")
        timestamp_ns = policy.field_of(event, "timestamp_ns")
        rank = policy.rank_of(event)
        if not isinstance(session_id, str) or not isinstance(timestamp_ns, int) or rank is None:
            continue
        group = (session_id, rank)
        last_seen[group] = max(last_seen.get(group, timestamp_ns), timestamp_ns)
        boundary = parse_phase_boundary(event)
        if boundary is not None:
            found.append((rank, boundary))
    found.sort(
        key=lambda pair: (
            pair[1].session_id,
            pair[0],
            pair[1].timestamp_ns,
            pair[1].sequence,
            pair[1].scope_id,
        )
    )
    return found, last_seen


def _span(
    opened: PhaseBoundaryRecord, rank: int, end_ns: int, thread_name: str, synthetic: bool = False
) -> PhaseSpan:
    return PhaseSpan(
        session_id=opened.session_id,
        rank=rank,
        thread_id=opened.thread_id,
        thread_name=thread_name,
        scope_id=opened.scope_id,
        path=opened.path,
        start_ns=opened.timestamp_ns,
        end_ns=end_ns,
        sequence=opened.sequence,
        synthetic_end=synthetic,
    )


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""
