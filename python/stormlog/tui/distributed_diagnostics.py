"""The ranks of a distributed job: artifacts loaded and joined, rows by rank, and the first anomaly.

Names, fields and sentences are 0.4.3's. The rules are native (`crates/catalog/src/rank_artifacts`,
`crates/analyze/src/rank_diagnostics`); an input that cannot be read is a warning, never an exception.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.telemetry import (
    LoadedTelemetrySession,
    TelemetryEvent,
    TelemetryEventLike,
    TelemetryEventList,
    loaded_session_of,
)
from stormlog.timeline_markers import TimelineMarker, derive_timeline_markers

__all__ = [
    "AnomalyIndicator",
    "ArtifactLoadResult",
    "DistributedDiagnosticsModel",
    "RankDiagnosticsRow",
    "build_distributed_model",
    "load_distributed_artifacts",
    "parse_rank_filter",
]


@dataclass
class ArtifactLoadResult:
    """What was loaded, with the events and markers of the selected session."""

    events: Sequence[TelemetryEvent]
    sessions: list[LoadedTelemetrySession]
    selected_session_id: str | None
    warnings: list[str]
    sources_loaded: list[str]
    markers: list[TimelineMarker] = field(default_factory=list)


@dataclass
class RankDiagnosticsRow:
    """One rank: the first against the last sample, and its first anomaly."""

    rank: int
    availability: str
    samples: int
    allocated_delta_bytes: int | None
    reserved_delta_bytes: int | None
    device_used_delta_bytes: int | None
    hidden_gap_latest_bytes: int | None
    hidden_gap_peak_abs_bytes: int | None
    has_anomaly: bool
    first_anomaly_timestamp_ns: int | None = None
    first_anomaly_signal: str | None = None
    first_anomaly_phase_path: str | None = None


@dataclass
class AnomalyIndicator:
    """The `earliest` or the `most_severe` anomaly of all ranks."""

    kind: str
    rank: int
    severity: str
    timestamp_ns: int
    signal: str
    details: str
    confidence: float | None = None
    reason_codes: list[str] = field(default_factory=list)
    phase_path: str | None = None


@dataclass
class DistributedDiagnosticsModel:
    """The ranks of a job side by side."""

    rows: list[RankDiagnosticsRow]
    indicators: list[AnomalyIndicator]
    expected_ranks: list[int]
    present_ranks: list[int]
    missing_ranks: list[int]
    per_rank_timelines: dict[int, dict[str, list[int | None]]]
    warnings: list[str] = field(default_factory=list)
    markers_by_rank: dict[int, list[TimelineMarker]] = field(default_factory=dict)


def parse_rank_filter(expr: str, available_ranks: list[int]) -> set[int]:
    """The available ranks that an expression selects: `all`, `0,2,4-7`; ValueError where it is neither."""
    return _native.analysis.select_ranks(expr or "", _countable(available_ranks))


def load_distributed_artifacts(paths: list[Path], session_id: str | None = None) -> ArtifactLoadResult:
    """Loads files and directories of a job's ranks; ValueError only where the named session is not there."""
    # `Path.resolve` raises for a loop of links, which is an input like any other.
    resolved = [os.path.realpath(Path(path).expanduser()) for path in paths]
    loaded = _native.catalog.load_rank_artifacts(resolved, session_id)
    sessions = [loaded_session_of(found) for found in loaded.sessions]
    events: Sequence[TelemetryEvent] = []
    selected = None
    if loaded.selected is not None:
        selected = sessions[loaded.selected].summary.session_id
        # A list of its own: what the caller changes in it does not change the session.
        buffer = loaded.sessions[loaded.selected].events
        events = TelemetryEventList(buffer=buffer, event_class=TelemetryEvent)
    return ArtifactLoadResult(
        events=events,
        sessions=sessions,
        selected_session_id=selected,
        warnings=loaded.warnings,
        sources_loaded=loaded.sources,
        markers=derive_timeline_markers(events),
    )


def build_distributed_model(
    events: Sequence[TelemetryEventLike], selected_ranks: set[int] | None = None
) -> DistributedDiagnosticsModel:
    """The ranks of these events, or the selected ones: rows, timelines, markers and the first anomalies."""
    buffer = untouched(events)
    found = _native.analysis.diagnose_ranks(
        RankDiagnosticsRow,
        AnomalyIndicator,
        passing(events) if buffer is None else buffer,
        None if selected_ranks is None else _countable(selected_ranks),
    )
    return DistributedDiagnosticsModel(
        rows=found.rows,
        indicators=found.indicators,
        expected_ranks=found.expected_ranks,
        present_ranks=found.present_ranks,
        missing_ranks=found.missing_ranks,
        per_rank_timelines=found.timelines,
        warnings=found.warnings,
        markers_by_rank=_by_rank(derive_timeline_markers(events), found.present_ranks),
    )


def _by_rank(markers: list[TimelineMarker], ranks: list[int]) -> dict[int, list[TimelineMarker]]:
    """The markers of each rank that has any; one without a rank belongs to all of them."""
    grouped: dict[int, list[TimelineMarker]] = {rank: [] for rank in ranks}
    for marker in markers:
        for rank in ranks if marker.rank is None else (marker.rank,):
            if rank in grouped:
                grouped[rank].append(marker)
    return {rank: found for rank, found in grouped.items() if found}


def _countable(ranks: Iterable[int]) -> set[int]:
    return {rank for rank in ranks if rank >= 0}
