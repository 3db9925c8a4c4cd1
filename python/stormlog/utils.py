"""Sizes, the system, the GPU as PyTorch sees it, and what to try against fragmentation.

PyTorch is imported only by the functions that are about it. What the system does not tell is left out or
None.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from stormlog import _native

__all__ = [
    "MemoryContext",
    "check_memory_fragmentation",
    "convert_bytes",
    "format_bytes",
    "format_memory",
    "get_gpu_info",
    "get_system_info",
    "memory_summary",
    "suggest_memory_optimization",
]

_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_NAMES = ("B", "KB", "MB", "GB", "TB", "PB")
_SMI_FIELDS = (
    ("memory_total_mb", int),
    ("memory_used_mb", int),
    ("memory_free_mb", int),
    ("gpu_utilization_percent", int),
    ("temperature_c", int),
    ("power_draw_w", float),
)
_ALWAYS = (
    "Use torch.no_grad() context for inference to reduce memory usage.",
    "Consider using mixed precision training (torch.cuda.amp) to reduce memory footprint.",
    "Profile memory usage at different points in your code to identify bottlenecks.",
    "Use del statement to explicitly delete large tensors when no longer needed.",
)


def format_bytes(bytes_value: float, precision: int = 2) -> str:
    """A size in readable form: `1.25 GB`, in powers of 1024."""
    if bytes_value == 0:
        return "0 B"
    sign, size, unit = "-" if bytes_value < 0 else "", float(abs(bytes_value)), 0
    while size >= 1024.0 and unit < len(_NAMES) - 1:
        size /= 1024.0
        unit += 1
    return f"{sign}{size:.{precision}f} {_NAMES[unit]}"


def format_memory(bytes_value: float) -> str:
    """A size as readable text; the same as `format_bytes`."""
    return format_bytes(bytes_value)


def convert_bytes(value: float, from_unit: str, to_unit: str) -> float:
    """A size in another unit: B, KB, MB, GB, TB."""
    if from_unit not in _UNITS or to_unit not in _UNITS:
        raise ValueError(f"Invalid unit. Must be one of: {list(_UNITS)}")
    return value * _UNITS[from_unit] / _UNITS[to_unit]


def get_system_info() -> dict[str, Any]:
    """The platform, what PyTorch finds on it, processors and memory."""
    torch = _torch_or_none()
    return _system_info(torch, torch is not None)


def system_info_without_imports() -> dict[str, Any]:
    """The same while memory is short: PyTorch is asked only where the program uses it."""
    return _system_info(sys.modules.get("torch"), _is_torch_installed())


def _system_info(torch: Any, is_available: bool) -> dict[str, Any]:
    cuda = bool(torch is not None and _quietly(torch.cuda.is_available))
    hip = getattr(torch.version, "hip", None) if cuda else None
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    mps_available = bool(mps is not None and _quietly(mps.is_available))
    backend = "rocm" if hip else "cuda" if cuda else "mps" if mps_available else "cpu"
    system = os.uname()
    info: dict[str, Any] = {
        "platform": system.sysname,
        "architecture": system.machine or platform.machine(),
        "python_version": sys.version,
        "torch_available": is_available,
        "cuda_available": cuda,
        "rocm_available": bool(hip),
        "rocm_version": hip or None,
        "mps_available": mps_available,
        "mps_built": bool(mps is not None and _quietly(mps.is_built)),
        "detected_backend": backend,
    }
    if cuda:
        cudnn: Any = getattr(torch.backends, "cudnn", None)
        info["cuda_device_count"] = torch.cuda.device_count()
        info["cuda_version"] = torch.version.cuda
        info["cudnn_version"] = cudnn.version() if hasattr(cudnn, "version") else None
        info["current_device"] = torch.cuda.current_device()
    total, available = _native.tracking.host_memory()
    info["cpu_count"] = os.cpu_count()
    info["cpu_count_logical"] = os.cpu_count()
    info["memory_total"] = total
    info["memory_available"] = available
    info["memory_percent"] = round((total - available) / total * 100, 1) if total and available else None
    return info


def get_gpu_info(device: Any = None) -> dict[str, Any]:
    """A CUDA device: its name, size, versions and counters; ImportError without PyTorch."""
    torch = _torch("get_gpu_info")
    if not torch.cuda.is_available():
        return {"error": "CUDA is not available"}
    index = _index(torch, device)
    properties = torch.cuda.get_device_properties(index)
    info: dict[str, Any] = {
        "device_id": index,
        "device_name": torch.cuda.get_device_name(index),
        "device_capability": torch.cuda.get_device_capability(index),
        "total_memory": properties.total_memory,
        "multiprocessor_count": properties.multi_processor_count,
        "cuda_version": torch.version.cuda,
        "pytorch_version": torch.__version__,
    }
    try:
        stats = torch.cuda.memory_stats(index)
        info["allocated_memory"] = torch.cuda.memory_allocated(index)
        info["reserved_memory"] = torch.cuda.memory_reserved(index)
        info["max_memory_allocated"] = torch.cuda.max_memory_allocated(index)
        info["max_memory_reserved"] = torch.cuda.max_memory_reserved(index)
        info["memory_stats"] = {
            "active_bytes": stats.get("active_bytes.all.current", 0),
            "inactive_bytes": stats.get("inactive_split_bytes.all.current", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "num_alloc_retries": stats.get("num_alloc_retries", 0),
            "num_ooms": stats.get("num_ooms", 0),
        }
    except Exception as error:
        info["memory_error"] = str(error)
    driver = _nvidia_smi(getattr(properties, "uuid", None), index)
    if driver:
        info["nvidia_smi_info"] = driver
    return info


def check_memory_fragmentation(device: Any = None) -> dict[str, Any]:
    """How much of what PyTorch's allocator holds is in inactive split blocks."""
    torch = _torch("check_memory_fragmentation")
    if not torch.cuda.is_available():
        return {"error": "CUDA is not available"}
    index = _index(torch, device)
    stats = torch.cuda.memory_stats(index)
    allocated = stats.get("allocated_bytes.all.current", 0)
    reserved = stats.get("reserved_bytes.all.current", 0)
    inactive = stats.get("inactive_split_bytes.all.current", 0)
    total = torch.cuda.get_device_properties(index).total_memory
    info: dict[str, Any] = {
        "device_id": index,
        "total_memory": total,
        "allocated_memory": allocated,
        "reserved_memory": reserved,
        "active_memory": stats.get("active_bytes.all.current", 0),
        "inactive_memory": inactive,
        "free_memory": total - reserved,
        "fragmentation_ratio": inactive / reserved if reserved > 0 else 0,
        "utilization_ratio": allocated / total,
        "reservation_ratio": reserved / total,
        "waste_ratio": max(reserved - allocated, 0) / total,
    }
    info.update(
        {f"{key}_formatted": format_bytes(info[key]) for key in list(info) if key.endswith("_memory")}
    )
    return info


