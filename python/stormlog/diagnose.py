"""A diagnosis from inside a program: its machine, memory over a few seconds, the risks, in one directory.

The command `stormlog diagnose` looks at a process or a GPU from outside. What is here is called by the
program itself and asks the allocator of this very process, which no process outside
can see. The files are the same.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._diagnose_bundle import HIGH_UTILIZATION_RATIO, MANIFEST_VERSION, DiagnoseBundle
from stormlog.cuda_native_debug import (
    DEFAULT_TRACE_ALLOC_MAX_ENTRIES,
    capture_cuda_snapshot_artifacts,
    cuda_memory_history,
    cuda_memory_history_supported,
)
from stormlog.derived_fields import compute_event_fields
from stormlog.device_collectors import build_device_memory_collector, detect_torch_runtime_backend
from stormlog.diagnose_report import DiagnoseUsageError
from stormlog.utils import (
    check_memory_fragmentation,
    get_gpu_info,
    get_system_info,
    suggest_memory_optimization,
)

__all__ = [
    "FRAGMENTATION_WARNING_RATIO",
    "HIGH_UTILIZATION_RATIO",
    "MANIFEST_VERSION",
    "DiagnoseUsageError",
    "build_diagnostic_summary",
    "collect_environment",
    "run_diagnose",
    "run_timeline_capture",
]

FRAGMENTATION_WARNING_RATIO = _native.catalog.DIAGNOSE_FRAGMENTATION
_THRESHOLDS = {
    "high_utilization": HIGH_UTILIZATION_RATIO,
    "fragmentation_warning": FRAGMENTATION_WARNING_RATIO,
}
_TIMELINE = ("timestamps", "allocated", "reserved")
_CUDA = ("cuda", "rocm")


def collect_environment(device: int | None = None) -> dict[str, Any]:
    """The machine, the GPU as the framework sees it, and how fragmented its memory is."""
    system = get_system_info()
    backend = system["detected_backend"]
    gpu = _gpu(device)
    fragmentation: dict[str, Any] = {"error": "CUDA is not available"}
    if backend == "mps":
        sample = _mps_sample()
        if sample is not None:
            gpu = {
                "backend": "mps",
                "device_id": sample.device_id,
                "allocated_memory": sample.allocated_bytes,
                "reserved_memory": sample.reserved_bytes,
                "total_memory": sample.total_bytes,
            }
        fragmentation = {"note": "MPS fragmentation metrics are not available"}
    elif backend in _CUDA and "error" not in gpu:
        fragmentation = check_memory_fragmentation(device)
    return {"system": system, "gpu": gpu, "fragmentation": fragmentation}


def run_timeline_capture(
    device: int | None, duration_seconds: float, interval: float
) -> dict[str, list[float]]:
    """Memory over some seconds; empty lists where no time is given or nothing can be measured."""
    if duration_seconds <= 0:
        return {name: [] for name in _TIMELINE}
    try:
        tracker = _tracker(device, interval)
        tracker.start_tracking()
        try:
            time.sleep(duration_seconds)
        finally:
            tracker.stop_tracking()
        timeline = tracker.get_memory_timeline(interval=interval)
    except Exception:
        # A diagnosis says what it can: a GPU that cannot be asked is one of the things it is made for.
        return {name: [] for name in _TIMELINE}
    return {name: list(timeline.get(name, [])) for name in _TIMELINE}


def build_diagnostic_summary(device: int | None = None) -> tuple[dict[str, Any], bool]:
    """Memory as it is now with its risks, and whether there is any."""
    backend = get_system_info()["detected_backend"]
    gpu = _gpu(device)
    has_cuda = backend in _CUDA and "error" not in gpu
    fragments = check_memory_fragmentation(device) if has_cuda else {}
    allocated, reserved, total, peak = (
        _counters(backend, gpu) if has_cuda or backend == "mps" else (0, 0, 0, 0)
    )
    derived = compute_event_fields(
        {
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": reserved,
            "device_total_bytes": total or None,
            "collector": None,
        }
    )
    utilization = derived["utilization_ratio"] or 0.0
    fragmentation = float(fragments.get("fragmentation_ratio", 0))
    ooms = gpu.get("memory_stats", {}).get("num_ooms", 0) if has_cuda else 0
    risks = {
        "oom_occurred": ooms > 0,
        "high_utilization": total > 0 and utilization >= HIGH_UTILIZATION_RATIO,
        "fragmentation_warning": fragmentation >= FRAGMENTATION_WARNING_RATIO,
    }
    suggestions = suggest_memory_optimization(fragments) if has_cuda else []
    if backend == "mps" and risks["high_utilization"]:
        suggestions = [
            "High MPS memory utilization detected. Consider reducing batch size or using mixed precision."
        ]
    summary = {
        "backend": backend,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "peak_bytes": peak,
        "total_bytes": total,
        "allocator_gap_bytes": derived["allocator_gap_bytes"] or 0,
        "utilization_ratio": utilization,
        "fragmentation_ratio": fragmentation,
        "num_ooms": ooms,
        "risk_flags": risks,
        "suggestions": suggestions,
    }
    return summary, any(risks.values())


def run_diagnose(
    output: str | None,
    device: int | None,
    duration: float,
    interval: float,
    command_line: str,
    native_history: bool = False,
    native_history_max_entries: int = DEFAULT_TRACE_ALLOC_MAX_ENTRIES,
) -> tuple[Path, int]:
    """Writes the whole directory and gives it with the exit code: 0 no risk, 3 a risk, 1 it is incomplete.

    DiagnoseUsageError for an impossible request.
    """
    if native_history:
        _check_native_history(native_history_max_entries)
    bundle = DiagnoseBundle(output, "stormlog-diagnose", "gpumemprof", _THRESHOLDS)

    def make() -> tuple[dict[str, Any], bool]:
        bundle.write(_native.catalog.DIAGNOSE_ENVIRONMENT_FILE, collect_environment(device))
        if native_history:
            with cuda_memory_history(device=device, trace_alloc_max_entries=native_history_max_entries):
                timeline = run_timeline_capture(device, duration, interval)
                bundle.files += capture_cuda_snapshot_artifacts(
                    bundle.directory, device=device, history_recorded=True
                )
        else:
            timeline = run_timeline_capture(device, duration, interval)
        bundle.write(_native.catalog.DIAGNOSE_TIMELINE_FILE, timeline)
        summary, is_risky = build_diagnostic_summary(device)
        bundle.write(_native.catalog.DIAGNOSE_SUMMARY_FILE, summary)
        return summary, is_risky

    stated = {"command_line": command_line, "native_history_enabled": native_history}
    return bundle.directory, bundle.fill(make, stated)


def _gpu(device: int | None) -> dict[str, Any]:
    try:
        return get_gpu_info(device)
    except ImportError as error:
        return {"error": str(error)}


def _counters(backend: str, gpu: dict[str, Any]) -> tuple[int, int, int, int]:
    """Allocated, reserved, total, peak."""
    if backend != "mps":
        allocated = gpu.get("allocated_memory") or 0
        reserved, total = gpu.get("reserved_memory") or 0, gpu.get("total_memory") or 0
        return allocated, reserved, total, gpu.get("max_memory_allocated") or allocated
    sample = _mps_sample()
    if sample is None:
        return 0, 0, 0, 0
    allocated, reserved = sample.allocated_bytes or 0, sample.reserved_bytes or 0
    return allocated, reserved, sample.total_bytes or 0, max(allocated, reserved)


def _mps_sample() -> Any:
    try:
        return build_device_memory_collector("mps").sample()
    except Exception:
        return None


def _tracker(device: int | None, interval: float) -> Any:
    backend = detect_torch_runtime_backend()
    if backend == "cpu":
        from stormlog.cpu_profiler import CPUMemoryTracker

        return CPUMemoryTracker(sampling_interval=interval)
    from stormlog.tracker import MemoryTracker

    chosen = "mps" if backend == "mps" else device
    return MemoryTracker(device=chosen, sampling_interval=interval, enable_alerts=False)


def _check_native_history(max_entries: int) -> None:
    if max_entries <= 0:
        raise DiagnoseUsageError("native_history_max_entries must be >= 1")
    if detect_torch_runtime_backend() != "cuda":
        raise DiagnoseUsageError("Native memory history is currently supported only for CUDA runtimes.")
    if not cuda_memory_history_supported():
        raise DiagnoseUsageError("Native CUDA memory history is unavailable in this PyTorch runtime.")
