"""What a profiler reads: the counters of one device, and the highest of them between two moments.

A device keeps one peak for the whole process. To get the peak of a stretch it has to be reset, so before each
reset its value is handed to every stretch that is open: an inner one must not cost the outer its
peak, nor one thread another's. Without a GPU the same is done with the resident memory of this process.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from stormlog import _native
from stormlog._tracking.peak import PeakOfCall
from stormlog.device_collectors import detect_torch_runtime_backend
from stormlog.errors import ConfigurationError, ProfilerError


class Counters(NamedTuple):
    """One reading. The last two count up forever; None where they are not counted."""

    allocated: int
    reserved: int
    active: int
    inactive: int
    peak_allocated: int
    peak_reserved: int
    peak_active: int
    ever_allocated: int | None
    ever_freed: int | None


class Peak(NamedTuple):
    """The highest of a stretch."""

    allocated: int
    reserved: int
    active: int


class Stretch(Protocol):
    """A stretch whose peak is wanted; ends once."""

    def end(self) -> Peak:
        """Its peak."""


class Meter(Protocol):
    """One device."""

    device: Any
    device_id: int

    def read(self) -> Counters:
        """The counters now, without waiting for the device."""

    def synchronize(self) -> None:
        """Wait until the device has finished its work on all streams."""

    def begin(self) -> Stretch:
        """Begin a stretch."""

    def reset_peak(self) -> None:
        """Let the device's own peak begin again."""


def end_stretch(stretch: Stretch, meter: Meter) -> tuple[Peak, Counters]:
    """End a stretch; its peak, and what is held at its end, which is never above the peak.

    The counters are read first: what is allocated between the two readings then raises the peak alone. The
    kernel's mark for a process lags behind its resident memory by some pages, so the larger of both counts.
    """
    counters = meter.read()
    peak = stretch.end()
    return (
        Peak(
            max(peak.allocated, counters.allocated),
            max(peak.reserved, counters.reserved),
            max(peak.active, counters.active),
        ),
        counters,
    )


def meter_for(device: Any = None) -> Meter:
    """The meter of a device; None is the current GPU, or this process where there is none."""
    if device is None:
        backend = detect_torch_runtime_backend()
        if backend == "cpu":
            return HostMeter()
        device = "mps" if backend == "mps" else import_module("torch").cuda.current_device()
    if str(device) == "cpu":
        return HostMeter()
    torch = _torch()
    wanted = torch.device(f"cuda:{device}") if isinstance(device, int) else torch.device(str(device))
    if wanted.type == "mps":
        raise ProfilerError(
            "bounded profiling requires allocator peak/reset capabilities; "
            "backend 'mps' does not provide them"
        )
    if wanted.type != "cuda":
        raise ConfigurationError("Only CUDA/ROCm or MPS devices are recognized for GPU memory profiling")
    count = torch.cuda.device_count()
    index = wanted.index if wanted.index is not None else torch.cuda.current_device() if count else 0
    if index >= count:
        raise ConfigurationError(f"Device {wanted} is not available: there are {count} CUDA devices here")
    return CudaMeter(torch, index)


class CudaMeter:
    """A CUDA or ROCm device, by the counters of PyTorch's allocator."""

    def __init__(self, torch: Any, index: int) -> None:
        self.device: Any = torch.device(f"cuda:{index}")
        self.device_id = index
        self._torch = torch

    def read(self) -> Counters:
        """The counters now, in one call."""
        ask = getattr(getattr(self._torch, "_C", None), "_cuda_memoryStats", None)
        if ask is not None and self._torch.cuda.is_initialized():
            stats = ask(self.device_id)

            def number(name: str, kind: str) -> int | None:
                value = stats.get(name, {}).get("all", {}).get(kind)
                return None if value is None else int(value)
        else:
            flat = self._torch.cuda.memory_stats(self.device_id)

            def number(name: str, kind: str) -> int | None:
                value = flat.get(f"{name}.all.{kind}")
                return None if value is None else int(value)

        ever, freed = number("allocated_bytes", "allocated"), number("allocated_bytes", "freed")
        if not ever and number("allocated_bytes", "current"):
            ever = freed = None  # another allocator (cudaMallocAsync), which does not count
        return Counters(
            number("allocated_bytes", "current") or 0,
            number("reserved_bytes", "current") or 0,
            number("active_bytes", "current") or 0,
            number("inactive_split_bytes", "current") or 0,
            number("allocated_bytes", "peak") or 0,
            number("reserved_bytes", "peak") or 0,
            number("active_bytes", "peak") or 0,
            ever,
            freed,
        )

    def synchronize(self) -> None:
        """Wait for all streams of the device; not while a graph is captured, which it would end."""
        is_capturing = getattr(self._torch.cuda, "is_current_stream_capturing", None)
        if is_capturing is None or not is_capturing():
            self._torch.cuda.synchronize(self.device_id)

    def begin(self) -> CudaStretch:
        """Begin a stretch."""
        return CudaStretch(self)

    def reset_peak(self) -> None:
        """Let the device's peak begin again, without loss for the stretches that are open."""
        with _LOCK:
            self._reset()

    def _reset(self) -> None:
        self._share()
        self._torch.cuda.reset_peak_memory_stats(self.device_id)

    def _share(self) -> None:
        reading = self.read()
        for stretch in _OPEN:
            if stretch.meter.device_id == self.device_id:
                stretch.saw(reading)


class CudaStretch:
    """A stretch of time on a CUDA device, from its making to `end`."""

    def __init__(self, meter: CudaMeter) -> None:
        self.meter = meter
        self._peak = Peak(0, 0, 0)
        with _LOCK:
            meter._reset()
            _OPEN.append(self)

    def end(self) -> Peak:
        """Its peak."""
        with _LOCK:
            try:
                self.meter._share()
            finally:
                _OPEN.remove(self)
        return self._peak

    def saw(self, reading: Counters) -> None:
        """The device's peak was this just now."""
        known = self._peak
        self._peak = Peak(
            max(known.allocated, reading.peak_allocated),
            max(known.reserved, reading.peak_reserved),
            max(known.active, reading.peak_active),
        )


_LOCK = threading.Lock()
_OPEN: list[CudaStretch] = []


class HostMeter:
    """The process itself: its resident memory stands for what an allocator would tell."""

    device_id = -1

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        self.device: Any = "cpu" if torch is None else torch.device("cpu")
        self._probe = _native.tracking.ProcessProbe()

    def read(self) -> Counters:
        """The resident memory now."""
        rss, _ = self._probe.memory()
        peak = max(self._probe.peak_rss() or 0, rss)
        return Counters(rss, rss, rss, 0, peak, peak, peak, None, None)

    def synchronize(self) -> None:
        """Nothing runs ahead of this process."""

    def begin(self) -> HostStretch:
        """Begin a stretch."""
        return HostStretch(self, PeakOfCall(self._probe))

    def reset_peak(self) -> None:
        """Let the peak begin again."""
        PeakOfCall(self._probe).end()


class HostStretch:
    """A stretch of time of this process."""

    def __init__(self, meter: HostMeter, inner: PeakOfCall) -> None:
        self._meter = meter
        self._inner = inner
        self._before = meter.read().allocated

    def end(self) -> Peak:
        """Its peak; the kernel's own, which sees what no sampling would."""
        peak = max(self._inner.end() or 0, self._before, self._meter.read().allocated)
        return Peak(peak, peak, peak)


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise ImportError(
            "Profiling a GPU needs PyTorch. PyTorch is required for this feature. Install with "
            "`pip install 'stormlog[torch]'` or follow https://pytorch.org/get-started/locally/."
        ) from error