def suggest_memory_optimization(fragmentation_info: dict[str, Any]) -> list[str]:
    """Advice by the result of `check_memory_fragmentation`, one sentence each."""
    fragmentation = fragmentation_info.get("fragmentation_ratio", 0)
    utilization = fragmentation_info.get("utilization_ratio", 0)
    found = []
    if fragmentation > 0.3:
        found.append(
            "High memory fragmentation: over 30% of reserved memory is in inactive split blocks. Try "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, allocate long-lived tensors first, and keep "
            "tensor shapes steady."
        )
    if utilization > 0.9:
        found.append(
            "Very high GPU memory utilization. Consider reducing batch size, using gradient checkpointing, "
            "or model parallelism."
        )
    if fragmentation_info.get("waste_ratio", 0) > 0.2:
        found.append(
            "Over 20% of the GPU is reserved but not allocated: the allocator keeps freed blocks for reuse, "
            "which is normal. If another process needs that memory, torch.cuda.empty_cache() gives it back."
        )
    if utilization < 0.3:
        found.append("Low GPU memory utilization. Consider increasing batch size or using a larger model.")
    return [*found, *_ALWAYS]


def memory_summary(device: Any = None) -> str:
    """The memory of a CUDA device as a readable page."""
    gpu, state = get_gpu_info(device), check_memory_fragmentation(device)
    rule = "=" * 60
    ratios = (
        ("Utilization", "utilization_ratio"),
        ("Reservation", "reservation_ratio"),
        ("Fragmentation", "fragmentation_ratio"),
        ("Cached", "waste_ratio"),
    )
    advice = enumerate(suggest_memory_optimization(state)[:5], 1)
    lines = [
        rule,
        "GPU MEMORY SUMMARY",
        rule,
        f"Device: {gpu.get('device_name', 'Unknown')} (cuda:{gpu.get('device_id', 0)})",
        f"Total Memory: {format_bytes(gpu.get('total_memory', 0))}",
        "",
        "Current Memory Usage:",
        f"  Allocated: {format_bytes(state.get('allocated_memory', 0))}",
        f"  Reserved:  {format_bytes(state.get('reserved_memory', 0))}",
        f"  Free:      {format_bytes(state.get('free_memory', 0))}",
        "",
        "Memory Ratios:",
        *(f"  {name}: {state.get(key, 0):.1%}" for name, key in ratios),
        "",
        "Optimization Suggestions:",
        *(f"  {number}. {text}" for number, text in advice),
        "",
        rule,
    ]
    return "\n".join(lines)


