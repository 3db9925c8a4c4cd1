"""A diagnosis from inside a JAX program: machine, memory over a few seconds, risks, in one directory."""

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
from stormlog._jax.preallocation import Preallocation, limit_bytes, peak_bytes, pool_bytes
from stormlog.diagnose_report import DiagnoseUsageError
from stormlog.jax.utils import detect_jax_backend, get_device_info, get_system_info

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
    "Look at the memory by line: jax.profiler.save_device_memory_profile(FILE), then stormlog stats FILE.",
    "Donate arguments that are not needed again: jax.jit(fn, donate_argnums=...).",
)


def collect_environment(device_index: int | str = 0) -> dict[str, Any]:
    """The machine and the device as JAX sees them."""
    note = "JAX does not expose fragmentation in this build"
    return {
        "system": get_system_info(),
        "device": get_device_info(device_index),
        "preallocation": Preallocation.of().to_dict(None),
        "fragmentation": {"note": note},
    }


def run_timeline_capture(device_index: int | str, duration_seconds: float, interval: float) -> dict[str, Any]:
    """Memory over some seconds in bytes; empty lists where no time is given or nothing can be measured."""
    found: dict[str, Any] = {
        "timestamps": [],
        "allocated": [],
        "reserved": [],
        "device_memory_available": False,
    }
    if duration_seconds <= 0:
        return found
    try:
        from stormlog.jax.tracker import MemoryTracker

        tracker = MemoryTracker(device_index=device_index, sampling_interval=interval, enable_logging=False)
        seen = track_for(tracker, duration_seconds)
    except Exception as error:
        # A diagnosis reports what it can: a runtime that does not answer is one of its subjects.
        return {**found, "device_memory_unavailable_reason": str(error)}
    samples = [row for row in seen.telemetry_events if row["event_type"] == "sample"]
    return {
        "timestamps": [row["timestamp_ns"] / 1e9 for row in samples],
        "allocated": [row["allocator_allocated_bytes"] for row in samples],
        "reserved": [row["allocator_reserved_bytes"] for row in samples],
        "device_memory_available": seen.device_memory_available,
        "device_memory_unavailable_reason": seen.device_memory_unavailable_reason,
        "process_memory_bytes": seen.process_memory_bytes,
    }


def build_diagnostic_summary(device_index: int | str = 0) -> tuple[dict[str, Any], bool]:
    """Memory as it is now with its risks, and whether there is any. The limit is that of JAX's pool."""
    info = get_device_info(device_index)
    stats: dict[str, Any] = info["memory_stats"] if info["memory_stats_available"] else {}
    preallocation = Preallocation.of()
    allocated, total = int(stats.get("bytes_in_use", 0)), limit_bytes(stats, preallocation) or 0
    reserved = (pool_bytes(stats, preallocation) if stats else None) or allocated
    return summarize(
        detect_jax_backend(),
        allocated,
        reserved,
        peak_bytes(stats, preallocation) or allocated,
        total,
        _advice,
        preallocation=preallocation.sentence(stats) if stats else None,
    )


def run_diagnose(
    output: str | None, device_index: int | str, duration: float, interval: float, command_line: str
) -> tuple[Path, int]:
    """Writes the whole directory and gives it with the exit code: 0 no risk, 3 a risk, 1 it is incomplete.

    DiagnoseUsageError for an impossible request.
    """
    return write_bundle(
        output,
        ("stormlog-jax-diagnose", "jaxmemprof"),
        command_line,
        lambda: collect_environment(device_index),
        lambda: run_timeline_capture(device_index, duration, interval),
        lambda: build_diagnostic_summary(device_index),
    )


def _advice(utilization: float) -> list[str]:
    found = []
    if utilization >= VERY_HIGH_UTILIZATION_RATIO:
        found.append("Very high use of the pool: a smaller batch, jax.checkpoint (remat), or sharding.")
    if utilization >= HIGH_UTILIZATION_RATIO:
        found.append("Use bfloat16 for activations and optimizer state.")
    return [*found, *_ALWAYS]
