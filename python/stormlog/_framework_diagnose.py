"""What the diagnoses of TensorFlow and JAX programs share: the capture, the summary, the files. Private.

A framework gives its figures; which of them is a risk is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from stormlog import _native
from stormlog._diagnose_bundle import HIGH_UTILIZATION_RATIO, DiagnoseBundle
from stormlog.derived_fields import compute_event_fields

VERY_HIGH_UTILIZATION_RATIO = 0.9

_Result = TypeVar("_Result", covariant=True)


class _Tracker(Protocol[_Result]):
    def start_tracking(self) -> None: ...

    def stop_tracking(self) -> _Result: ...


def track_for(tracker: _Tracker[_Result], seconds: float) -> _Result:
    """The result of a tracker that ran for this long."""
    tracker.start_tracking()
    try:
        time.sleep(seconds)
    finally:
        result = tracker.stop_tracking()
    return result


def summarize(
    backend: str,
    allocated: int,
    reserved: int,
    peak: int,
    total: int,
    advise: Callable[[float], list[str]],
    **stated: Any,
) -> tuple[dict[str, Any], bool]:
    """Memory as it is now with its risks, and whether there is any. `total` is 0 where it is not known."""
    derived = compute_event_fields(
        {
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": reserved,
            "device_total_bytes": total or None,
            "collector": None,
        }
    )
    utilization = derived["utilization_ratio"] or 0.0
    is_high = total > 0 and utilization >= HIGH_UTILIZATION_RATIO
    summary = {
        "backend": backend,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "peak_bytes": peak,
        "total_bytes": total,
        "allocator_gap_bytes": derived["allocator_gap_bytes"] or 0,
        "utilization_ratio": utilization,
        "fragmentation_ratio": 0.0,
        "num_ooms": 0,
        "risk_flags": {"oom_occurred": False, "high_utilization": is_high, "fragmentation_warning": False},
        **stated,
        "suggestions": advise(utilization),
    }
    return summary, is_high


def write_bundle(
    output: str | None,
    tool: tuple[str, str],
    command_line: str,
    environment: Callable[[], dict[str, Any]],
    timeline: Callable[[], dict[str, Any]],
    summary: Callable[[], tuple[dict[str, Any], bool]],
) -> tuple[Path, int]:
    """Writes the directory of a diagnosis; gives it and the exit code. `tool`: its prefix, the command."""
    prefix, name = tool
    bundle = DiagnoseBundle(output, prefix, name, {"high_utilization": HIGH_UTILIZATION_RATIO})

    def make() -> tuple[dict[str, Any], bool]:
        bundle.write(_native.catalog.DIAGNOSE_ENVIRONMENT_FILE, environment())
        bundle.write(_native.catalog.DIAGNOSE_TIMELINE_FILE, timeline())
        found, is_risky = summary()
        bundle.write(_native.catalog.DIAGNOSE_SUMMARY_FILE, found)
        return found, is_risky

    return bundle.directory, bundle.fill(make, {"command_line": command_line})
