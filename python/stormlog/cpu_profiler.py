"""Memory of this process without any GPU: a profiler with the true peak inside a call, and a tracker.

The tracker has everything the GPU tracker has: alerts, thresholds, callbacks, phases, OOM bundles. Neither
needs a third-party package.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stormlog import _native
from stormlog._tracking.base import SINK_KEYS, BaseTracker
from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.monitor import DEFAULT_INTERVAL, Monitor, StopsAtExit
from stormlog._tracking.peak import PeakOfCall
from stormlog.device_collectors import CPUDeviceCollector
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.telemetry_sink import TelemetrySinkConfig

__all__ = [
    "CPUMemoryProfiler",
    "CPUMemorySnapshot",
    "CPUMemoryTracker",
    "CPUProfileResult",
    "TrackingEvent",
]

# A monitor left running for days must not become the leak it looks for.
_MAX_SNAPSHOTS = 100_000


@dataclasses.dataclass
class CPUMemorySnapshot:
    """The memory of this process at one moment."""

    timestamp: float
    rss: int
    vms: int
    cpu_percent: float

    def to_dict(self) -> dict[str, Any]:
        """The object form."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class CPUProfileResult:
    """What a profiled call or block took: memory before, after and at its peak, and time."""

    name: str
    duration: float
    snapshot_before: CPUMemorySnapshot
    snapshot_after: CPUMemorySnapshot
    peak_rss: int

    def memory_diff(self) -> int:
        """Bytes more resident after than before."""
        return self.snapshot_after.rss - self.snapshot_before.rss

    def to_dict(self) -> dict[str, Any]:
        """The object form."""
        return {
            "name": self.name,
            "duration": self.duration,
            "memory_diff": self.memory_diff(),
            "peak_rss": self.peak_rss,
            "before": self.snapshot_before.to_dict(),
            "after": self.snapshot_after.to_dict(),
        }


