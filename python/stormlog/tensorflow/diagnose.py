"""A diagnosis from inside a TensorFlow program: machine, memory over a few seconds, risks, in one directory.

TensorFlow reports what is allocated and its peak, not what it reserves, and no fragmentation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stormlog._diagnose_bundle import HIGH_UTILIZATION_RATIO, MANIFEST_VERSION
from stormlog._framework_diagnose import (
    VERY_HIGH_UTILIZATION_RATIO,
    summarize,
    track_for,
    write_bundle,
)
from stormlog.diagnose_report import DiagnoseUsageError
from stormlog.tensorflow._runtime import MIB, memory_limit, tensorflow_or_none
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
        seen = track_for(tracker, duration_seconds)
    except Exception:
        # A diagnosis reports what it can: a runtime that does not answer is one of its subjects.
        return nothing
    held = [megabytes * MIB for megabytes in seen.memory_usage]
    return {"timestamps": seen.timestamps, "allocated": held, "reserved": list(held)}


def build_diagnostic_summary(device: str | None = None) -> tuple[dict[str, Any], bool]:
    """Memory as it is now with its risks, and whether there is any."""
    place = (device or "0").rpartition(":")[2]
    number = int(place) if place.isdigit() else 0
    allocated, peak = _memory(get_gpu_info()["devices"], number)
    total = _limit(number)
    # TensorFlow has no counter of what it reserves.
    return summarize(get_backend_info()["runtime_backend"], allocated, allocated, peak, total, _advice)


def run_diagnose(
    output: str | None, device: str | None, duration: float, interval: float, command_line: str
) -> tuple[Path, int]:
    """Writes the whole directory and gives it with the exit code: 0 no risk, 3 a risk, 1 it is incomplete.

    DiagnoseUsageError for an impossible request.
    """
    return write_bundle(
        output,
        ("stormlog-tensorflow-diagnose", "tfmemprof"),
        command_line,
        lambda: collect_environment(device),
        lambda: run_timeline_capture(device, duration, interval),
        lambda: build_diagnostic_summary(device),
    )


def _memory(devices: list[dict[str, Any]], number: int) -> tuple[int, int]:
    """Allocated and peak bytes of a GPU; zeros where it is not there."""
    row = devices[number] if number < len(devices) else {}
    allocated, peak = (int((row.get(f"{name}_memory_mb") or 0) * MIB) for name in ("current", "peak"))
    return allocated, peak


def _limit(number: int) -> int:
    """What TensorFlow's allocator may take of a GPU, at which the tracker too sees it full; 0 if unknown."""
    tf = tensorflow_or_none()
    return (tf is not None and memory_limit(tf, number)) or 0


def _advice(utilization: float) -> list[str]:
    found = []
    if utilization >= VERY_HIGH_UTILIZATION_RATIO:
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
