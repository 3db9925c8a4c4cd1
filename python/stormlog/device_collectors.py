"""Collectors of device memory: the contract, and those for CUDA, ROCm, MPS and the host.

PyTorch is looked at only when a collector needs it. `used_bytes` is what the driver says, not the
allocator's own number, so that memory held by others (NCCL, cuBLAS, other processes) shows. What cannot be
read is None, never 0.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from stormlog import _native

__all__ = [
    "CPUDeviceCollector",
    "CudaDeviceCollector",
    "DeviceMemoryCapabilities",
    "DeviceMemoryCollector",
    "DeviceMemorySample",
    "DeviceMemorySampleResult",
    "MPSDeviceCollector",
    "ROCmDeviceCollector",
    "build_device_memory_collector",
    "detect_torch_runtime_backend",
    "validate_device_memory_sample",
]

_TEXTS = ("backend", "telemetry_collector", "sampling_source")
_NEED_ALLOCATOR = (
    "supports_native_allocator_history",
    "supports_fragmentation_analysis",
    "supports_allocator_attribution",
    "supports_bounded_profiling",
)
# What a mapping that does not say is taken to mean: the collectors of before there were capabilities.
_ASSUMED = frozenset(
    {
        "supports_allocator_allocated",
        "supports_allocator_reserved",
        "supports_allocator_active",
        "supports_allocator_inactive",
        "supports_device_used",
        "supports_fragmentation_analysis",
        "supports_allocator_attribution",
    }
)
# The field of a sample, the capability it needs, its name in an event.
_SAMPLE_FIELDS = (
    ("allocated_bytes", "supports_allocator_allocated", "allocator_allocated_bytes"),
    ("reserved_bytes", "supports_allocator_reserved", "allocator_reserved_bytes"),
    ("active_bytes", "supports_allocator_active", "allocator_active_bytes"),
    ("inactive_bytes", "supports_allocator_inactive", "allocator_inactive_bytes"),
    ("used_bytes", "supports_device_used", "device_used_bytes"),
    ("free_bytes", "supports_device_free", "device_free_bytes"),
    ("total_bytes", "supports_device_total", "device_total_bytes"),
)


@dataclasses.dataclass(frozen=True)
class DeviceMemoryCapabilities:
    """Which counters a collector can report."""

    backend: str
    telemetry_collector: str
    sampling_source: str
    supports_allocator_allocated: bool = False
    supports_allocator_reserved: bool = False
    supports_allocator_active: bool = False
    supports_allocator_inactive: bool = False
    supports_device_used: bool = False
    supports_device_free: bool = False
    supports_device_total: bool = False
    supports_native_allocator_history: bool = False
    supports_fragmentation_analysis: bool = False
    supports_allocator_attribution: bool = False
    supports_bounded_profiling: bool = False

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not getattr(self, name).strip():
                raise ValueError(f"{name} must be a non-empty string")
        has_allocator = self.supports_allocator_allocated and self.supports_allocator_reserved
        unfounded = [name for name in _NEED_ALLOCATOR if getattr(self, name)]
        if unfounded and not has_allocator:
            raise ValueError(
                "allocator features require allocated and reserved counters: " + ", ".join(unfounded)
            )
        if not (self.supports_allocator_allocated or self.supports_device_used):
            raise ValueError("collector must support allocator allocated or device used memory")

    @classmethod
    def from_mapping(cls, value: Mapping[str, Any]) -> DeviceMemoryCapabilities:
        """The capabilities of a mapping; what it does not say is what older collectors could."""
        flags = {
            field.name: bool(value.get(field.name, field.name in _ASSUMED))
            for field in dataclasses.fields(cls)
            if field.name not in _TEXTS
        }
        return cls(
            str(value.get("backend", "unknown")),
            str(value.get("telemetry_collector", "legacy.unknown")),
            str(value.get("sampling_source", "unknown")),
            **flags,
        )

    def to_metadata(self) -> dict[str, Any]:
        """The object in an event's metadata."""
        return dataclasses.asdict(self)

    def keys(self) -> Iterable[str]:
        """Their names: with `[]`, capabilities can be read as the mapping they once were."""
        return self.to_metadata().keys()

    def __getitem__(self, name: str) -> Any:
        return self.to_metadata()[name]


@dataclasses.dataclass(frozen=True)
class DeviceMemorySample:
    """The counters of one sample, in bytes; None is unknown."""

    allocated_bytes: int | None
    reserved_bytes: int | None
    used_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    active_bytes: int | None
    inactive_bytes: int | None
    device_id: int


