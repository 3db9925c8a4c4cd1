"""What profiled calls and telemetry show: patterns, insights, hidden memory, ranks, and a score.

The names, keys and numbers of 0.4.3's `MemoryAnalyzer`; the rules are native. Lists of functions are in the
order of their first call. Needs neither numpy nor torch, and must never change what it is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.collective_attribution import (
    CollectiveAttributionConfig,
    CollectiveAttributionResult,
    attribute_collective_memory,
    resolve_collective_attribution_config,
)
from stormlog.derived_fields import FRAGMENTATION_DISABLED, fragmentation_unavailable_reason
from stormlog.distributed_analysis import summarize_cross_rank_analysis
from stormlog.gap_analysis import GapFinding, analyze_hidden_memory_gaps
from stormlog.phases import PhaseReplayIndex, phase_attribution_to_payload
from stormlog.utils import format_bytes

if TYPE_CHECKING:
    from stormlog.profiler import GPUMemoryProfiler, ProfileResult
    from stormlog.telemetry import TelemetryEventLike

__all__ = ["GapFinding", "MemoryAnalyzer", "MemoryPattern", "PerformanceInsight"]

_REMEDIATION = {
    "transient_spike": [
        "Investigate non-allocator memory consumers active during spikes "
        "(cuDNN workspace, NCCL buffers, other frameworks).",
        "Use torch.cuda.memory_snapshot() around spike windows for detailed attribution.",
        "Consider pinning cuDNN workspace size with torch.backends.cudnn.benchmark = False.",
    ],
    "persistent_drift": [
        "Look for non-PyTorch CUDA allocations accumulating over time "
        "(e.g. custom CUDA kernels, third-party libraries).",
        "Monitor nvidia-smi used memory alongside torch allocator counters.",
        "If gap stabilises after warmup, it may be one-time CUDA context overhead.",
    ],
    "fragmentation_like": [
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True so segments grow in place instead of "
        "being split.",
        "Allocate long-lived tensors (weights, optimizer state, buffers) before the loop, so short-lived "
        "ones do not split their segments.",
        "Keep shapes steady: pad or bucket variable sequence lengths and image sizes into a few sizes.",
    ],
}
_NO_COUNTERS = (
    "Allocator-native analysis is unavailable because this telemetry session does not expose allocator "
    "counters."
)
_GRADES = (
    (90, "A", "Excellent memory usage patterns"),
    (80, "B", "Good memory usage with minor issues"),
    (70, "C", "Acceptable memory usage with some optimization potential"),
    (60, "D", "Poor memory usage patterns requiring attention"),
    (0, "F", "Critical memory usage issues requiring immediate attention"),
)
_PATTERN_COST = {"critical": 20, "warning": 10}
_INSIGHT_COST = {"high": 15, "medium": 8}
_MOST_RECOMMENDATIONS = 10


@dataclasses.dataclass
class MemoryPattern:
    """A pattern of memory over profiled calls; severity is `info`, `warning` or `critical`."""

    pattern_type: str
    description: str
    severity: str
    affected_functions: list[str]
    metrics: dict[str, Any]
    suggestions: list[str]


@dataclasses.dataclass
class PerformanceInsight:
    """An insight into the time and memory of profiled calls; impact is `low`, `medium` or `high`."""

    category: str
    title: str
    description: str
    impact: str
    confidence: float
    data: dict[str, Any]
    recommendations: list[str]


class MemoryAnalyzer:
    """Looks at profiled calls (a profiler's, or given ones) and at telemetry."""

    def __init__(
        self,
        profiler: GPUMemoryProfiler | None = None,
        collective_sensitivity: str = "medium",
        collective_threshold_overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.profiler = profiler
        self.collective_attribution_config: CollectiveAttributionConfig = (
            resolve_collective_attribution_config(collective_sensitivity, collective_threshold_overrides)
        )
        self.thresholds: dict[str, float] = {
            "memory_leak_ratio": 0.7,
            "fragmentation_ratio": 0.3,
            "inefficient_allocation_ratio": 0.5,
            "slow_function_percentile": 0.9,
            "high_memory_percentile": 0.9,
            "min_calls_for_analysis": 3,
            "gap_ratio_threshold": 0.05,
            "gap_spike_zscore": 2.0,
            "gap_drift_r_squared": 0.6,
            "gap_fragmentation_ratio": 0.3,
        }

    def analyze_memory_patterns(self, results: Sequence[ProfileResult] | None = None) -> list[MemoryPattern]:
        """Leaks, fragmentation, waste, spikes and many small allocations."""
        return self._judged(results)[0]

    def generate_performance_insights(
        self, results: Sequence[ProfileResult] | None = None
    ) -> list[PerformanceInsight]:
        """What is slow, what varies, what takes much memory, and whether memory grows with time."""
        return self._judged(results)[1]

    def analyze_memory_gaps(
        self, events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
    ) -> list[GapFinding]:
        """The classes of hidden memory in telemetry, the worst first."""
        return analyze_hidden_memory_gaps(
            events, self.thresholds, format_bytes, _REMEDIATION, phase_resolver=phase_resolver
        )

    def analyze_cross_rank_timeline(
        self, events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
    ) -> dict[str, Any]:
        """The ranks of a job on one clock, and whose memory jumped first."""
        return summarize_cross_rank_analysis(events, phase_resolver=phase_resolver)

    def analyze_collective_attribution(
        self, events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
    ) -> list[CollectiveAttributionResult]:
        """The spikes of hidden memory that go with collective communication."""
        return attribute_collective_memory(
            events, config=self.collective_attribution_config, phase_resolver=phase_resolver
        )

    def generate_optimization_report(
        self,
        results: Sequence[ProfileResult] | None = None,
        events: Sequence[TelemetryEventLike] | None = None,
    ) -> dict[str, Any]:
        """All of it as one dictionary, with a score; what telemetry shows only where there are events."""
        calls = self._calls(results)
        patterns, insights = self._judged(calls)
        report = {
            "summary": {
                "total_functions_analyzed": len({call.function_name for call in calls}),
                "total_function_calls": len(calls),
                "total_memory_allocated": sum(call.memory_allocated for call in calls),
                "total_execution_time": sum(call.execution_time for call in calls),
                "analysis_timestamp": calls[-1].memory_after.timestamp if calls else None,
            },
            "critical_issues": [vars(found) for found in patterns if found.severity == "critical"],
            "high_impact_insights": [vars(found) for found in insights if found.impact == "high"],
            "all_patterns": [vars(found) for found in patterns],
            "all_insights": [vars(found) for found in insights],
            "recommendations": _recommendations(patterns, insights),
            "optimization_score": _score(patterns, insights),
        }
        if events is not None:
            report.update(self._of_telemetry(events))
        return report

    def _of_telemetry(self, events: Sequence[TelemetryEventLike]) -> dict[str, Any]:
        # Asked first: what is found below is handed out as objects, and the list is then no longer as loaded.
        missing = _unavailable(events)
        ranks = _ranks(events)
        phases = PhaseReplayIndex.from_events(events)
        across = self.analyze_cross_rank_timeline(events, phase_resolver=phases) if len(ranks) > 1 else None
        report: dict[str, Any] = {
            "gap_analysis": [],
            "collective_attribution": [
                as_payload(found)
                for found in self.analyze_collective_attribution(events, phase_resolver=phases)
            ],
        }
        gaps = self.analyze_memory_gaps(events, phase_resolver=phases)
        report["gap_analysis"] = [as_payload(found) for found in gaps]
        if missing:
            report["analysis_availability"] = missing
        if across is not None:
            report["cross_rank_analysis"] = across
        return report

    def _calls(self, results: Sequence[ProfileResult] | None) -> list[ProfileResult]:
        if results is None and self.profiler is not None:
            results = self.profiler.results
        return list(results or ())

    def _judged(
        self, results: Sequence[ProfileResult] | None
    ) -> tuple[list[MemoryPattern], list[PerformanceInsight]]:
        limits = self.thresholds
        patterns, insights = _native.analysis.judge_calls(
            [_profiled(call) for call in self._calls(results)],
            leak=limits["memory_leak_ratio"],
            fragmentation=limits["fragmentation_ratio"],
            inefficient=limits["inefficient_allocation_ratio"],
            slow=limits["slow_function_percentile"],
            intensive=limits["high_memory_percentile"],
            least_calls=limits["min_calls_for_analysis"],
        )
        found = [PerformanceInsight(**record) for record in insights]
        for insight in found:
            if "highest_variance" in insight.data:
                insight.data["highest_variance"] = tuple(insight.data["highest_variance"])
        return [MemoryPattern(**record) for record in patterns], found


def as_payload(found: GapFinding | CollectiveAttributionResult) -> dict[str, Any]:
    """A finding as a dictionary for JSON."""
    return {
        **dataclasses.asdict(found),
        "phase_attribution": phase_attribution_to_payload(found.phase_attribution),
    }


def _profiled(call: ProfileResult) -> _native.analysis.ProfiledCall:
    before, after = call.memory_before, call.memory_after
    return _native.analysis.ProfiledCall(
        function=call.function_name,
        seconds=call.execution_time,
        started=before.timestamp,
        allocated=call.memory_allocated,
        change=call.memory_diff(),
        peak=call.peak_memory_usage(),
        before=before.allocated_memory,
        after=after.allocated_memory,
        inactive=after.inactive_memory,
        reserved=after.reserved_memory,
    )


def _unavailable(events: Sequence[TelemetryEventLike]) -> dict[str, dict[str, Any]]:
    """What cannot be asked of these events, and why."""
    buffer = untouched(events)
    if buffer is not None:
        has_counters, reports_fragmentation = _native.analysis.allocator_availability(buffer)
        return _missing(has_counters, None if reports_fragmentation else FRAGMENTATION_DISABLED)
    counted = [
        event
        for event in passing(events)
        if event.event_type.casefold() == "sample"
        and event.allocator_allocated_bytes is not None
        and event.allocator_reserved_bytes is not None
        and event.device_used_bytes is not None
    ]
    return _missing(bool(counted), fragmentation_unavailable_reason(counted))


def _missing(has_counters: bool, reason: str | None) -> dict[str, dict[str, Any]]:
    if not has_counters:
        names = ("gap_analysis", "collective_attribution", "fragmentation_analysis")
        return {name: {"available": False, "reason": _NO_COUNTERS} for name in names}
    return {} if reason is None else {"fragmentation_analysis": {"available": False, "reason": reason}}


def _ranks(events: Sequence[TelemetryEventLike]) -> set[int]:
    buffer = untouched(events)
    if buffer is None:
        return {event.rank for event in passing(events)}
    return _native.analysis.event_ranks(buffer)


def _recommendations(
    patterns: list[MemoryPattern], insights: list[PerformanceInsight]
) -> list[dict[str, Any]]:
    """Critical patterns, insights of high impact, then warnings."""

    def of_pattern(found: MemoryPattern, priority: str) -> dict[str, Any]:
        return {
            "priority": priority,
            "category": found.pattern_type,
            "description": found.description,
            "suggestions": found.suggestions,
        }

    advice = [of_pattern(found, "high") for found in patterns if found.severity == "critical"]
    advice += [
        {
            "priority": "high",
            "category": found.category,
            "description": found.description,
            "suggestions": found.recommendations,
        }
        for found in insights
        if found.impact == "high"
    ]
    advice += [of_pattern(found, "medium") for found in patterns if found.severity == "warning"]
    return advice[:_MOST_RECOMMENDATIONS]


def _score(patterns: list[MemoryPattern], insights: list[PerformanceInsight]) -> dict[str, Any]:
    lost = sum(_PATTERN_COST.get(found.severity, 5) for found in patterns)
    lost += sum(_INSIGHT_COST.get(found.impact, 3) for found in insights)
    score = max(0, 100 - lost)
    grade, description = next((grade, words) for least, grade, words in _GRADES if score >= least)
    return {
        "score": score,
        "grade": grade,
        "description": description,
        "issues_found": len(patterns) + len(insights),
    }
