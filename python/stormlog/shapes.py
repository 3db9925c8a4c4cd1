"""The three dictionaries of the documents: a memory snapshot, a function call, a leak detection result.

Views of what the profilers measure, in megabytes of 1024 KB. What is not known is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormlog.profiler import MemorySnapshot, ProfileResult

__all__ = ["function_call", "leak_detection_result", "memory_snapshot"]

_MB = 1024 * 1024
_WINDOWS = 10
_MIN_WINDOWS = 3
_ADVICE = [
    "Check for unreleased tensors: lists, closures and exceptions that keep them.",
    "Keep losses and metrics as numbers (`.item()`, `.detach()`), not with their graph.",
    "Review model cleanup: what is created each step must be dropped each step.",
]


def memory_snapshot(snapshot: MemorySnapshot, total_memory: int | None = None) -> dict[str, Any]:
    """`timestamp, memory_used_mb, memory_total_mb, memory_percent, gpu_id`."""
    used = snapshot.allocated_memory
    return {
        "timestamp": snapshot.timestamp,
        "memory_used_mb": used / _MB,
        "memory_total_mb": total_memory / _MB if total_memory else None,
        "memory_percent": used / total_memory * 100 if total_memory else None,
        "gpu_id": snapshot.device_id,
    }


def function_call(result: ProfileResult) -> dict[str, Any]:
    """`name, start_time, end_time, duration, memory_start_mb, memory_end_mb, memory_peak_mb`."""
    start = result.memory_before.timestamp
    return {
        "name": result.function_name,
        "start_time": start,
        "end_time": start + result.execution_time,
        "duration": result.execution_time,
        "memory_start_mb": result.memory_before.allocated_memory / _MB,
        "memory_end_mb": result.memory_after.allocated_memory / _MB,
        "memory_peak_mb": result.peak_memory_usage() / _MB,
    }


def leak_detection_result(
    samples: Iterable[tuple[float, int]], min_increase_bytes: int = 100 * _MB
) -> dict[str, Any]:
    """`detected, severity, memory_increase_mb, time_window_seconds, suggestions` of (time, bytes) samples.

    It is the floor that must rise: the least of each tenth of the samples, so that what every step takes and
    gives back does not count. Severity is none, low, medium (twice that increase) or high (1 GiB, or
    ten times it).
    """
    ordered = sorted(samples)
    span = ordered[-1][0] - ordered[0][0] if ordered else 0.0
    count = min(_WINDOWS, len(ordered) // 2)
    increase, detected = 0, False
    if count >= _MIN_WINDOWS:
        edges = [len(ordered) * number // count for number in range(count + 1)]
        floors = [min(size for _, size in ordered[start:end]) for start, end in pairwise(edges)]
        rises = sum(late > early for early, late in pairwise(floors))
        increase = floors[-1] - floors[0]
        detected = increase >= min_increase_bytes and rises / (count - 1) > 0.7
    severity = "none"
    if detected:
        is_high = increase >= min(1024 * _MB, 10 * min_increase_bytes)
        severity = "high" if is_high else "medium" if increase >= 2 * min_increase_bytes else "low"
    return {
        "detected": detected,
        "severity": severity,
        "memory_increase_mb": increase / _MB,
        "time_window_seconds": span,
        "suggestions": list(_ADVICE) if detected else [],
    }
