"""The memory of calls and blocks of a JAX program, on one device.

The peak of a block is the allocator's own where it rose inside the block; JAX cannot reset it, so of a block
that stays below an earlier peak it is the highest of the readings. Where a device has no counters (the CPU),
memory is unknown: `device_memory_available` is False. The history is bounded.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from stormlog import _native
from stormlog._jax import runtime
from stormlog._jax.preallocation import Preallocation, pool_bytes
from stormlog._jax.results import SizedResult
from stormlog._tracking.monitor import Monitor
from stormlog.jax.utils import get_device_memory_capability, resolve_jax_device

__all__ = [
    "JAXMemoryProfiler",
    "MemorySnapshot",
    "ProfileResult",
    "clear_global_profiler",
    "clear_profiles",
    "get_global_profiler",
    "get_profile_summaries",
    "set_global_profiler",
]

F = TypeVar("F", bound=Callable[..., Any])
_MAX_SNAPSHOTS = 100_000


@dataclass
class MemorySnapshot:
    """Memory at one moment; `device_memory_available` says whether the device's is known."""

    timestamp: float
    name: str
    device_memory_bytes: int
    cpu_memory_bytes: int
    device_id: int
    device_memory_reserved_bytes: int = 0
    memory_stats: dict[str, Any] = field(default_factory=dict)
    operation_name: str | None = None
    device_memory_available: bool = True
    device_memory_unavailable_reason: str | None = None

    def __post_init__(self) -> None:
        self.device_memory_bytes = max(self.device_memory_bytes, 0)
        self.device_memory_reserved_bytes = max(self.device_memory_reserved_bytes, 0)
        self.cpu_memory_bytes = max(self.cpu_memory_bytes, 0)

    @property
    def device_memory_mb(self) -> float:
        """In use on the device, in megabytes."""
        return self.device_memory_bytes / runtime.MIB

    @property
    def device_memory_reserved_mb(self) -> float:
        """The pool, in megabytes."""
        return self.device_memory_reserved_bytes / runtime.MIB

    @property
    def cpu_memory_mb(self) -> float:
        """Resident on the host, in megabytes."""
        return self.cpu_memory_bytes / runtime.MIB


@dataclass
class ProfileResult(SizedResult):
    """All snapshots and blocks, summed up."""

    start_time: float
    end_time: float
    peak_memory_bytes: int
    average_memory_bytes: int
    min_memory_bytes: int
    snapshots: list[MemorySnapshot] = field(default_factory=list)
    function_profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    device_memory_available: bool = False
    device_memory_unavailable_reason: str | None = None

    @property
    def min_memory_mb(self) -> float:
        """The least, in megabytes."""
        return self.min_memory_bytes / runtime.MIB

    @property
    def memory_growth_rate(self) -> float:
        """Megabytes a second from the lowest to the highest."""
        return (self.peak_memory_mb - self.min_memory_mb) / self.duration if self.duration > 0 else 0.0


