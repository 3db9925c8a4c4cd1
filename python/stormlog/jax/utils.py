"""JAX on this machine: its devices, their memory, its backends. Nothing here raises because JAX is absent."""

from __future__ import annotations

import logging
import os
import platform
from typing import Any

from stormlog import _native
from stormlog._jax import runtime
from stormlog._jax.collector import why_unknown
from stormlog.utils import format_bytes

__all__ = [
    "detect_jax_backend",
    "format_memory",
    "get_backend_info",
    "get_device_info",
    "get_device_memory_capability",
    "get_system_info",
    "jax_is_available",
    "normalize_jax_backend",
    "resolve_jax_device",
    "validate_jax_environment",
]

_LOGGER = logging.getLogger("stormlog.jax")
_GIB = 1 << 30
_SELECTORS = "JAX device must be an index or one of cpu, gpu, tpu, metal"
_BACKENDS = {"gpu": "gpu", "cuda": "gpu", "rocm": "gpu", "metal": "metal", "mps": "metal"}
_BACKENDS |= {"cpu": "cpu", "tpu": "tpu"}


def jax_is_available() -> bool:
    """Whether JAX can be imported."""
    return runtime.jax_or_none() is not None


def normalize_jax_backend(backend: str) -> str:
    """`gpu`, `metal`, `cpu`, `tpu`, or `unknown`, for any name that JAX has for it."""
    return _BACKENDS.get(backend.strip().lower(), "unknown")


def get_device_memory_capability(device: Any) -> dict[str, Any]:
    """The counters of a device's allocator, or why it has none."""
    try:
        stats = dict(device.memory_stats() or {})
        error = None if "bytes_in_use" in stats else why_unknown(device)
    except Exception as problem:
        stats, error = {}, str(problem)
    return {"memory_stats_available": error is None, "memory_stats": stats, "memory_stats_error": error}


def resolve_jax_device(selector: int | str = 0) -> tuple[Any, int]:
    """A device by its index among the local ones, or the first one of a backend; ValueError if none is."""
    jax = runtime.jax()
    if isinstance(selector, int) or str(selector).lstrip("-").isdigit():
        index, devices = int(selector), list(jax.local_devices())
        if not 0 <= index < len(devices):
            raise ValueError(f"JAX device index {index} is out of range (found {len(devices)})")
        return devices[index], index
    backend = normalize_jax_backend(str(selector))
    if backend == "unknown":
        raise ValueError(_SELECTORS)
    try:
        devices = list(jax.devices(backend=backend))
    except Exception as error:
        raise ValueError(f"JAX backend {backend!r} is unavailable: {error}") from error
    if not devices:
        raise ValueError(f"JAX backend {backend!r} has no devices")
    return devices[0], int(getattr(devices[0], "id", 0))


def detect_jax_backend() -> str:
    """The backend in use; `cpu` where JAX is absent or cannot say."""
    jax = runtime.jax_or_none()
    if jax is None:
        return "cpu"
    return normalize_jax_backend(runtime.quietly(lambda: str(jax.default_backend()), "cpu", "its backend"))


def get_device_info(device_index: int | str = 0) -> dict[str, Any]:
    """Kind, platform and memory of a device; `error` where there is none."""
    try:
        device, resolved = resolve_jax_device(device_index)
    except Exception as error:
        is_there = jax_is_available()
        reason = str(error) if is_there else "JAX not available"
        return {
            "kind": "unknown" if is_there else "cpu",
            "platform": detect_jax_backend(),
            "device_id": device_index,
            "process_index": 0,
            "memory_stats": {},
            "memory_stats_available": False,
            "memory_stats_error": reason,
            "client": None,
            "error": reason,
        }
    return {
        "kind": str(getattr(device, "device_kind", "unknown")),
        "platform": str(device.platform),
        "device_id": getattr(device, "id", resolved),
        "process_index": getattr(device, "process_index", 0),
        **get_device_memory_capability(device),
        "client": str(getattr(device, "client", None)),
    }


def get_backend_info() -> dict[str, Any]:
    """The backend and the local devices."""
    jax = runtime.jax_or_none()
    raw = "cpu"
    devices: list[Any] = []
    if jax is not None:
        raw = runtime.quietly(lambda: str(jax.default_backend()), "cpu", "its backend")
        devices = runtime.quietly(lambda: list(jax.local_devices()), [], "its devices")
    backend = normalize_jax_backend(raw)
    is_apple = platform.system() == "Darwin" and platform.machine().lower() in {"arm64", "aarch64"}
    return {
        "runtime_backend": backend,
        "raw_runtime_backend": raw,
        "jax_available": jax is not None,
        "is_gpu_build": backend in {"gpu", "metal"},
        "is_apple_silicon": is_apple,
        "jax_metal_active": backend == "metal",
        "device_count": len(devices),
        "devices": [
            {
                "id": getattr(device, "id", number),
                "kind": str(getattr(device, "device_kind", "unknown")),
                "platform": str(device.platform),
            }
            for number, device in enumerate(devices)
        ],
    }


def get_system_info() -> dict[str, Any]:
    """The machine, JAX's release, its backend and its first device."""
    jax = runtime.jax_or_none()
    total, available = _native.tracking.host_memory()
    info: dict[str, Any] = {
        "platform": platform.platform(),
        "python_version": platform.python_version(),
        "jax_version": "Not installed" if jax is None else str(jax.__version__),
        "jax_available": jax is not None,
        "cpu_count": os.cpu_count(),
        "total_memory_gb": (total or 0) / _GIB,
        "available_memory_gb": (available or 0) / _GIB,
    }
    if total and available is not None:
        info["memory_percent_used"] = round((total - available) / total * 100, 1)
    return {**info, "backend": get_backend_info(), "device_info": get_device_info()}


def format_memory(bytes_value: float | None) -> str:
    """A size for people; `N/A` where it is unknown."""
    return "N/A" if bytes_value is None else format_bytes(int(bytes_value))


def validate_jax_environment() -> dict[str, Any]:
    """What JAX can do here, with the obstacles as sentences."""
    issues: list[str] = []
    found: dict[str, Any] = {
        "jax_available": jax_is_available(),
        "gpu_available": False,
        "tpu_available": False,
        "metal_available": False,
        "version_compatible": False,
        "issues": issues,
    }
    if not found["jax_available"]:
        issues.append("JAX not installed")
        return found
    version = str(runtime.jax().__version__)
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    found["version_compatible"] = numbers >= [0, 4]
    if not found["version_compatible"]:
        issues.append(f"JAX {version} may not be fully compatible (recommend 0.4.20+)")
    backend = detect_jax_backend()
    found["gpu_available"] = backend in {"gpu", "metal"}
    found["metal_available"] = backend == "metal"
    found["tpu_available"] = backend == "tpu"
    if backend == "cpu":
        issues.append("Only CPU devices found: JAX does not count their memory")
    elif backend == "unknown":
        issues.append("Unrecognized JAX backend")
    return found
