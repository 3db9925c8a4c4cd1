"""What TensorFlow knows of the machine, and what can be set to make it use less memory.

Everything works without TensorFlow and says so in its answer.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Any, TypedDict

from stormlog import _native
from stormlog.tensorflow._advice import fragmentation_of, suggest_optimizations
from stormlog.tensorflow._runtime import (
    MIB,
    build_info,
    device_memory,
    gpus,
    grow_memory,
    quietly,
    tensorflow_or_none,
)

__all__ = [
    "BackendInfo",
    "analyze_fragmentation",
    "clear_tensorflow_session",
    "format_memory",
    "generate_summary_report",
    "get_backend_info",
    "get_gpu_info",
    "get_system_info",
    "get_tensorflow_memory_usage",
    "optimize_tensorflow_memory",
    "suggest_optimizations",
    "validate_tensorflow_environment",
]

_GIB = 1024**3
# Number of samples whose mean is the start, or the end, of a series.
_ENDS = 5


class BackendInfo(TypedDict):
    """What TensorFlow was built for and what it can use."""

    is_apple_silicon: bool
    hardware_gpu_detected: bool
    runtime_gpu_count: int
    runtime_backend: str
    is_cuda_build: bool
    is_rocm_build: bool
    is_tensorrt_build: bool
    tensorflow_metal_installed: bool


def get_backend_info() -> BackendInfo:
    """What TensorFlow was built for and what it can use here."""
    tf = tensorflow_or_none()
    count = 0 if tf is None else len(gpus(tf))
    build = build_info(tf)
    is_apple = platform.system() == "Darwin" and platform.machine() in {"arm64", "aarch64"}
    has_metal = _is_installed("tensorflow-metal")
    is_cuda, is_rocm = bool(build.get("is_cuda_build")), bool(build.get("is_rocm_build"))
    backend = "metal" if is_apple and has_metal else "cpu"
    if count:
        backend = "cuda" if is_cuda else "rocm" if is_rocm else "metal" if is_apple else "gpu"
    return {
        "is_apple_silicon": is_apple,
        "hardware_gpu_detected": is_apple or count > 0,
        "runtime_gpu_count": count,
        "runtime_backend": backend,
        "is_cuda_build": is_cuda,
        "is_rocm_build": is_rocm,
        "is_tensorrt_build": bool(build.get("is_tensorrt_build")),
        "tensorflow_metal_installed": has_metal,
    }


def format_memory(bytes_value: float | None) -> str:
    """A size as people read it, with two digits: `1.25 GB`, in powers of 1024; `N/A` where there is none."""
    if bytes_value is None:
        return "N/A"
    size = float(bytes_value)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} PB"


def get_gpu_info() -> dict[str, Any]:
    """The GPUs as TensorFlow sees them; `total_memory` is the sum of their peaks, as in 0.4.3."""
    tf = tensorflow_or_none()
    info: dict[str, Any] = {
        "available": False,
        "count": 0,
        "devices": [],
        "driver_version": "Unknown",
        "cuda_version": "Unknown",
        "total_memory": 0,
    }
    if tf is None:
        return {**info, "error": "TensorFlow not available"}
    count = len(gpus(tf))
    if not count:
        return {**info, "error": "No GPU devices found"}
    for number in range(count):
        current, peak = device_memory(tf, f"/GPU:{number}")
        sizes = {"current_memory_mb": current / MIB, "peak_memory_mb": peak / MIB}
        info["devices"].append({"id": number, "name": f"GPU {number}", **sizes})
        info["total_memory"] += peak / MIB
    version = build_info(tf).get("cuda_version", "Unknown")
    return {**info, "available": True, "count": count, "cuda_version": version}


def get_system_info() -> dict[str, Any]:
    """The machine, TensorFlow's version and build, its GPUs and backend."""
    tf = tensorflow_or_none()
    total, available = _native.tracking.host_memory()
    info: dict[str, Any] = {
        "platform": platform.platform(),
        "python_version": platform.python_version(),
        "tensorflow_version": "Not installed" if tf is None else tf.__version__,
        "cpu_count": os.cpu_count(),
        "total_memory_gb": (total or 0) / _GIB,
        "available_memory_gb": (available or 0) / _GIB,
    }
    if tf is not None:
        build = build_info(tf)
        info["tf_build_cuda"] = build.get("is_cuda_build", False)
        info["tf_cuda_version"] = build.get("cuda_version", "N/A")
        info["tf_cudnn_version"] = build.get("cudnn_version", "N/A")
    if total and available:
        info["memory_percent_used"] = round((total - available) / total * 100, 1)
    return {**info, "gpu": get_gpu_info(), "backend": get_backend_info()}


def analyze_fragmentation(snapshots: Sequence[Any]) -> dict[str, float]:
    """How much of the peak was not in use, over snapshots, and whether that grew."""
    shares = fragmentation_of(snapshots) if len(snapshots) > 1 else []
    if not shares:
        return {"fragmentation_score": 0.0, "fragmentation_trend": 0.0}
    first, last = shares[:_ENDS], shares[-_ENDS:]
    trend = sum(last) / len(last) - sum(first) / len(first) if len(shares) > 1 else 0.0
    return {
        "fragmentation_score": sum(shares) / len(shares),
        "fragmentation_trend": trend,
        "max_fragmentation": max(shares),
        "min_fragmentation": min(shares),
    }


