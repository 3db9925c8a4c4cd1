"""A diagnosis from inside a TensorFlow program: machine, memory over a few seconds, risks, in one directory.

TensorFlow tells what is allocated and its peak, nothing of what it reserves or of fragmentation.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._diagnose_bundle import MANIFEST_VERSION, DiagnoseBundle
from stormlog.derived_fields import compute_event_fields
from stormlog.diagnose_report import DiagnoseUsageError
from stormlog.tensorflow._runtime import MIB
from stormlog.tensorflow.utils import get_backend_info, get_gpu_info, get_system_info

__all__ = [
    "HIGH_UTILIZATION_RATIO",
    "MANIFEST_VERSION",
    "DiagnoseUsageError",
    "build_diagnostic_summary",
    "collect_environment",
    "run_diagnose",
    "run_timeline_capture",
]

HIGH_UTILIZATION_RATIO = _native.catalog.DIAGNOSE_HIGH_UTILIZATION
_VERY_HIGH_RATIO = 0.9
_ALWAYS = (
    "Use tf.data for efficient input pipelines and memory use.",
    "Profile memory at different points in training to find bottlenecks.",
    "Consider clearing the session or limiting GPU growth with tf.config.experimental.set_memory_growth.",
)


def collect_environment(device: str | None = None) -> dict[str, Any]:
    """The machine and the GPUs as TensorFlow sees them."""
    note = "TensorFlow does not expose fragmentation in this build"
    return {"system": get_system_info(), "gpu": get_gpu_info(), "fragmentation": {"note": note}}


def run_timeline_capture(
    device: str | None, duration_seconds: float, interval: float
) -> dict[str, list[float]]:
    """Memory over some seconds in bytes; empty lists where no time is given or nothing can be measured."""
    nothing: dict[str, list[float]] = {"timestamps": [], "allocated": [], "reserved": []}
    if duration_seconds <= 0:
        return nothing
    try:
        from stormlog.tensorflow.tracker import MemoryTracker

        tracker = MemoryTracker(device=device, sampling_interval=interval, enable_logging=False)
        tracker.start_tracking()
        try:
            time.sleep(duration_seconds)
        finally:
            seen = tracker.stop_tracking()
    except Exception:
        # A diagnosis says what it can: a runtime that cannot be asked is one of the things it is made for.
        return nothing
    held = [megabytes * MIB for megabytes in seen.memory_usage]
    return {"timestamps": seen.timestamps, "allocated": held, "reserved": list(held)}


def build_diagnostic_summary(device: str | None = None) -> tuple[dict[str, Any], bool]:
    """Memory as it is now with its risks, and whether there is any."""
    allocated, peak, total = _memory(get_gpu_info()["devices"], device)
    derived = compute_event_fields(
        {
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": allocated,
            "device_total_bytes": total or None,
            "collector": None,
        }
    )
    utilization = derived["utilization_ratio"] or 0.0
    is_high = total > 0 and utilization >= HIGH_UTILIZATION_RATIO
    summary = {
        "backend": get_backend_info()["runtime_backend"],
        "allocated_bytes": allocated,
        # There is no counter of its own for it.
        "reserved_bytes": allocated,
        "peak_bytes": peak,
        "total_bytes": total,
        "allocator_gap_bytes": derived["allocator_gap_bytes"] or 0,
        "utilization_ratio": utilization,
        "fragmentation_ratio": 0.0,
        "num_ooms": 0,
        "risk_flags": {"oom_occurred": False, "high_utilization": is_high, "fragmentation_warning": False},
        "suggestions": _advice(utilization),
    }
    return summary, is_high


def run_diagnose(
    output: str | None, device: str | None, duration: float, interval: float, command_line: str
) -> tuple[Path, int]:
    """Writes the whole directory and gives it with the exit code: 0 no risk, 3 a risk, 1 it is incomplete.

    DiagnoseUsageError where what is asked for cannot be.
    """
    thresholds = {"high_utilization": HIGH_UTILIZATION_RATIO}
    bundle = DiagnoseBundle(output, "stormlog-tensorflow-diagnose", "tfmemprof", thresholds)

    def make() -> tuple[dict[str, Any], bool]:
        bundle.write(_native.catalog.DIAGNOSE_ENVIRONMENT_FILE, collect_environment(device))
        timeline = run_timeline_capture(device, duration, interval)
        bundle.write(_native.catalog.DIAGNOSE_TIMELINE_FILE, timeline)
        summary, is_risky = build_diagnostic_summary(device)
        bundle.write(_native.catalog.DIAGNOSE_SUMMARY_FILE, summary)
        return summary, is_risky

    return bundle.directory, bundle.fill(make, {"command_line": command_line})


def _memory(devices: list[dict[str, Any]], device: str | None) -> tuple[int, int, int]:
    """Allocated, peak and total bytes of a GPU; zeros where it is not there."""
    place = (device or "0").rpartition(":")[2]
    number = int(place) if place.isdigit() else 0
    row = devices[number] if number < len(devices) else {}
    sizes = [row.get(f"{name}_memory_mb") or 0 for name in ("current", "peak", "total")]
    allocated, peak, total = (int(megabytes * MIB) for megabytes in sizes)
    return allocated, peak, total


def _advice(utilization: float) -> list[str]:
    found = []
    if utilization >= _VERY_HIGH_RATIO:
        found.append(
            "Very high GPU memory utilization. Consider reducing batch size, using gradient checkpointing "
            "(tf.recompute_grad), or model parallelism."
        )
    if utilization >= HIGH_UTILIZATION_RATIO:
        found.append(
            "Enable mixed precision with tf.keras.mixed_precision.Policy('mixed_float16') to reduce memory "
            "footprint."
        )
    return [*found, *_ALWAYS]
