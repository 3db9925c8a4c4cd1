# Analysis rules for events, ranks and profiled calls: the submodule `stormlog._native.analysis`.
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, final

from stormlog._native.telemetry import EventBuffer
from stormlog.collective_attribution import CollectiveAttributionConfig
from stormlog.phases.policy import PhaseAttribution as _GivenAttribution
from stormlog.phases.replay import PhaseSpan

__all__ = [
    "CollectiveInterval",
    "Finding",
    "PhaseAttribution",
    "PhaseBoundary",
    "PhaseIntervals",
    "PhaseReplay",
    "ProfiledCall",
    "RankComparison",
    "RankDiagnostics",
    "RankSummary",
    "ReplayedPhase",
    "allocator_availability",
    "attribute_phases",
    "collective_intervals",
    "diagnose_ranks",
    "event_ranks",
    "judge_calls",
    "memory_gaps",
    "merge_phases",
    "phase_boundary",
    "phase_label",
    "rank_summary",
    "rank_timeline",
    "select_ranks",
]

# A class of hidden memory, and the position of the event that shows it.
@final
class Finding:
    @property
    def classification(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def confidence(self) -> float: ...
    @property
    def evidence(self) -> dict[str, Any]: ...
    @property
    def description(self) -> str: ...
    @property
    def remediation(self) -> list[str]: ...
    @property
    def event(self) -> int: ...

# A stretch of hidden memory that goes with a collective, and when its spikes were, with their session.
@final
class CollectiveInterval:
    @property
    def record(self) -> dict[str, Any]: ...
    @property
    def spikes(self) -> list[tuple[int, str | None]]: ...

# The ranks of a job compared: the record, how many of its notes are the merge's, and the samples in aligned
# order: position and aligned time.
@final
class RankComparison:
    @property
    def record(self) -> dict[str, Any]: ...
    @property
    def merge_notes(self) -> int: ...
    @property
    def points(self) -> list[tuple[int, int]]: ...

# The same without points, of a whole buffer; None where no sample can be compared.
@final
class RankSummary:
    @property
    def comparison(self) -> RankComparison | None: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def suspect_sessions(self) -> list[str | None]: ...

@final
class ProfiledCall:
    def __new__(
        cls,
        *,
        function: str,
        seconds: float,
        started: float,
        allocated: int,
        change: int,
        peak: int,
        before: int,
        after: int,
        inactive: int,
        reserved: int,
    ) -> Self: ...

def memory_gaps(
    events: Iterable[Any] | EventBuffer,
    *,
    ratio: float,
    spike_zscore: float,
    drift_r_squared: float,
    fragmentation: float,
) -> list[Finding]: ...
def collective_intervals(
    events: Iterable[Any] | EventBuffer, settings: CollectiveAttributionConfig
) -> list[CollectiveInterval]: ...
def rank_summary(buffer: EventBuffer) -> RankSummary: ...

# Session, rank and last moment of every group of events; where the boundaries of phases are.
def event_ranks(buffer: EventBuffer) -> set[int]: ...

# Whether any sample has the allocator's counters, and whether any of those can tell fragmentation.
def allocator_availability(buffer: EventBuffer) -> tuple[bool, bool]: ...
def rank_timeline(
    events: Iterable[Any],
    job_id: str | None,
    declared_world_size: int,
    stated_ns: int,
    notes: Sequence[str],
) -> RankComparison: ...

# Patterns and insights.
def judge_calls(
    calls: Sequence[ProfiledCall],
    *,
    leak: float,
    fragmentation: float,
    inefficient: float,
    slow: float,
    intensive: float,
    least_calls: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]: ...

# Phases: a boundary as an event states it, a phase as it was replayed, and the phase of a moment.
@final
class PhaseBoundary:
    @property
    def action(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> list[str]: ...
    @property
    def scope_id(self) -> str: ...
    @property
    def parent_scope_id(self) -> str | None: ...
    @property
    def thread_id(self) -> int: ...
    @property
    def thread_name(self) -> str: ...
    @property
    def sequence(self) -> int: ...

@final
class ReplayedPhase:
    @property
    def session_id(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def thread_id(self) -> int: ...
    @property
    def thread_name(self) -> str: ...
    @property
    def scope_id(self) -> str: ...
    @property
    def path(self) -> list[str]: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def synthetic_end(self) -> bool: ...

@final
class PhaseAttribution:
    @property
    def unique(self) -> bool: ...
    @property
    def source(self) -> str | None: ...
    @property
    def paths(self) -> list[str]: ...
    @property
    def scope_id(self) -> str | None: ...
    @property
    def thread_id(self) -> int | None: ...
    @property
    def thread_name(self) -> str | None: ...
    @property
    def likely(self) -> str | None: ...

@final
class PhaseReplay:
    def __new__(cls) -> Self: ...
    def observe(
        self,
        session_id: str,
        rank: int,
        timestamp_ns: int,
        event_type: str,
        scope: Mapping[str, Any] | None,
    ) -> None: ...
    def observe_buffer(self, buffer: EventBuffer) -> None: ...
    def phases(self) -> list[ReplayedPhase]: ...

@final
class PhaseIntervals:
    def __new__(cls, bounds: Sequence[tuple[int, int]]) -> Self: ...
    def at(self, timestamp_ns: int) -> list[int]: ...

def phase_boundary(event_type: str, scope: Mapping[str, Any]) -> PhaseBoundary | None: ...
def attribute_phases(
    spans: Sequence[PhaseSpan], thread_id: int | None, scope_id: str | None
) -> PhaseAttribution | None: ...

# The paths of both; None where both are the one phase of the one thread.
def merge_phases(first: _GivenAttribution, second: _GivenAttribution) -> list[str] | None: ...
def phase_label(is_unique: bool, path: str | None, paths: Sequence[str]) -> str | None: ...

# The ranks of a job side by side; rows and indicators are objects of the classes that were handed in.
@final
class RankDiagnostics:
    @property
    def rows(self) -> list[Any]: ...
    @property
    def indicators(self) -> list[Any]: ...
    @property
    def expected_ranks(self) -> list[int]: ...
    @property
    def present_ranks(self) -> list[int]: ...
    @property
    def missing_ranks(self) -> list[int]: ...
    @property
    def timelines(self) -> dict[int, dict[str, list[int | None]]]: ...
    @property
    def warnings(self) -> list[str]: ...

def diagnose_ranks(
    row_class: type,
    indicator_class: type,
    events: Iterable[Any] | EventBuffer,
    selected: set[int] | None,
) -> RankDiagnostics: ...
def select_ranks(expression: str, available: set[int]) -> set[int]: ...
