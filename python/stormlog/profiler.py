"""Profiling of calls and blocks on a GPU: memory before, after, and the true peak in between.

Without a GPU it profiles the resident memory of this process in the same words; PyTorch is needed only to
look at a GPU. The device is waited for when a profiled call begins and ends, and never by the monitor. What
is kept is bounded, and holds no tensor and no frame.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from stormlog import _native, shapes
from stormlog._torch.meter import Counters, Meter, Peak, end_stretch, meter_for
from stormlog._tracking.monitor import DEFAULT_INTERVAL, Monitor, StopsAtExit
from stormlog._tracking.profile_store import ProfileStore
from stormlog.errors import ConfigurationError
from stormlog.tensor_tracker import TensorTracker

__all__ = ["GPUMemoryProfiler", "MemorySnapshot", "ProfileResult", "TensorTracker"]

_LOGGER = logging.getLogger(__name__)
_STACK_DEPTH = 5
_OWN_FILES = ("stormlog/profiler.py", "stormlog/context_profiler.py", "/contextlib.py")


@dataclasses.dataclass
class MemorySnapshot:
    """The memory of a device at one moment, in bytes; `cpu_memory` is the resident memory of this process."""

    timestamp: float
    allocated_memory: int
    reserved_memory: int
    max_memory_allocated: int
    max_memory_reserved: int
    active_memory: int
    inactive_memory: int
    cpu_memory: int
    device_id: int = 0
    operation: str | None = None
    stack_trace: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The object form."""
        return dataclasses.asdict(self)

    def to_memory_snapshot(self, total_memory: int | None = None) -> dict[str, Any]:
        """The form of the documents, in megabytes."""
        return shapes.memory_snapshot(self, total_memory)


@dataclasses.dataclass
class ProfileResult:
    """What a profiled call or block took: memory before, after and at its peak, and time."""

    function_name: str
    execution_time: float
    memory_before: MemorySnapshot
    memory_after: MemorySnapshot
    memory_peak: MemorySnapshot
    memory_allocated: int
    memory_freed: int
    tensors_created: int
    tensors_deleted: int
    call_count: int = 1

    def memory_diff(self) -> int:
        """Bytes more allocated after than before."""
        return self.memory_after.allocated_memory - self.memory_before.allocated_memory

    def peak_memory_usage(self) -> int:
        """The most bytes that were allocated at once."""
        return self.memory_peak.allocated_memory

    def to_dict(self) -> dict[str, Any]:
        """The object form."""
        return {
            "function_name": self.function_name,
            "execution_time": self.execution_time,
            "memory_before": self.memory_before.to_dict(),
            "memory_after": self.memory_after.to_dict(),
            "memory_peak": self.memory_peak.to_dict(),
            "memory_allocated": self.memory_allocated,
            "memory_freed": self.memory_freed,
            "memory_diff": self.memory_diff(),
            "peak_memory_usage": self.peak_memory_usage(),
            "tensors_created": self.tensors_created,
            "tensors_deleted": self.tensors_deleted,
            "call_count": self.call_count,
        }

    def to_function_call(self) -> dict[str, Any]:
        """The result in the shape that 0.4.3 documents, in megabytes."""
        return shapes.function_call(self)


