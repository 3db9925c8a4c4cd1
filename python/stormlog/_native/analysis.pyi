# Analysis rules for events, ranks and profiled calls: the submodule `stormlog._native.analysis`.
from collections.abc import Iterable, Sequence
from typing import Any

from stormlog._native.telemetry import EventBuffer

__all__ = [
    "allocator_availability",
    "collective_intervals",
    "event_groups",
    "judge_calls",
    "memory_gaps",
    "rank_summary",
    "rank_timeline",
]

# Ratio, spike z-score, drift R², fragmentation. Each gap: classification, severity, confidence, evidence as
# JSON, description, advice, and the position of the event that shows it.
def memory_gaps(
    events: Iterable[Any] | EventBuffer, thresholds: tuple[float, float, float, float]
) -> list[tuple[str, str, float, str, str, list[str], int]]: ...

# The knobs of a CollectiveAttributionConfig in their order, without the preset's name. Each interval: the
# record as JSON, and when its spikes were, with their session.
def collective_intervals(
    events: Iterable[Any] | EventBuffer, settings: tuple[Any, ...]
) -> list[tuple[str, list[tuple[int, str | None]]]]: ...

# The same without points, of a whole buffer; and the job, what was left out, the session of each suspect.
def rank_summary(
    buffer: EventBuffer,
) -> tuple[tuple[str, int, list[tuple[int, int]]], str | None, list[str], list[str | None]]: ...

# Session, rank and last moment of every group of events; where the boundaries of phases are.
def event_groups(buffer: EventBuffer) -> tuple[list[tuple[str, int, int]], list[int]]: ...

# Whether any sample has the allocator's counters, and whether any of those can tell fragmentation.
def allocator_availability(buffer: EventBuffer) -> tuple[bool, bool]: ...

# The record as JSON, how many of its notes belong to the merge, and the samples in aligned order: position
# and aligned time.
def rank_timeline(
    events: Iterable[Any],
    job_id: str | None,
    declared_world_size: int,
    stated_ns: int,
    notes: Sequence[str],
) -> tuple[str, int, list[tuple[int, int]]]: ...

# Calls: function, seconds, start, allocated, change, peak, before, after, inactive, reserved. Two JSON lists:
# patterns and insights.
def judge_calls(
    calls: Sequence[tuple[str, float, float, int, int, int, int, int, int, int]],
    thresholds: tuple[float, float, float, float, float, float],
) -> tuple[str, str]: ...