class JAXMemoryProfiler:
    """Profiles calls and blocks. ImportError without JAX."""

    def __init__(self, device_index: int | str = 0, *, device: Any = None) -> None:
        jax = runtime.jax()
        if device is None:
            device, number = resolve_jax_device(device_index)
        else:
            number = int(getattr(device, "id", 0))
        self._device, self._device_index = device, number
        self._marker: Any = runtime.quietly(
            lambda: jax.device_put(0.0, device), None, f"whether {device} is idle"
        )
        self._probe = _native.tracking.ProcessProbe()
        self._preallocation = Preallocation.of()
        self._lock = threading.Lock()
        self._snapshots: deque[MemorySnapshot] = deque(maxlen=_MAX_SNAPSHOTS)
        self._function_profiles: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._monitor = Monitor(self._take)

    def capture_snapshot(
        self, name: str = "snapshot", *, operation_name: str | None = None
    ) -> MemorySnapshot:
        """Memory now, kept among the snapshots. Waits for the work that was begun on the device."""
        if self._marker is not None:
            runtime.quietly(self._marker.block_until_ready, None, "that the device is idle")
        capability = get_device_memory_capability(self._device)
        stats = capability["memory_stats"]
        is_known = bool(capability["memory_stats_available"])
        held = int(stats["bytes_in_use"]) if is_known else 0
        pool = pool_bytes(stats, self._preallocation) if is_known else None
        snapshot = MemorySnapshot(
            timestamp=time.time(),
            name=name,
            device_memory_bytes=held,
            cpu_memory_bytes=self._probe.memory()[0],
            device_id=self._device_index,
            device_memory_reserved_bytes=held if pool is None else pool,
            memory_stats=stats,
            operation_name=operation_name,
            device_memory_available=is_known,
            device_memory_unavailable_reason=capability["memory_stats_error"],
        )
        with self._lock:
            self._snapshots.append(snapshot)
        return snapshot

    def profile_function(self, func: F | None = None, *, name: str | None = None) -> Any:
        """The function, profiled each time it is called; with or without a name of its own."""

        def decorate(function: F) -> Any:
            label = name or str(getattr(function, "__name__", type(function).__name__))

            @functools.wraps(function)
            def profiled(*args: Any, **kwargs: Any) -> Any:
                with self.profile_context(label):
                    return function(*args, **kwargs)

            return profiled

        return decorate if func is None else decorate(func)

    @contextmanager
    def profile_context(self, name: str = "context") -> Iterator[MemorySnapshot]:
        """A block that is counted under a name, also when it raises; gives the snapshot before it."""
        before = self.capture_snapshot(f"{name}_before", operation_name=name)
        began = time.perf_counter()
        try:
            yield before
        finally:
            took = time.perf_counter() - began
            self._count(name, took, before, self.capture_snapshot(f"{name}_after", operation_name=name))

    def _count(self, name: str, took: float, before: MemorySnapshot, after: MemorySnapshot) -> None:
        is_known = before.device_memory_available and after.device_memory_available
        change = after.device_memory_bytes - before.device_memory_bytes if is_known else 0
        peak = max(before.device_memory_bytes, after.device_memory_bytes)
        earlier, later = (one.memory_stats.get("peak_bytes_in_use", 0) for one in (before, after))
        if later > earlier:
            peak = max(peak, int(later))
        with self._lock:
            row = self._function_profiles.setdefault(
                name,
                {
                    "calls": 0,
                    "total_duration": 0.0,
                    "peak_memory_bytes": 0,
                    "total_memory_delta": 0,
                    "last_memory_delta": 0,
                    "device_memory_available": is_known,
                },
            )
            row["calls"] += 1
            row["total_duration"] += took
            row["peak_memory_bytes"] = max(row["peak_memory_bytes"], peak)
            row["total_memory_delta"] += change
            row["last_memory_delta"] = change
            row["device_memory_available"] = is_known

    def start_continuous_profiling(self, interval: float = 1.0) -> None:
        """Take snapshots in the background."""
        self._monitor.start(interval)

    def stop_continuous_profiling(self) -> None:
        """Stop taking snapshots in the background."""
        self._monitor.stop()

    def get_results(self) -> ProfileResult:
        """The results up to now, as one object."""
        with self._lock:
            snapshots = sorted(self._snapshots, key=lambda snapshot: snapshot.timestamp)
            profiles = {name: dict(row) for name, row in self._function_profiles.items()}
        reasons = [
            one.device_memory_unavailable_reason for one in snapshots if not one.device_memory_available
        ]
        known = [] if reasons else [snapshot.device_memory_bytes for snapshot in snapshots]
        peaks = [row["peak_memory_bytes"] for row in profiles.values()] if known else []
        now = time.time()
        return ProfileResult(
            start_time=snapshots[0].timestamp if snapshots else now,
            end_time=snapshots[-1].timestamp if snapshots else now,
            peak_memory_bytes=max(known + peaks, default=0),
            average_memory_bytes=sum(known) // len(known) if known else 0,
            min_memory_bytes=min(known, default=0),
            snapshots=snapshots,
            function_profiles=profiles,
            device_memory_available=bool(known),
            device_memory_unavailable_reason=reasons[0] if reasons else None,
        )

    def reset(self) -> None:
        """Remove everything that was recorded."""
        with self._lock:
            self._snapshots.clear()
            self._function_profiles.clear()

    def __enter__(self) -> Self:
        self.capture_snapshot("session_start")
        return self

    def __exit__(self, *exc: object) -> None:
        self.capture_snapshot("session_end")
        self.stop_continuous_profiling()

    def _take(self) -> None:
        self.capture_snapshot(f"continuous_{self._number}")
        self._number += 1


_GLOBAL: list[JAXMemoryProfiler] = []
_GLOBAL_LOCK = threading.Lock()


def get_global_profiler() -> JAXMemoryProfiler:
    """The profiler of the whole program; made when it is first asked for."""
    with _GLOBAL_LOCK:
        if not _GLOBAL:
            _GLOBAL.append(JAXMemoryProfiler())
        return _GLOBAL[0]


def set_global_profiler(profiler: JAXMemoryProfiler) -> None:
    """Use this one from now on; the one before stops."""
    with _GLOBAL_LOCK:
        for before in _GLOBAL:
            before.stop_continuous_profiling()
        _GLOBAL[:] = [profiler]


def clear_global_profiler() -> None:
    """Stop and drop it; the next one begins again."""
    with _GLOBAL_LOCK:
        for profiler in _GLOBAL:
            profiler.stop_continuous_profiling()
            profiler.reset()
        _GLOBAL.clear()


def clear_profiles() -> None:
    """Forget what it has so far."""
    with _GLOBAL_LOCK:
        for profiler in _GLOBAL:
            profiler.reset()


def get_profile_summaries(limit: int | None = None) -> list[dict[str, Any]]:
    """The functions and blocks of the global profiler, the highest peak first."""
    with _GLOBAL_LOCK:
        found = list(_GLOBAL)
    rows = [
        {"name": name, **row}
        for profiler in found
        for name, row in profiler.get_results().function_profiles.items()
    ]
    return sorted(rows, key=lambda row: row["peak_memory_bytes"], reverse=True)[:limit]
