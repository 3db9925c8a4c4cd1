"""One job seen from all its ranks: missing ranks, clock offsets, and the rank whose memory jumped first.

Every rank begins at its own first sample, as in 0.4.3; the command `stormlog analyze` also aligns by wall
clock and shared markers. The rule is native (`docs/rules/cross_rank.md`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.phases import phase_attribution_to_payload

if TYPE_CHECKING:
    from stormlog.phases import PhaseAttribution, PhaseReplayIndex
    from stormlog.telemetry import TelemetryEventLike

__all__ = [
    "CrossRankMergeResult",
    "FirstCauseAnalysisResult",
    "FirstCauseSuspect",
    "RankTimelinePoint",
    "analyze_cross_rank_events",
    "merge_cross_rank_timelines",
    "summarize_cross_rank_analysis",
]


@dataclasses.dataclass
class RankTimelinePoint:
    """A sample of one rank on the common clock."""

    rank: int
    timestamp_ns: int
    aligned_timestamp_ns: int
    device_used_bytes: int
    allocator_reserved_bytes: int | None
    allocator_allocated_bytes: int | None
    allocator_change_bytes: int | None


@dataclasses.dataclass
class CrossRankMergeResult:
    """The ranks of a job on one clock."""

    job_id: str | None
    world_size: int
    participating_ranks: list[int]
    missing_ranks: list[int]
    rank_sample_counts: dict[int, int]
    alignment_offsets_ns: dict[int, int]
    merged_points: list[RankTimelinePoint]
    notes: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class FirstCauseSuspect:
    """A rank that may have been first."""

    rank: int
    first_spike_timestamp_ns: int
    aligned_first_spike_timestamp_ns: int
    peak_delta_bytes: int
    spike_window_samples: int
    lead_over_cluster_onset_ns: int
    confidence: str
    evidence: dict[str, int | str]
    phase_attribution: PhaseAttribution | None = None


@dataclasses.dataclass
class FirstCauseAnalysisResult:
    """The rank that jumped first, and when the second did."""

    cluster_onset_timestamp_ns: int | None
    suspects: list[FirstCauseSuspect]
    notes: list[str] = dataclasses.field(default_factory=list)


def merge_cross_rank_timelines(events: Sequence[TelemetryEventLike]) -> CrossRankMergeResult:
    """The samples of all ranks on one clock."""
    return _analyzed(events, None)[0]


def analyze_cross_rank_events(
    events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
) -> tuple[CrossRankMergeResult, FirstCauseAnalysisResult]:
    """The merged ranks, and the rank whose memory jumped first."""
    return _analyzed(events, phase_resolver)


def summarize_cross_rank_analysis(
    events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
) -> dict[str, Any]:
    """The analysis as a dictionary for JSON; without the points."""
    buffer = untouched(events)
    if buffer is None:
        merged, first = analyze_cross_rank_events(events, phase_resolver=phase_resolver)
    else:
        merged, first = _summed_up(buffer, phase_resolver)
    suspects = [
        {
            **{field.name: getattr(suspect, field.name) for field in dataclasses.fields(suspect)},
            "phase_attribution": phase_attribution_to_payload(suspect.phase_attribution),
        }
        for suspect in first.suspects
    ]
    return {
        "job_id": merged.job_id,
        "world_size": merged.world_size,
        "participating_ranks": merged.participating_ranks,
        "missing_ranks": merged.missing_ranks,
        "rank_sample_counts": {str(rank): count for rank, count in merged.rank_sample_counts.items()},
        "alignment_offsets_ns": {str(rank): offset for rank, offset in merged.alignment_offsets_ns.items()},
        "cluster_onset_timestamp_ns": first.cluster_onset_timestamp_ns,
        "first_cause_suspects": suspects,
        "notes": list(dict.fromkeys([*merged.notes, *first.notes])),
    }


def _analyzed(
    events: Sequence[TelemetryEventLike], phases: PhaseReplayIndex | None
) -> tuple[CrossRankMergeResult, FirstCauseAnalysisResult]:
    samples, job_id, notes = _selected(events)
    if not samples:
        shown = list(notes) if len(events) > 0 else ["No telemetry events were provided."]
        merged = CrossRankMergeResult(job_id, 0, [], [], {}, {}, [], shown)
        return merged, FirstCauseAnalysisResult(None, [], notes)
    claimed = Counter(event.world_size for event in samples if event.world_size > 1)
    stated = [event.sampling_interval_ms for event in samples if event.sampling_interval_ms > 0]
    compared = _native.analysis.rank_timeline(
        samples,
        job_id,
        claimed.most_common(1)[0][0] if claimed else 1,
        int(median(stated) * 1_000_000) if stated else 0,
        notes,
    )
    record = compared.record
    points = [_point(samples[place], aligned) for place, aligned in compared.points]
    merged = _merged(record, compared.merge_notes, points)
    sessions = {(event.rank, event.timestamp_ns): _session(event) for event in samples}
    suspects = []
    for fields in record["first_cause_suspects"]:
        suspect = FirstCauseSuspect(**fields)
        session_id = sessions.get((suspect.rank, suspect.first_spike_timestamp_ns))
        _attribute(suspect, session_id, phases)
        suspects.append(suspect)
    onset = record["cluster_onset_timestamp_ns"]
    return merged, FirstCauseAnalysisResult(onset, suspects, record["first_cause_notes"])


def _summed_up(
    buffer: _native.telemetry.EventBuffer, phases: PhaseReplayIndex | None
) -> tuple[CrossRankMergeResult, FirstCauseAnalysisResult]:
    """The same for events as they were loaded, without an object an event and without the points."""
    summary = _native.analysis.rank_summary(buffer)
    job_id, notes, compared = summary.job_id, summary.notes, summary.comparison
    if compared is None:
        shown = notes if len(buffer) > 0 else ["No telemetry events were provided."]
        return CrossRankMergeResult(job_id, 0, [], [], {}, {}, [], shown), FirstCauseAnalysisResult(
            None, [], notes
        )
    record = compared.record
    suspects = [FirstCauseSuspect(**fields) for fields in record["first_cause_suspects"]]
    for suspect, session_id in zip(suspects, summary.suspect_sessions, strict=True):
        _attribute(suspect, session_id, phases)
    onset = record["cluster_onset_timestamp_ns"]
    first = FirstCauseAnalysisResult(onset, suspects, record["first_cause_notes"])
    return _merged(record, compared.merge_notes, []), first


def _attribute(suspect: FirstCauseSuspect, session_id: str | None, phases: PhaseReplayIndex | None) -> None:
    if phases is not None and session_id is not None:
        suspect.phase_attribution = phases.resolve(
            timestamp_ns=suspect.first_spike_timestamp_ns, session_id=session_id, rank=suspect.rank
        )


def _merged(record: dict[str, Any], of_merge: int, points: list[RankTimelinePoint]) -> CrossRankMergeResult:
    return CrossRankMergeResult(
        job_id=record["job_id"],
        world_size=record["world_size"],
        participating_ranks=record["participating_ranks"],
        missing_ranks=record["missing_ranks"],
        rank_sample_counts={int(rank): count for rank, count in record["rank_sample_counts"].items()},
        alignment_offsets_ns={int(rank): offset for rank, offset in record["alignment_offsets_ns"].items()},
        merged_points=points,
        notes=record["notes"][:of_merge],
    )


def _selected(
    events: Sequence[TelemetryEventLike],
) -> tuple[list[TelemetryEventLike], str | None, list[str]]:
    """The samples with known device use of the most common job, and what was left out."""
    notes = []
    samples = [event for event in passing(events) if event.event_type.casefold() == "sample"]
    if len(samples) != len(events):
        notes.append("Ignored non-sample events during cross-rank analysis.")
    used = [event for event in samples if event.device_used_bytes is not None]
    if len(used) != len(samples):
        notes.append("Ignored samples without device-used memory during cross-rank analysis.")
    if not used:
        notes.append("No sample telemetry events were available for distributed analysis.")
        return [], None, notes
    jobs = Counter(event.job_id for event in used if event.job_id)
    job_id = jobs.most_common(1)[0][0] if jobs else None
    if len(jobs) > 1:
        notes.append("Multiple job_id values were observed; filtering to the most common value.")
        used = [event for event in used if event.job_id == job_id]
    return used, job_id, notes


def _point(event: TelemetryEventLike, aligned_ns: int) -> RankTimelinePoint:
    assert event.device_used_bytes is not None, "only samples with device use are merged"
    return RankTimelinePoint(
        rank=event.rank,
        timestamp_ns=event.timestamp_ns,
        aligned_timestamp_ns=aligned_ns,
        device_used_bytes=event.device_used_bytes,
        allocator_reserved_bytes=event.allocator_reserved_bytes,
        allocator_allocated_bytes=event.allocator_allocated_bytes,
        allocator_change_bytes=event.allocator_change_bytes,
    )


def _session(event: TelemetryEventLike) -> str | None:
    return getattr(event, "session_id", None)
