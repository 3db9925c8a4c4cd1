"""The memory of calls and blocks of a TensorFlow program.

Sizes are megabytes, as 0.4.3 has them. The peak of a block is the true one inside it, also of blocks in
blocks: on a GPU what tensors held, on the CPU the resident memory of the process. The history is bounded: a
profiler must not be the leak it looks for.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from stormlog import _native
from stormlog._tracking.monitor import Monitor
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._peak import Highest, begin_peak

__all__ = ["MemorySnapshot", "ProfileResult", "TFMemoryProfiler", "TensorTracker"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_SNAPSHOTS = 100_000


@dataclass
class MemorySnapshot:
    """Memory at one moment; `gpu_memory_reserved_mb` is the peak, as 0.4.3 calls it."""

    timestamp: float
    name: str
    gpu_memory_mb: float
    cpu_memory_mb: float
    gpu_memory_reserved_mb: float
    gpu_utilization: float
    num_tensors: int
    tensor_sizes: dict[str, float] = field(default_factory=dict)
    operation_name: str | None = None
    graph_node: str | None = None
    # The device that is profiled: on the CPU it is the process that counts.
    device: str = "/GPU:0"

    def __post_init__(self) -> None:
        self.gpu_memory_mb = max(self.gpu_memory_mb, 0.0)
        self.cpu_memory_mb = max(self.cpu_memory_mb, 0.0)

    @property
    def held_mb(self) -> float:
        """What counts on the profiled device: tensors on a GPU, the process on the CPU."""
        return self.gpu_memory_mb if _runtime.is_gpu(self.device) else self.cpu_memory_mb


@dataclass
class ProfileResult:
    """What all snapshots and blocks came to."""

    start_time: float
    end_time: float
    peak_memory_mb: float
    average_memory_mb: float
    min_memory_mb: float
    total_allocations: int
    total_deallocations: int
    snapshots: list[MemorySnapshot] = field(default_factory=list)
    function_profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    tensor_lifecycle: dict[str, Any] = field(default_factory=dict)
    memory_fragmentation: float = 0.0
    efficiency_score: float = 0.0

    @property
    def duration(self) -> float:
        """Seconds between the first and the last snapshot."""
        return self.end_time - self.start_time

    @property
    def memory_growth_rate(self) -> float:
        """Megabytes a second from the lowest to the highest."""
        growth = self.peak_memory_mb - self.min_memory_mb
        return growth / self.duration if self.duration > 0 else 0.0


class TensorTracker:
    """Tensors it was given: which are alive, and how large they are. It keeps none of them alive."""

    def __init__(self) -> None:
        self.tensors: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.tensor_history: deque[dict[str, Any]] = deque(maxlen=_MAX_SNAPSHOTS)
        self.tensor_sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def track_tensor(self, tensor: Any, operation_name: str = "unknown") -> None:
        """Takes note of a tensor. Its size is computed, not read: nothing is copied to the host."""
        if tensor is None:
            return
        shape = [size or 0 for size in getattr(tensor, "shape", ())]
        size = int(getattr(getattr(tensor, "dtype", None), "size", 0))
        for extent in shape:
            size *= int(extent)
        with self._lock:
            self.tensors[id(tensor)] = tensor
            self.tensor_sizes[id(tensor)] = size
            self.tensor_history.append(
                {
                    "tensor_id": id(tensor),
                    "operation": operation_name,
                    "timestamp": time.time(),
                    "action": "created",
                    "size_bytes": size,
                    "shape": shape,
                }
            )

    def get_active_tensors(self) -> dict[str, Any]:
        """The number and the size of live tensors."""
        with self._lock:
            alive = list(self.tensors.keys())
            self.tensor_sizes = {key: self.tensor_sizes[key] for key in alive}
            total = sum(self.tensor_sizes.values()) / _runtime.MIB
        return {
            "count": len(alive),
            "total_size_mb": total,
            "average_size_mb": total / len(alive) if alive else 0,
        }

    def get_tensor_lifecycle(self) -> list[dict[str, Any]]:
        """All recorded creations and deletions, oldest first."""
        with self._lock:
            return list(self.tensor_history)


class TFMemoryProfiler:
    """Profiles calls and blocks. ImportError without TensorFlow."""

    def __init__(self, device: str | None = None, enable_tensor_tracking: bool = True) -> None:
        self._tf = _runtime.tensorflow()
        self.device = device or ("/GPU:0" if _runtime.gpus(self._tf) else "/CPU:0")
        self.enable_tensor_tracking = enable_tensor_tracking
        self.tensor_tracker = TensorTracker() if enable_tensor_tracking else None
        self.snapshots: deque[MemorySnapshot] = deque(maxlen=_MAX_SNAPSHOTS)
        self.function_profiles: dict[str, dict[str, Any]] = {}
        self._probe = _native.tracking.ProcessProbe()
        self._lock = threading.Lock()
        self._monitor = Monitor(lambda: self.capture_snapshot("continuous"))
        _runtime.grow_memory(self._tf)

    @property
    def profiling_active(self) -> bool:
        """Whether snapshots are taken in the background."""
        return self._monitor.is_on

    def capture_snapshot(self, name: str = "snapshot") -> MemorySnapshot:
        """Memory now, kept among the snapshots."""
        current, peak = _runtime.device_memory(self._tf, self.device)
        resident, _ = self._probe.memory()
        tensors = self.tensor_tracker.get_active_tensors() if self.tensor_tracker else None
        snapshot = MemorySnapshot(
            timestamp=time.time(),
            name=name,
            gpu_memory_mb=current / _runtime.MIB,
            cpu_memory_mb=resident / _runtime.MIB,
            gpu_memory_reserved_mb=peak / _runtime.MIB,
            gpu_utilization=min(current / peak * 100, 100.0) if peak else 0.0,
            num_tensors=0 if tensors is None else tensors["count"],
            tensor_sizes={} if tensors is None else {"total_mb": tensors["total_size_mb"]},
            device=self.device,
        )
        with self._lock:
            self.snapshots.append(snapshot)
        return snapshot

    def profile_function(self, func: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function, profiled each time it is called. A call that raises is not counted."""
        name = getattr(func, "__name__", type(func).__name__)

        @wraps(func)
        def profiled(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self._block(name, "before", "after", keep_failed=False):
                return func(*args, **kwargs)

        return profiled

    @contextmanager
    def profile_context(self, name: str = "context") -> Iterator[None]:
        """A block that is counted under a name, also when it raises."""
        with self._block(name, "start", "end", keep_failed=True):
            yield

    @contextmanager
    def _block(self, name: str, first: str, last: str, *, keep_failed: bool) -> Iterator[None]:
        before = self.capture_snapshot(f"{name}_{first}")
        began = time.perf_counter()
        peak = begin_peak(self._tf, self.device, self._probe)
        try:
            yield
        except BaseException:
            highest = peak.end()
            after = self.capture_snapshot(f"{name}_{last if keep_failed else 'error'}")
            if keep_failed:
                self._count(name, time.perf_counter() - began, before, after, highest)
            raise
        took = time.perf_counter() - began
        highest = peak.end()
        self._count(name, took, before, self.capture_snapshot(f"{name}_{last}"), highest)

    def _count(
        self, name: str, took: float, before: MemorySnapshot, after: MemorySnapshot, peak: Highest
    ) -> None:
        with self._lock:
            profile = self.function_profiles.setdefault(
                name,
                {
                    "calls": 0,
                    "total_duration": 0.0,
                    "total_memory_used": 0.0,
                    "peak_memory": 0.0,
                    "peak_increase": 0.0,
                    "snapshots": deque(maxlen=_MAX_SNAPSHOTS),
                },
            )
            profile["calls"] += 1
            profile["total_duration"] += took
            first, last = before.held_mb, after.held_mb
            profile["total_memory_used"] += last - first
            highest = max(first, last, peak.held / _runtime.MIB)
            increase = max(highest - first, peak.increase / _runtime.MIB)
            profile["peak_memory"] = max(profile["peak_memory"], highest)
            profile["peak_increase"] = max(profile["peak_increase"], increase)
            profile["snapshots"].extend([before, after])

    def start_continuous_profiling(self, interval: float = 1.0) -> None:
        """Takes snapshots in the background."""
        self._monitor.start(interval)

    def stop_continuous_profiling(self) -> None:
        """Stop taking snapshots in the background."""
        self._monitor.stop()

    def get_results(self) -> ProfileResult:
        """The results up to now, as one object."""
        with self._lock:
            snapshots = list(self.snapshots)
            profiles = {
                name: {**profile, "snapshots": list(profile["snapshots"])}
                for name, profile in self.function_profiles.items()
            }
        now = time.time()
        memory = [snapshot.held_mb for snapshot in snapshots] or [0.0]
        peaks = [profile["peak_memory"] for profile in profiles.values()]
        tracker = self.tensor_tracker
        lifecycle = tracker and {
            "history": tracker.get_tensor_lifecycle(),
            "active": tracker.get_active_tensors(),
        }
        return ProfileResult(
            start_time=snapshots[0].timestamp if snapshots else now,
            end_time=snapshots[-1].timestamp if snapshots else now,
            peak_memory_mb=max(memory + peaks),
            average_memory_mb=sum(memory) / len(memory),
            min_memory_mb=min(memory),
            total_allocations=sum(later > earlier for earlier, later in pairwise(memory)),
            total_deallocations=sum(later < earlier for earlier, later in pairwise(memory)),
            snapshots=snapshots,
            function_profiles=profiles,
            tensor_lifecycle=lifecycle if lifecycle and snapshots else {},
        )

    def reset(self) -> None:
        """Remove everything that was recorded."""
        with self._lock:
            self.snapshots.clear()
            self.function_profiles.clear()
        if self.tensor_tracker:
            self.tensor_tracker.tensor_history.clear()

    def __enter__(self) -> Self:
        self.capture_snapshot("context_start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.capture_snapshot("context_end")
        self.stop_continuous_profiling()
