"""What the results of a TensorFlow profile or tracker show: leaks, fragmentation, patterns, and a score.

Sizes are megabytes, as TensorFlow's results have them. What is judged is only what the result has: an
attribute that is missing is left out, never guessed.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

from stormlog._framework_analyzer import FrameworkAnalyzer, fragmentation_summary
from stormlog.gap_analysis import GapFinding
from stormlog.tensorflow._advice import REMEDIATION, fragmentation_of, held_mb, suggest_optimizations
from stormlog.utils import format_memory

__all__ = ["GapFinding", "MemoryAnalyzer"]


class MemoryAnalyzer(FrameworkAnalyzer):
    """Looks at the results of TensorFlow profiles and trackers, and at telemetry."""

    _MEMORY_KEY = "total_memory_used"
    _MUCH_PER_CALL = 1000
    _ADVICE_ON_MEMORY = "Function '{name}' uses high memory per call - consider optimization"
    _ADVICE_ON_CALLS = "Function '{name}' called frequently - consider caching or @tf.function"
    _ACTION_ON_FUNCTIONS = "Optimize function performance"
    _REMEDIATION = REMEDIATION
    _format_memory = staticmethod(format_memory)

    def detect_memory_leaks(self, tracking_results: Any) -> list[dict[str, Any]]:
        """Steady increase, spikes, and memory that is not given back; nothing from fewer than ten samples."""
        usage = getattr(tracking_results, "memory_usage", ())
        if len(usage) < 10:
            return []
        leaks: list[dict[str, Any]] = []
        rises = sum(later > earlier for earlier, later in pairwise(usage))
        share = rises / (len(usage) - 1)
        if share > 0.7:
            leaks.append(
                {
                    "type": "monotonic_increase",
                    "severity": "high" if share > 0.9 else "medium",
                    "description": f"Memory shows monotonic increase in {share:.1%} of samples",
                    "growth_rate": getattr(tracking_results, "memory_growth_rate", 0),
                }
            )
        limit = statistics.mean(usage) + 3 * statistics.stdev(usage)
        spikes = [size for size in usage if size > limit]
        if spikes:
            leaks.append(
                {
                    "type": "memory_spikes",
                    "severity": "medium",
                    "description": f"Detected {len(spikes)} memory spikes above 3σ",  # noqa: RUF001 (as in 0.4.3)
                    "spike_values": spikes,
                }
            )
        first, last = statistics.mean(usage[:5]), statistics.mean(usage[-5:])
        if last > first * 1.5:
            factor = last / first if first > 0 else float("inf")
            leaks.append(
                {
                    "type": "insufficient_cleanup",
                    "severity": "medium",
                    "description": f"Final memory {last:.1f}MB is {factor:.1f}x initial memory",
                    "initial_avg": first,
                    "final_avg": last,
                }
            )
        return leaks

    def analyze_fragmentation(self, profile_result: Any) -> dict[str, float]:
        """How much of the reserved memory is not in use, on average and over time."""
        snapshots = getattr(profile_result, "snapshots", ())
        return fragmentation_summary(fragmentation_of(snapshots) if len(snapshots) >= 2 else [])

    def _held(self, snapshot: Any) -> float:
        return held_mb(snapshot)

    def _usage_of(self, result: Any) -> list[float]:
        # 0.4.3 looks for leaks only in a result that has samples.
        return super()._usage_of(result) if hasattr(result, "memory_usage") else []

    def _recommendations(self, profile_result: Any) -> list[str]:
        return suggest_optimizations(profile_result)