def generate_summary_report(profile_result: Any) -> str:
    """A profile's result as a page of text."""
    if not hasattr(profile_result, "peak_memory_mb"):
        return "No profiling data available"
    result = profile_result
    lines = [
        "TensorFlow GPU Memory Analysis Report",
        "=" * 40,
        "",
        f"Peak Memory Usage: {_of_mb(result.peak_memory_mb)}",
        f"Average Memory Usage: {_of_mb(result.average_memory_mb)}",
        f"Minimum Memory Usage: {_of_mb(result.min_memory_mb)}",
    ]
    if hasattr(result, "duration"):
        lines.append(f"Profiling Duration: {result.duration:.2f} seconds")
    if hasattr(result, "memory_growth_rate"):
        lines.append(f"Memory Growth Rate: {result.memory_growth_rate:.2f} MB/s")
    lines += [
        "",
        f"Total Memory Allocations: {result.total_allocations}",
        f"Total Memory Deallocations: {result.total_deallocations}",
        "",
    ]
    lines += _function_lines(getattr(result, "function_profiles", {}))
    snapshots = getattr(result, "snapshots", ())
    if len(snapshots) > 1:
        found = analyze_fragmentation(snapshots)
        lines += ["Memory Fragmentation Analysis:", "-" * 30]
        lines.append(f"  Fragmentation Score: {found['fragmentation_score']:.3f}")
        lines += [f"  Fragmentation Trend: {found['fragmentation_trend']:.3f}", ""]
    active = (getattr(result, "tensor_lifecycle", None) or {}).get("active", {})
    if active:
        lines += ["Tensor Information:", "-" * 18, f"  Active Tensors: {active.get('count', 0)}"]
        lines += [f"  Total Tensor Memory: {_of_mb(active.get('total_size_mb', 0))}", ""]
    advice = suggest_optimizations(result)
    if advice:
        numbered = [f"  {number}. {sentence}" for number, sentence in enumerate(advice, 1)]
        lines += ["Optimization Suggestions:", "-" * 25, *numbered, ""]
    return "\n".join([*lines, *_system_lines()])


def optimize_tensorflow_memory() -> list[str]:
    """Sets memory growth, mixed precision and XLA; a sentence for each that could be set."""
    tf = tensorflow_or_none()
    if tf is None:
        return []
    done = [f"Enabled memory growth for {gpu}" for gpu in grow_memory(tf)]
    settings = [
        ("Enabled mixed precision training", _mixed_precision),
        ("Enabled XLA compilation", _xla),
    ]
    return done + [sentence for sentence, turn_on in settings if quietly(partial(turn_on, tf), False, "it")]


def get_tensorflow_memory_usage() -> dict[str, float]:
    """Memory of the first GPU and of this process, in megabytes."""
    tf = tensorflow_or_none()
    current, peak = (0, 0) if tf is None or not gpus(tf) else device_memory(tf, "/GPU:0")
    resident = 0 if tf is None else _native.tracking.ProcessProbe().memory()[0]
    return {"gpu_current_mb": current / MIB, "gpu_peak_mb": peak / MIB, "cpu_mb": resident / MIB}


def clear_tensorflow_session() -> None:
    """Has Keras forget its global state, with the memory it holds."""
    tf = tensorflow_or_none()
    if tf is not None:
        quietly(tf.keras.backend.clear_session, None, "that its session was cleared")


def validate_tensorflow_environment() -> dict[str, Any]:
    """Whether TensorFlow, a version we know, and a GPU are there; what is not is in `issues`."""
    tf = tensorflow_or_none()
    issues: list[str] = []
    found: dict[str, Any] = {
        "tensorflow_available": tf is not None,
        "gpu_available": False,
        "memory_growth_enabled": False,
        "version_compatible": False,
        "issues": issues,
    }
    if tf is None:
        issues.append("TensorFlow not installed")
        return found
    version: tuple[int, ...] = quietly(partial(_version, tf), (), "its version")
    found["version_compatible"] = version >= (2, 4)
    if not version:
        issues.append("Could not determine TensorFlow version")
    elif not found["version_compatible"]:
        issues.append(f"TensorFlow {tf.__version__} may not be fully compatible (recommend 2.4+)")
    devices = gpus(tf)
    found["gpu_available"] = bool(devices)
    found["memory_growth_enabled"] = bool(devices) and len(grow_memory(tf)) == len(devices)
    if not devices:
        issues.append("No GPU devices found")
    elif not found["memory_growth_enabled"]:
        issues.append("Could not enable GPU memory growth")
    return found


def _version(tf: Any) -> tuple[int, ...]:
    return tuple(map(int, tf.__version__.split(".")[:2]))


def _mixed_precision(tf: Any) -> bool:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    return True


def _xla(tf: Any) -> bool:
    tf.config.optimizer.set_jit(True)
    return True


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _of_mb(megabytes: float) -> str:
    return format_memory(megabytes * MIB)


def _function_lines(profiles: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["Function Profiling:", "-" * 20] if profiles else []
    for name, profile in profiles.items():
        lines += [f"  {name}:", f"    Calls: {profile.get('calls', 0)}"]
        lines.append(f"    Peak Memory: {_of_mb(profile.get('peak_memory', 0))}")
        lines += [f"    Total Duration: {profile.get('total_duration', 0):.3f}s", ""]
    return lines


def _system_lines() -> list[str]:
    info = get_system_info()
    lines = ["System Information:", "-" * 19, f"  TensorFlow Version: {info['tensorflow_version']}"]
    lines += [f"  Python Version: {info['python_version']}", f"  Platform: {info['platform']}"]
    if not info["gpu"]["available"]:
        return [*lines, "  GPU: Not available"]
    total = _of_mb(info["gpu"]["total_memory"])
    return [*lines, f"  GPU Count: {info['gpu']['count']}", f"  Total GPU Memory: {total}"]