class GPUMemoryProfiler(StopsAtExit):
    """Profiles calls and blocks on a device: a GPU, or this process where there is none (`device="cpu"`).

    - `track_tensors`: also count the tensors that live. `track_cpu_memory`: also read resident memory.
    - `collect_stack_traces`: keep the Python stack of each snapshot.
    - `max_snapshots`, `max_results`: how many are kept; the oldest are dropped, and still count in
      `get_summary`.
    """

    def __init__(
        self,
        device: Any = None,
        track_tensors: bool = False,
        track_cpu_memory: bool = True,
        collect_stack_traces: bool = False,
        max_snapshots: int = 10_000,
        *,
        max_results: int = 10_000,
    ) -> None:
        if max_snapshots <= 0:
            raise ConfigurationError("max_snapshots must be >= 1")
        if max_results <= 0:
            raise ConfigurationError("max_results must be >= 1")
        self._meter: Meter = meter_for(device)
        self.device = self._meter.device
        self.track_tensors = track_tensors
        self.track_cpu_memory = track_cpu_memory
        self.collect_stack_traces = collect_stack_traces
        self.max_snapshots = max_snapshots
        self.max_results = max_results
        self.snapshots: deque[MemorySnapshot] = deque(maxlen=max_snapshots)
        self._store = ProfileStore(max_results)
        self._probe = _native.tracking.ProcessProbe()
        self._monitor = Monitor(lambda: self.snapshots.append(self._take_snapshot("monitor")))
        self._tensor_tracker = self._tracker_of_tensors() if track_tensors else None
        self._baseline_snapshot = self._take_snapshot("baseline")

    @property
    def results(self) -> list[ProfileResult]:
        """The stored results, oldest first; the list itself, not a copy."""
        return self._store.results

    @property
    def function_stats(self) -> dict[str, list[ProfileResult]]:
        """The stored results, by the name of the function or block."""
        return self._store.by_name

    # Profiling

    def profile_function(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> ProfileResult:
        """Call a function and measure it; what it returned is dropped, what it raised is raised again."""
        call = _Call(self, getattr(func, "__name__", str(func)))
        try:
            func(*args, **kwargs)
        except BaseException:
            call.end(failed=True)
            raise
        return call.end()

    @contextmanager
    def profile_context(self, name: str = "context") -> Iterator[None]:
        """Measure a block; its result is added to `results`, also when it raises."""
        call = _Call(self, name)
        try:
            yield
        except BaseException:
            call.end(failed=True)
            raise
        call.end()

    # Watching

    def start_monitoring(self, interval: float | None = DEFAULT_INTERVAL) -> None:
        """Take snapshots in the background, the first at once; the device is not waited for."""
        self._monitor.start(interval)

    def stop_monitoring(self) -> None:
        """Stop taking snapshots."""
        self._monitor.stop()

    @property
    def _monitoring(self) -> bool:
        return self._monitor.is_on

    # Results

    def get_summary(self) -> dict[str, Any]:
        """Totals of all results and of each function, including results that were dropped."""
        if not self.results:
            return {"message": "No profiling results available"}
        total, by_name = self._store.sums()
        current = self._take_snapshot("current").allocated_memory
        baseline = self._baseline_snapshot.allocated_memory
        return {
            "device": str(self.device),
            "total_functions_profiled": len(by_name),
            "total_function_calls": total.calls,
            "total_execution_time": total.seconds,
            "total_memory_allocated": total.allocated,
            "total_memory_freed": total.freed,
            "net_memory_change": total.allocated - total.freed,
            "peak_memory_usage": total.peak,
            "current_memory_usage": current,
            "baseline_memory_usage": baseline,
            "memory_change_from_baseline": current - baseline,
            "function_summaries": {
                name: {
                    "call_count": of_name.calls,
                    "total_time": of_name.seconds,
                    "avg_time": of_name.seconds / of_name.calls,
                    "total_memory_allocated": of_name.allocated,
                    "avg_memory_allocated": of_name.allocated / of_name.calls,
                    "peak_memory": of_name.peak,
                }
                for name, of_name in by_name.items()
            },
            "monitoring_active": self._monitoring,
            "snapshots_collected": len(self.snapshots),
            "results_dropped": total.calls - len(self.results),
        }

    def detect_leaks(self, min_increase_bytes: int = 100 * 1024 * 1024) -> dict[str, Any]:
        """Whether what stays allocated grows, by snapshots and results; the form of the documents."""
        after = [result.memory_after for result in list(self.results)]
        samples = [(seen.timestamp, seen.allocated_memory) for seen in [*after, *list(self.snapshots)]]
        return shapes.leak_detection_result(samples, min_increase_bytes)

    def clear_results(self) -> None:
        """Forget results and snapshots; memory now is the new baseline."""
        self._store.clear()
        self.snapshots.clear()
        self._meter.reset_peak()
        self._baseline_snapshot = self._take_snapshot("new_baseline")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copy of a profiled model is profiled by the same profiler.
        return self

    def _take_snapshot(self, operation: str | None = None, seen: Counters | None = None) -> MemorySnapshot:
        counters = self._meter.read() if seen is None else seen
        return MemorySnapshot(
            time.time(),
            counters.allocated,
            counters.reserved,
            counters.peak_allocated,
            counters.peak_reserved,
            counters.active,
            counters.inactive,
            self._probe.memory()[0] if self.track_cpu_memory else 0,
            self._meter.device_id,
            operation,
            _stack() if self.collect_stack_traces and operation else None,
        )

    def _tracker_of_tensors(self) -> TensorTracker | None:
        kind = str(getattr(self.device, "type", self.device))
        # Without PyTorch there are no tensors to count.
        return None if isinstance(self.device, str) else TensorTracker(kind)


class _Call:
    """One profiled call, from its making to `end`."""

    def __init__(self, profiler: GPUMemoryProfiler, name: str) -> None:
        self._profiler = profiler
        self._name = name
        meter, tensors = profiler._meter, profiler._tensor_tracker
        meter.synchronize()
        self._tensors = 0 if tensors is None else tensors.count_tensors()
        self._stretch = meter.begin()
        self._counters = meter.read()
        self._before = profiler._take_snapshot(f"before_{name}", self._counters)
        self._start = time.perf_counter()

    def end(self, failed: bool = False) -> ProfileResult:
        """The result, which is kept; the device's own late error is raised unless another is on its way."""
        try:
            self._profiler._meter.synchronize()
        except Exception:
            if not failed:
                self._finish(failed=True)
                raise
        return self._finish(failed)

    def _finish(self, failed: bool) -> ProfileResult:
        profiler, name, before = self._profiler, self._name, self._before
        seconds = time.perf_counter() - self._start
        peak, counters = end_stretch(self._stretch, profiler._meter)
        suffix = "_error" if failed else ""
        after = profiler._take_snapshot(f"after_{name}{suffix}", counters)
        allocated, freed = _between(self._counters, counters)
        created = 0
        if profiler._tensor_tracker is not None:
            created = profiler._tensor_tracker.count_tensors() - self._tensors
        result = ProfileResult(
            name,
            seconds,
            before,
            after,
            _at_peak(after, peak, f"peak_{name}{suffix}"),
            allocated,
            freed,
            max(created, 0),
            max(-created, 0),
        )
        profiler._store.add(result)
        return result


def _between(before: Counters, after: Counters) -> tuple[int, int]:
    """Bytes allocated and freed, by the allocator's own count; where it does not count, the net change."""
    if before.ever_allocated is None or after.ever_allocated is None:
        net = after.allocated - before.allocated
        return max(net, 0), max(-net, 0)
    freed = (after.ever_freed or 0) - (before.ever_freed or 0)
    # Other code may have reset these counters in between.
    return max(after.ever_allocated - before.ever_allocated, 0), max(freed, 0)


def _at_peak(after: MemorySnapshot, peak: Peak, operation: str) -> MemorySnapshot:
    return dataclasses.replace(
        after,
        allocated_memory=peak.allocated,
        reserved_memory=peak.reserved,
        max_memory_allocated=peak.allocated,
        max_memory_reserved=peak.reserved,
        active_memory=peak.active,
        operation=operation,
    )


def _stack() -> str:
    """The innermost frames of the program, without ours."""
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.endswith(_OWN_FILES)]
    return "".join(traceback.format_list(frames[-_STACK_DEPTH:]))