class CPUMemoryProfiler(StopsAtExit):
    """Profiles calls and blocks: memory before, after, and the highest in between."""

    def __init__(self) -> None:
        self._probe = _native.tracking.ProcessProbe()
        self.snapshots: deque[CPUMemorySnapshot] = deque(maxlen=_MAX_SNAPSHOTS)
        self.results: list[CPUProfileResult] = []
        self._monitor = Monitor(lambda: self.snapshots.append(self._take_snapshot()))
        self._last_times: tuple[float, float] | None = None
        self._baseline_snapshot = self._take_snapshot()

    def start_monitoring(self, interval: float | None = DEFAULT_INTERVAL) -> None:
        """Take snapshots in the background, the first at once."""
        self._monitor.start(interval)

    def stop_monitoring(self) -> None:
        """Stop taking snapshots."""
        self._monitor.stop()

    def profile_function(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> CPUProfileResult:
        """Call a function and measure it; what it returned is dropped, what it raised is raised again."""
        with self.profile_context(getattr(func, "__name__", "cpu_function")) as block:
            func(*args, **kwargs)
        assert block.result is not None
        return block.result

    def profile_context(self, name: str = "context") -> _Block:
        """A block whose result is in `results` afterwards, also when it raised."""
        return _Block(self, name)

    def clear_results(self) -> None:
        """Forget results and snapshots; memory now is the new baseline."""
        self.snapshots.clear()
        self.results.clear()
        self._baseline_snapshot = self._take_snapshot()

    def get_summary(self) -> dict[str, Any]:
        """The snapshots and the peaks of all results in a few numbers."""
        resident = [snapshot.rss for snapshot in self.snapshots] or [self._baseline_snapshot.rss]
        peaks = [result.peak_rss for result in self.results]
        return {
            "mode": "cpu",
            "snapshots_collected": len(self.snapshots),
            "peak_memory_usage": max(resident + peaks),
            "memory_change_from_baseline": resident[-1] - resident[0] if len(resident) > 1 else 0,
            "baseline_rss": self._baseline_snapshot.rss,
        }

    def _take_snapshot(self) -> CPUMemorySnapshot:
        rss, vms = self._probe.memory()
        spent, now = sum(os.times()[:2]), time.monotonic()
        last, self._last_times = self._last_times, (spent, now)
        # The first time there is nothing to compare with; psutil, which 0.4.3 asks, says 0.0 then.
        percent = 0.0
        if last is not None and now > last[1]:
            percent = round(max(spent - last[0], 0.0) / (now - last[1]) * 100, 1)
        return CPUMemorySnapshot(time.time(), rss, vms, percent)


class _Block:
    """One profiled block."""

    def __init__(self, profiler: CPUMemoryProfiler, name: str) -> None:
        self.result: CPUProfileResult | None = None
        self._profiler = profiler
        self._name = name

    def __enter__(self) -> Self:
        self._before = self._profiler._take_snapshot()
        self._peak = PeakOfCall(self._profiler._probe)
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        duration = time.perf_counter() - self._start
        peak = self._peak.end()
        after = self._profiler._take_snapshot()
        highest = max(self._before.rss, after.rss, peak or 0)
        self.result = CPUProfileResult(self._name, duration, self._before, after, highest)
        self._profiler.results.append(self.result)


class CPUMemoryTracker(BaseTracker):
    """Tracks the resident memory of this process; parameters are those of `MemoryTracker`."""

    session_source = "stormlog.cpu_profiler"
    _wording = "cpu"
    _says_health = False

    def __init__(
        self,
        sampling_interval: float = 0.5,
        max_events: int = 10_000,
        enable_alerts: bool = True,
        job_id: str | None = None,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        telemetry_sink_config: TelemetrySinkConfig | None = None,
        *,
        enable_oom_flight_recorder: bool = False,
        oom_dump_dir: str = "oom_dumps",
        oom_buffer_size: int | None = None,
        oom_max_dumps: int = 5,
        oom_max_total_mb: int = 256,
        recording_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        recorder = OOMFlightRecorderConfig.of_tracker(
            enable_oom_flight_recorder,
            oom_dump_dir,
            oom_buffer_size,
            oom_max_dumps,
            oom_max_total_mb,
            history=max_events,
        )
        super().__init__(
            sampling_interval=sampling_interval,
            max_events=max_events,
            enable_alerts=enable_alerts,
            recorder=recorder,
            identity=(job_id, rank, local_rank, world_size),
            telemetry_sink_config=telemetry_sink_config,
            recording_dir=recording_dir,
        )
        self._collector = CPUDeviceCollector()

    @property
    def stats(self) -> dict[str, Any]:
        """Start time, peak, and the numbers of events and alerts."""
        seen = None if self._tracker is None else self._tracker.statistics()
        return {
            "tracking_start_time": seen and seen["tracking_start_time"],
            "peak_memory": (seen and seen["peak_memory"]) or 0,
            "total_events": seen["sample_count"] if seen else 0,
            "alert_count": seen["alert_count"] if seen else 0,
        }

    def get_statistics(self) -> dict[str, Any]:
        """Peak and current memory, counts and duration; a peak of 0 means that nothing was sampled yet."""
        seen = self._ensure().statistics()
        sample = self._ensure().sample_now().sample
        session = self.get_session_summary() if seen["tracking_start_time"] is not None else None
        started = seen["tracking_start_time"]
        return {
            "mode": "cpu",
            "total_events": seen["retained_events"],
            "peak_memory": seen["peak_memory"] or 0,
            "current_memory_allocated": sample.allocated if sample else None,
            "tracking_duration_seconds": 0.0 if started is None else time.time() - started,
            "history_window_limit_events": self.max_events,
            "history_retained_events": seen["retained_events"],
            "history_dropped_events": seen["dropped_events"],
            **{key: seen[key] for key in SINK_KEYS},
            "session_id": session.session_id if session else None,
            "session_status": session.status if session else None,
            "alert_count": seen["alert_count"],
            "memory_limit": seen["total_bytes"],
            "seconds_to_limit": seen["seconds_to_limit"],
            "oom_flight_recorder_enabled": self._recorder_config.enabled,
            "last_oom_dump_path": self.last_oom_dump_path,
        }

    def get_memory_timeline(self, interval: float = 1.0) -> dict[str, list[float]]:
        """Memory over time: what held at the end of each interval, none left out."""
        times, columns = self._timeline(interval)
        allocated, reserved = ([float(value or 0) for value in column] for column in columns[:2])
        return {"timestamps": times, "allocated": allocated, "reserved": reserved}

    def export_events_with_timestamp(self, directory: str | os.PathLike[str], format: str) -> str:
        """Write the events to a file named after the time; its path."""
        stamp = datetime.now().strftime("%Y%m%d_%H%M%S")
        path = str(Path(directory) / f"cpu_tracker_{stamp}.{format}")
        self.export_events(path, format=format)
        return path

    def _capabilities(self) -> dict[str, Any]:
        return self._collector.capabilities().to_metadata()