@dataclasses.dataclass(frozen=True)
class DeviceMemorySampleResult:
    """A reading with what is missing from it and why; without a sample, why there is none."""

    sample: DeviceMemorySample | None
    partial_fields: tuple[str, ...] = ()
    errors: dict[str, str] = dataclasses.field(default_factory=dict)
    core_error: str | None = None
    # Counters beside the memory, for the events' metadata: `num_alloc_retries`, `num_ooms`.
    facts: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def is_partial(self) -> bool:
        """Whether something is missing."""
        return self.sample is not None and bool(self.partial_fields)

    @property
    def is_core_failure(self) -> bool:
        """Whether nothing came."""
        return self.sample is None


class DeviceMemoryCollector(ABC):
    """The interface of a source of memory samples; subclass it for a device of your own."""

    @abstractmethod
    def name(self) -> str:
        """The backend: cuda, rocm, mps, cpu, or your own."""

    @abstractmethod
    def is_available(self) -> bool:
        """Whether a sample may succeed here."""

    @abstractmethod
    def sample(self) -> DeviceMemorySample:
        """Read the device's memory once."""

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """Read the memory once, or return why it could not be read."""
        try:
            return DeviceMemorySampleResult(sample=self.sample())
        except Exception as error:
            return _nothing(error)

    @abstractmethod
    def capabilities(self) -> DeviceMemoryCapabilities:
        """Which counters this source can report."""

    def device_uuid(self) -> str | None:
        """The driver's id of the device, which is the same in every process; None where there is none."""
        return None


def validate_device_memory_sample(
    sample: DeviceMemorySample,
    capabilities: DeviceMemoryCapabilities,
    *,
    partial_fields: tuple[str, ...] = (),
) -> None:
    """Whether a sample says what its collector can know, and nothing else; ValueError if not."""
    partial = set(partial_fields)
    unknown = sorted(partial - {event_field for _, _, event_field in _SAMPLE_FIELDS})
    if unknown:
        raise ValueError("unknown partial sample fields: " + ", ".join(unknown))
    known = 0
    for field, capability, event_field in _SAMPLE_FIELDS:
        value, can = getattr(sample, field), getattr(capabilities, capability)
        if value is not None:
            known += 1
            if value < 0:
                raise ValueError(f"{event_field} must be >= 0 when provided")
            if not can:
                raise ValueError(f"{event_field} was provided by a collector that declares it unsupported")
            if event_field in partial:
                raise ValueError(f"{event_field} is populated but marked partial")
        elif can and event_field not in partial:
            raise ValueError(f"{event_field} is missing without a partial-field diagnostic")
        elif not can and event_field in partial:
            raise ValueError(f"{event_field} is unsupported and must not be marked partial")
    if not known:
        raise ValueError("device memory sample contains no supported measurements")
    if sample.total_bytes is not None:
        for value, event_field in (
            (sample.used_bytes, "device_used_bytes"),
            (sample.free_bytes, "device_free_bytes"),
        ):
            if value is not None and value > sample.total_bytes:
                raise ValueError(f"{event_field} cannot exceed device_total_bytes")


def cuda_uuid(torch: Any, index: int) -> str | None:
    """A CUDA device's id as its driver spells it; None where this PyTorch does not have it."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if uuid is None:
        return None
    text = str(uuid)
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


class CudaDeviceCollector(DeviceMemoryCollector):
    """An NVIDIA device: PyTorch's allocator, and the driver's own numbers beside it."""

    telemetry_collector = "stormlog.cuda_tracker"
    _source = "torch.cuda.memory_allocated/reserved"

    def __init__(self, device: Any = None) -> None:
        self.device = _resolve_device(device)
        if self.device.type != "cuda":
            raise ValueError("CUDA collector requires a CUDA device")

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "cuda"

    def device_uuid(self) -> str | None:
        """The driver's id of the device; None where PyTorch does not have it."""
        try:
            return cuda_uuid(_torch(), self.device.index or 0)
        except Exception:
            return None

    def is_available(self) -> bool:
        """Whether there is such a device."""
        return detect_torch_runtime_backend() == "cuda"

    def sample(self) -> DeviceMemorySample:
        """One reading; RuntimeError when nothing came."""
        result = self.sample_with_diagnostics()
        if result.sample is None:
            raise RuntimeError(result.core_error or "CUDA sample collection failed")
        return result.sample

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """Read the memory once, with the counters that could not be read and why."""
        try:
            torch = _torch()
            cuda = torch.cuda
            index = self.device.index if self.device.index is not None else cuda.current_device()
            allocated, reserved, active, inactive, facts = _cuda_counters(torch, index)
        except Exception as error:
            return _nothing(error)
        errors: dict[str, str] = {}
        used = free = total = None
        try:
            used, free, total = self._driver(torch)
        except Exception as error:
            for field in ("device_used_bytes", "device_total_bytes", "device_free_bytes"):
                errors[field] = str(error)
        if active is None or inactive is None:
            active = inactive = None
            for field in ("allocator_active_bytes", "allocator_inactive_bytes"):
                errors[field] = "not reported by the allocator"
        sample = DeviceMemorySample(allocated, reserved, used, free, total, active, inactive, index)
        return DeviceMemorySampleResult(sample, tuple(errors), errors, facts=facts)

    def _driver(self, torch: Any) -> tuple[int, int, int]:
        """Used, free and total of the whole device."""
        left, size = torch.cuda.mem_get_info(self.device)
        total, free = int(size), int(left)
        return max(total - free, 0), free, total

    def capabilities(self) -> DeviceMemoryCapabilities:
        """Which counters this source can report: all of them."""
        flags = [field.name for field in dataclasses.fields(DeviceMemoryCapabilities)]
        return DeviceMemoryCapabilities(
            self.name(),
            self.telemetry_collector,
            self._source,
            **{flag: True for flag in flags if flag not in _TEXTS},
        )


