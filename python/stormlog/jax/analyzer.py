"""What the results of a JAX profile or tracker show: growth, periods, and a score.

Sizes of results are bytes. The pool that JAX takes at the start is a reserve: what of it is unused is never
fragmentation here, and an attribute that is missing is left out, never guessed.
"""

from __future__ import annotations

import statistics
from typing import Any

from stormlog._framework_analyzer import FrameworkAnalyzer, fragmentation_summary
from stormlog._jax.preallocation import Preallocation
from stormlog.gap_analysis import GapFinding
from stormlog.jax.utils import format_memory

__all__ = ["GapFinding", "MemoryAnalyzer"]

_GIB = 1 << 30
_REMEDIATION = {
    "transient_spike": [
        "See what the compiled functions need: stormlog.jax.compiled_memory(fn, *args) lists temporaries.",
        "Use jax.checkpoint (remat) on the functions with the largest temporaries.",
        "Donate arguments that are not needed again: jax.jit(fn, donate_argnums=...).",
    ],
    "persistent_drift": [
        "Compare two memory profiles: stormlog diff EARLIER.pb.gz LATER.pb.gz names the lines that grew.",
        "Drop references to arrays that are kept in lists, closures or metrics.",
        "Other libraries on the device grow beside JAX's pool: stormlog run --cuda-driver names them.",
    ],
    "fragmentation_like": [
        "Keep preallocation on (XLA_PYTHON_CLIENT_PREALLOCATE): one pool fragments less than a growing one.",
        "Bucket or pad shapes, so that fewer programs and buffer sizes exist.",
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform gives memory back to the driver, at the cost of speed.",
    ],
}


class MemoryAnalyzer(FrameworkAnalyzer):
    """Looks at the results of JAX profiles and trackers, and at telemetry."""

    _MEMORY_KEY = "total_memory_delta"
    _MUCH_PER_CALL = _GIB
    _ADVICE_ON_MEMORY = "Function '{name}' keeps much memory per call: jax.checkpoint, or smaller arrays"
    _ADVICE_ON_CALLS = "Function '{name}' is called often: wrap it with jax.jit"
    _ACTION_ON_FUNCTIONS = "Optimise function performance"
    _REMEDIATION = _REMEDIATION
    _format_memory = staticmethod(format_memory)

    def detect_memory_leaks(self, results: Any) -> list[dict[str, Any]]:
        """A steady rise over all samples; nothing from fewer than ten."""
        usage = [float(held) for held in getattr(results, "memory_usage", ())]
        if len(usage) < 10 or max(usage) <= 0:
            return []
        slope = statistics.linear_regression(range(len(usage)), usage).slope
        if slope <= max(usage) * max(self.sensitivity * 0.02, 0.001):
            return []
        factor = f"{usage[-1] / usage[0]:.1f}x" if usage[0] else "∞x"
        return [
            {
                "type": "leak",
                "severity": "medium" if slope < max(usage) * 0.01 else "high",
                "description": f"Significant drift detected: {factor} increase over session.",
                "slope": slope,
            }
        ]

    def detect_patterns(self, results: Any) -> list[dict[str, Any]]:
        """Whether memory repeats itself from step to step; nothing from fewer than twenty samples."""
        found = super().detect_patterns(results)
        if any(pattern["type"] == "periodic_pattern" for pattern in found):
            return [{"type": "periodic", "description": "Strong step-to-step memory correlation detected."}]
        return []

    def analyze_fragmentation(self, profile_result: Any) -> dict[str, float]:
        """The share of the free memory that is not in its largest block, by the allocator's counters."""
        shares = [
            share
            for share in map(_fragmentation, getattr(profile_result, "snapshots", ()))
            if share is not None
        ]
        return fragmentation_summary(shares if len(shares) >= 2 else [])

    def analyze_efficiency(self, profile_result: Any) -> float:
        """0 to 1: lowered by a high peak, fast growth, fragmentation and a steady rise."""
        return super().analyze_efficiency(profile_result) / 10

    def _held(self, snapshot: Any) -> float | None:
        return snapshot.device_memory_bytes if snapshot.device_memory_available else None

    def _efficiency_of_ten(self, profile_result: Any) -> float:
        return self.analyze_efficiency(profile_result) * 10

    def _recommendations(self, profile_result: Any) -> list[str]:
        found = list(self.correlate_with_performance(profile_result)["recommendations"])
        if getattr(profile_result, "peak_memory_mb", 0) > 4000:
            found += ["Use bfloat16 for activations.", "Use jax.checkpoint (remat) on large layers."]
        found += [
            "Donate arguments that are not needed again: jax.jit(fn, donate_argnums=...).",
            "Look at the memory by line: stormlog stats on the file of save_device_memory_profile().",
        ]
        return found


def _fragmentation(snapshot: Any) -> float | None:
    stats = getattr(snapshot, "memory_stats", None) or {}
    limit, held = stats.get("bytes_limit"), stats.get("bytes_in_use")
    largest = stats.get("largest_free_block_bytes")
    # A pool that grows has room beyond its blocks.
    if not limit or held is None or not largest or not Preallocation.of().is_on:
        return None
    free = limit - held
    return max(1.0 - largest / free, 0.0) if free > 0 else None
