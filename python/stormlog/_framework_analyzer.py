"""What the analyzers of TensorFlow's and JAX's results share: patterns, efficiency, functions, a score.

Private. A framework gives its unit, its texts, its rule for leaks and what counts of a snapshot. What is
judged is only what the result has: an attribute that is missing is left out, never guessed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from stormlog.analyzer import as_payload
from stormlog.collective_attribution import (
    CollectiveAttributionConfig,
    CollectiveAttributionResult,
    attribute_collective_memory,
    resolve_collective_attribution_config,
)
from stormlog.gap_analysis import GapFinding, analyze_hidden_memory_gaps
from stormlog.phases import PhaseReplayIndex

if TYPE_CHECKING:
    from stormlog.telemetry import TelemetryEventLike


class FrameworkAnalyzer:
    """Looks at the results of a framework's profiles and trackers, and at telemetry."""

    # In the unit of the framework's results.
    _MEMORY_KEY: str
    _MUCH_PER_CALL: int
    _ADVICE_ON_MEMORY: str
    _ADVICE_ON_CALLS: str
    _ACTION_ON_FUNCTIONS: str
    _REMEDIATION: Mapping[str, list[str]]
    _format_memory: Callable[[int], str]

    def __init__(
        self,
        sensitivity: float = 0.05,
        collective_sensitivity: str = "medium",
        collective_threshold_overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.sensitivity = sensitivity
        self.collective_attribution_config: CollectiveAttributionConfig = (
            resolve_collective_attribution_config(collective_sensitivity, collective_threshold_overrides)
        )
        self.thresholds: dict[str, float] = {
            "gap_ratio_threshold": 0.05,
            "gap_spike_zscore": 2.0,
            "gap_drift_r_squared": 0.6,
            "gap_fragmentation_ratio": 0.3,
        }

    def detect_patterns(self, tracking_results: Any) -> list[dict[str, Any]]:
        """Periods and steps in the samples; nothing from fewer than twenty."""
        usage = getattr(tracking_results, "memory_usage", ())
        if len(usage) < 20:
            return []
        patterns: list[dict[str, Any]] = []
        likeness = _likeness_of_chunks(usage)
        if likeness is not None and likeness > 0.7:
            patterns.append(
                {
                    "type": "periodic_pattern",
                    "correlation": likeness,
                    "description": f"Detected periodic memory pattern (correlation: {likeness:.3f})",
                }
            )
        steps = sum(later > earlier * 1.2 for earlier, later in pairwise(usage))
        if steps > len(usage) * 0.1:
            patterns.append(
                {
                    "type": "step_pattern",
                    "step_count": steps,
                    "description": f"Detected {steps} sudden memory increases (step pattern)",
                }
            )
        return patterns

    def analyze_efficiency(self, profile_result: Any) -> float:
        """0 to 10: lowered by a high peak, fast growth, fragmentation and leaks."""
        if not hasattr(profile_result, "peak_memory_mb"):
            return 0.0
        lost = _step(profile_result.peak_memory_mb, (8000, 3.0), (4000, 1.5))
        lost += _step(getattr(profile_result, "memory_growth_rate", 0), (200, 2.0), (100, 1.0))
        score = self.analyze_fragmentation(profile_result)["fragmentation_score"]
        lost += _step(score, (0.5, 2.0), (0.3, 1.0))
        leaks = self.detect_memory_leaks(SimpleNamespace(memory_usage=self._usage_of(profile_result)))
        lost += 3.0 if any(leak["severity"] == "high" for leak in leaks) else 1.5 if leaks else 0.0
        return max(0.0, min(10.0, 10.0 - lost))

    def correlate_with_performance(self, profile_result: Any) -> dict[str, Any]:
        """Memory and time of a call of each function, and what to do about the worst."""
        functions: dict[str, dict[str, Any]] = {}
        advice: list[str] = []
        for name, profile in getattr(profile_result, "function_profiles", {}).items():
            calls = profile.get("calls", 0)
            if calls <= 0:
                continue
            memory = profile.get(self._MEMORY_KEY, 0) / calls
            seconds = profile.get("total_duration", 0) / calls
            functions[name] = {
                "avg_memory_per_call": memory,
                "avg_duration_per_call": seconds,
                "efficiency_score": (0.5 if memory > self._MUCH_PER_CALL else 1.0)
                * (0.7 if seconds > 1.0 else 1.0),
                "total_calls": calls,
            }
            if memory > 2 * self._MUCH_PER_CALL:
                advice.append(self._ADVICE_ON_MEMORY.format(name=name))
            if calls > 100 and seconds > 0.1:
                advice.append(self._ADVICE_ON_CALLS.format(name=name))
        return {
            "memory_duration_correlation": 0.0,
            "function_efficiency": functions,
            "recommendations": advice,
        }

    def analyze_memory_gaps(
        self, events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
    ) -> list[GapFinding]:
        """The classes of hidden memory in telemetry, the worst first."""
        return analyze_hidden_memory_gaps(
            events, self.thresholds, self._format_memory, self._REMEDIATION, phase_resolver=phase_resolver
        )

    def analyze_collective_attribution(
        self, events: Sequence[TelemetryEventLike], *, phase_resolver: PhaseReplayIndex | None = None
    ) -> list[CollectiveAttributionResult]:
        """The spikes of hidden memory that go with collective communication."""
        return attribute_collective_memory(
            events, config=self.collective_attribution_config, phase_resolver=phase_resolver
        )

    def score_optimization(
        self, profile_result: Any, events: Sequence[TelemetryEventLike] | None = None
    ) -> dict[str, Any]:
        """Scores of 0 to 10, what to do first, and what telemetry shows where there are events."""
        efficiency = self._efficiency_of_ten(profile_result)
        scores = {"memory_efficiency": efficiency}
        fragmentation = 5.0
        if hasattr(profile_result, "snapshots"):
            share = self.analyze_fragmentation(profile_result)["fragmentation_score"]
            fragmentation = scores["fragmentation"] = max(0, 10 - share * 10)
        functions = self.correlate_with_performance(profile_result)["function_efficiency"].values()
        performance = 5.0
        if functions:
            performance = statistics.mean(function["efficiency_score"] for function in functions) * 10
        scores["performance"] = performance
        judged = [
            (efficiency, "Address memory efficiency issues"),
            (fragmentation, "Reduce memory fragmentation"),
            (performance, self._ACTION_ON_FUNCTIONS),
        ]
        report: dict[str, Any] = {
            "overall_score": statistics.mean([score for score, _ in judged]),
            "categories": scores,
            "top_recommendations": self._recommendations(profile_result)[:5],
            "priority_actions": [action for score, action in judged if score < 6],
        }
        if events is not None:
            phases = PhaseReplayIndex.from_events(events)
            gaps = self.analyze_memory_gaps(events, phase_resolver=phases)
            intervals = self.analyze_collective_attribution(events, phase_resolver=phases)
            report["gap_analysis"] = [as_payload(found) for found in gaps]
            report["collective_attribution"] = [as_payload(found) for found in intervals]
        return report

    # What a framework adds

    def detect_memory_leaks(self, tracking_results: Any) -> list[dict[str, Any]]:
        """What grows in `memory_usage`, by the framework's own rule."""
        raise NotImplementedError

    def analyze_fragmentation(self, profile_result: Any) -> dict[str, float]:
        """How much of the reserved memory is not in use."""
        raise NotImplementedError

    def _held(self, snapshot: Any) -> float | None:
        """What counts of a snapshot; None where its memory is unknown."""
        raise NotImplementedError

    def _recommendations(self, profile_result: Any) -> list[str]:
        raise NotImplementedError

    def _usage_of(self, result: Any) -> list[float]:
        """Memory over time: by the snapshots of a profile if any are known, else by a tracker's samples."""
        held = [self._held(snapshot) for snapshot in getattr(result, "snapshots", ())]
        return [size for size in held if size is not None] or list(getattr(result, "memory_usage", ()))

    def _efficiency_of_ten(self, profile_result: Any) -> float:
        return self.analyze_efficiency(profile_result)


def fragmentation_summary(shares: Sequence[float]) -> dict[str, float]:
    """The mean, the range and the change of the shares that are not in use."""
    if not shares:
        return {"fragmentation_score": 0.0, "trend": 0.0}
    trend = statistics.mean(shares[-5:]) - statistics.mean(shares[:5]) if len(shares) >= 10 else 0.0
    return {
        "fragmentation_score": statistics.mean(shares),
        "trend": trend,
        "max_fragmentation": max(shares),
        "min_fragmentation": min(shares),
    }


def _step(value: float, high: tuple[float, float], middle: tuple[float, float]) -> float:
    """What a value above one of two limits costs."""
    return high[1] if value > high[0] else middle[1] if value > middle[0] else 0.0


def _likeness_of_chunks(usage: Sequence[float]) -> float | None:
    """How much each stretch resembles the next; None where nothing varies."""
    size = min(10, len(usage) // 4)
    found = []
    for start in range(0, len(usage) - size, size):
        chunk, following = usage[start : start + size], usage[start + size : start + 2 * size]
        if len(following) == size and len(set(chunk)) > 1 and len(set(following)) > 1:
            found.append(statistics.correlation(chunk, following))
    return statistics.mean(found) if found else None