class MemoryContext:
    """Memory of a CUDA device before, after and at the peak of a block; without one, of this process."""

    def __init__(self, name: str = "memory_context", device: Any = None) -> None:
        self.name = name
        self.device = device
        self.start_memory: int | None = None
        self.end_memory: int | None = None
        self.peak_memory: int | None = None

    def __enter__(self) -> Self:
        from stormlog._torch.meter import HostMeter, Meter, meter_for

        torch = _torch_or_none()
        is_cuda = torch is not None and torch.cuda.is_available()
        self._meter: Meter = meter_for(self.device) if is_cuda else HostMeter()
        self._stretch = self._meter.begin()
        self.start_memory = self._meter.read().allocated
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from stormlog._torch.meter import end_stretch

        self._meter.synchronize()
        highest, held = end_stretch(self._stretch, self._meter)
        self.peak_memory, self.end_memory = highest.allocated, held.allocated

    def get_summary(self) -> dict[str, Any]:
        """Totals as numbers and as readable text."""
        start, end, peak = self.start_memory, self.end_memory, self.peak_memory
        if start is None or end is None or peak is None:
            return {"error": "Context not properly initialized"}
        return {
            "name": self.name,
            "start_memory": start,
            "end_memory": end,
            "peak_memory": peak,
            "memory_diff": end - start,
            "peak_memory_usage": peak - start,
            "start_memory_formatted": format_bytes(start),
            "end_memory_formatted": format_bytes(end),
            "peak_memory_formatted": format_bytes(peak),
            "memory_diff_formatted": format_bytes(abs(end - start)),
            "peak_memory_usage_formatted": format_bytes(peak - start),
        }


def _torch(feature: str) -> Any:
    torch = _torch_or_none()
    if torch is None:
        raise ImportError(
            f"{feature} requires PyTorch. PyTorch is required for this feature. Install with "
            "`pip install 'stormlog[torch]'` or follow https://pytorch.org/get-started/locally/."
        )
    return torch


def _is_torch_installed() -> bool:
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def _torch_or_none() -> Any:
    if not _is_torch_installed():
        return None
    try:
        return import_module("torch")
    except ImportError:
        return None


def _quietly(ask: Any) -> bool:
    try:
        return bool(ask())
    except Exception:
        return False


def _index(torch: Any, device: Any) -> int:
    if device is None:
        return int(torch.cuda.current_device())
    if isinstance(device, str):
        return int(device.rpartition(":")[2]) if ":" in device else 0
    return int(device if isinstance(device, int) else getattr(device, "index", None) or 0)


def _nvidia_smi(uuid: Any, index: int) -> dict[str, Any]:
    """What the driver's tool says of a device, found by its id where PyTorch reports it: numbers differ."""
    query = "memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw"
    which = str(index) if uuid is None else f"GPU-{uuid}"
    command = ["nvidia-smi", f"--id={which}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.strip().split("\n")[0].split(",")]
    info: dict[str, Any] = {}
    for (name, kind), value in zip(_SMI_FIELDS, values, strict=False):
        try:
            info[name] = kind(value)
        except ValueError:
            info[name] = None
    return info