class ROCmDeviceCollector(CudaDeviceCollector):
    """An AMD device, which PyTorch shows under the names of CUDA."""

    telemetry_collector = "stormlog.rocm_tracker"
    _source = "torch.cuda.memory_* (HIP runtime)"

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "rocm"

    def is_available(self) -> bool:
        """Whether there is such a device."""
        return detect_torch_runtime_backend() == "rocm"


class MPSDeviceCollector(DeviceMemoryCollector):
    """An Apple GPU. Its driver reports what this process holds, and a recommended limit as the size."""

    telemetry_collector = "stormlog.mps_tracker"

    def __init__(self, device: Any = None) -> None:
        self.device = _resolve_device(device)
        if self.device.type != "mps":
            raise ValueError("MPS collector requires an MPS device")

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "mps"

    def is_available(self) -> bool:
        """Whether there is such a device."""
        return detect_torch_runtime_backend() == "mps"

    def sample(self) -> DeviceMemorySample:
        """One reading; RuntimeError when nothing came."""
        result = self.sample_with_diagnostics()
        if result.sample is None:
            raise RuntimeError(result.core_error or "MPS sample collection failed")
        return result.sample

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """Read the memory once, with the counters that could not be read and why."""
        try:
            mps = _torch().mps
            allocated = int(mps.current_allocated_memory())
            reserved = int(mps.driver_allocated_memory())
        except Exception as error:
            return _nothing(error)
        used, total = max(allocated, reserved), None
        errors: dict[str, str] = {}
        if hasattr(mps, "recommended_max_memory"):
            try:
                total = int(mps.recommended_max_memory())
                if total <= 0:
                    raise RuntimeError("recommended_max_memory is not known")
                total = max(total, used)
            except Exception as error:
                total = None
                errors = dict.fromkeys(("device_total_bytes", "device_free_bytes"), str(error))
        free = None if total is None else total - used
        sample = DeviceMemorySample(allocated, reserved, used, free, total, None, None, 0)
        return DeviceMemorySampleResult(sample, tuple(errors), errors)

    def capabilities(self) -> DeviceMemoryCapabilities:
        """Allocated, reserved and used; the size where PyTorch reports it."""
        knows_total = hasattr(_torch().mps, "recommended_max_memory")
        return DeviceMemoryCapabilities(
            self.name(),
            self.telemetry_collector,
            "torch.mps.current_allocated_memory/driver_allocated_memory",
            supports_allocator_allocated=True,
            supports_allocator_reserved=True,
            supports_device_used=True,
            supports_device_free=knows_total,
            supports_device_total=knows_total,
        )


class CPUDeviceCollector(DeviceMemoryCollector):
    """The host side of this process: its RSS, as device -1. Works everywhere."""

    telemetry_collector = "stormlog.cpu_tracker"

    def __init__(self) -> None:
        self._probe = _native.tracking.ProcessProbe()

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "cpu"

    def is_available(self) -> bool:
        """True: every process has memory."""
        return True

    def sample(self) -> DeviceMemorySample:
        """The RSS now, and the machine's memory."""
        rss, _ = self._probe.memory()
        total, available = _native.tracking.host_memory()
        return DeviceMemorySample(rss, rss, rss, available, total, None, None, -1)

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """Read the memory once, with the counters that could not be read and why."""
        try:
            sample = self.sample()
        except Exception as error:
            return _nothing(error)
        read = {"device_free_bytes": sample.free_bytes, "device_total_bytes": sample.total_bytes}
        missing = {field: "not reported by the system" for field, value in read.items() if value is None}
        return DeviceMemorySampleResult(sample, tuple(missing), missing)

    def capabilities(self) -> DeviceMemoryCapabilities:
        """RSS for what an allocator and a driver would tell; no inner state of an allocator."""
        return DeviceMemoryCapabilities(
            self.name(),
            self.telemetry_collector,
            "/proc/self/statm",
            supports_allocator_allocated=True,
            supports_allocator_reserved=True,
            supports_device_used=True,
            supports_device_free=True,
            supports_device_total=True,
            supports_allocator_attribution=True,
        )


def _cuda_counters(torch: Any, index: int) -> tuple[int, int, int | None, int | None, dict[str, int]]:
    """Allocated, reserved, active and inactive bytes (None where not reported), and the number of failures.

    The allocator gives all its counters in one call. Each of PyTorch's public functions makes that call
    again and sorts its hundred numbers by name: they are asked only where the call is missing.
    """
    ask = getattr(getattr(torch, "_C", None), "_cuda_memoryStats", None)
    if ask is not None:
        if not torch.cuda.is_initialized():
            return 0, 0, 0, 0, {}
        stats = ask(index)
        names = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
        try:
            allocated, reserved, active, inactive = (int(stats[name]["all"]["current"]) for name in names)
        except (KeyError, TypeError):
            pass  # another allocator behind the same call
        else:
            return allocated, reserved, active, inactive, _trouble(stats)
    cuda = torch.cuda
    allocated, reserved = int(cuda.memory_allocated(index)), int(cuda.memory_reserved(index))
    try:
        flat = cuda.memory_stats(index)
        return (
            allocated,
            reserved,
            int(flat["active_bytes.all.current"]),
            int(flat["inactive_split_bytes.all.current"]),
            _trouble(flat),
        )
    except Exception:
        return allocated, reserved, None, None, {}


def _trouble(stats: Mapping[str, Any]) -> dict[str, int]:
    found = {name: stats.get(name) for name in ("num_alloc_retries", "num_ooms")}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def detect_torch_runtime_backend() -> str:
    """The backend PyTorch would use here: cuda, rocm, mps or cpu; cpu without PyTorch."""
    try:
        torch = _torch()
    except ImportError:
        return "cpu"
    if torch.cuda.is_available():
        return "rocm" if getattr(torch.version, "hip", None) else "cuda"
    try:
        return "mps" if torch.backends.mps.is_available() else "cpu"
    except Exception:
        return "cpu"


def build_device_memory_collector(device: Any = None) -> DeviceMemoryCollector:
    """The collector for a device: of PyTorch's own, or `cpu`; None is the current one."""
    if device is None and detect_torch_runtime_backend() == "cpu":
        return CPUDeviceCollector()
    if str(device) == "cpu":
        return CPUDeviceCollector()
    resolved = _resolve_device(device)
    if resolved.type == "cuda":
        kind = ROCmDeviceCollector if detect_torch_runtime_backend() == "rocm" else CudaDeviceCollector
        return kind(resolved)
    if resolved.type == "mps":
        return MPSDeviceCollector(resolved)
    raise ValueError("Only CUDA/ROCm and MPS devices are supported for tracking")


def _resolve_device(device: Any) -> Any:
    torch = _torch()
    backend = detect_torch_runtime_backend()
    if device is None:
        if backend in {"cuda", "rocm"}:
            return torch.device(f"cuda:{torch.cuda.current_device()}")
        if backend == "mps":
            return torch.device("mps")
        raise RuntimeError("No supported GPU backend is available")
    if isinstance(device, int):
        if backend not in {"cuda", "rocm"}:
            raise ValueError("Integer device IDs are only supported for CUDA/ROCm backends")
        return torch.device(f"cuda:{device}")
    return torch.device(device) if isinstance(device, str) else device


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise ImportError(
            "GPU collectors need PyTorch. Install with `pip install 'stormlog[torch]'` "
            "or follow https://pytorch.org/get-started/locally/."
        ) from error


def _nothing(error: Exception) -> DeviceMemorySampleResult:
    return DeviceMemorySampleResult(None, errors={"core_metrics": str(error)}, core_error=str(error))
