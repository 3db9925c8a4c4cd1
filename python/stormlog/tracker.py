"""Real-time tracking of device memory, with alerts, phases and OOM bundles; without a GPU, of this process.

The sampling thread is native. A collector written in Python is asked under the interpreter's lock, the host
is not.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._torch.cuda_tensors import build_cuda_tensor_attribution_index
from stormlog._tracking.base import HEALTH_KEYS, SINK_KEYS
from stormlog._tracking.collected import COUNTED, CollectedTracker
from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.failure import Holder, largest_tensors
from stormlog._tracking.reading import reading_of
from stormlog._tracking.watchdog import MemoryWatchdog
from stormlog.device_collectors import (
    CPUDeviceCollector,
    DeviceMemoryCollector,
    build_device_memory_collector,
    detect_torch_runtime_backend,
)
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.telemetry_sink import TelemetrySinkConfig

if TYPE_CHECKING:
    from stormlog._torch.history import NativeHistory

__all__ = ["MemoryTracker", "MemoryWatchdog", "TrackingEvent"]

_LOGGER = logging.getLogger(__name__)


class MemoryTracker(CollectedTracker):
    """Tracks a device, a collector of your own, or (with no GPU) the resident memory of this process.

    Samples every `sampling_interval` seconds in a native thread and keeps the last `max_events` events.

    - `device`: a number, a name such as `"cuda:1"`, or a `torch.device`; None is the current one. `collector`
      is an object that samples instead.
    - `enable_alerts`: whether thresholds and forecasts make events; `set_threshold` changes a threshold.
    - `enable_oom_flight_recorder`: whether `capture_oom` and `handle_exception` write a bundle into
      `oom_dump_dir`, with the last `oom_buffer_size` events; at most `oom_max_dumps` bundles and
      `oom_max_total_mb` MB are kept.
    - `job_id`, `rank`, `local_rank`, `world_size`: where they are None, the launcher's variables are read.
    - `enable_native_cuda_history`: PyTorch's allocator history in bundles, at most
      `native_history_max_entries` entries.
    - `telemetry_sink_config`: also writes every event to a sink. `recording_dir`: also records into a
      directory that survives SIGKILL.
    """

    def __init__(
        self,
        device: Any = None,
        sampling_interval: float = 0.1,
        max_events: int = 10000,
        enable_alerts: bool = True,
        enable_oom_flight_recorder: bool = False,
        oom_dump_dir: str = "oom_dumps",
        oom_buffer_size: int | None = None,
        oom_max_dumps: int = 5,
        oom_max_total_mb: int = 256,
        job_id: str | None = None,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        enable_native_cuda_history: bool = False,
        native_history_max_entries: int = 100_000,
        telemetry_sink_config: TelemetrySinkConfig | None = None,
        collector: DeviceMemoryCollector | None = None,
        *,
        recording_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            sampling_interval=sampling_interval,
            max_events=max_events,
            enable_alerts=enable_alerts,
            recorder=OOMFlightRecorderConfig.of_tracker(
                enable_oom_flight_recorder,
                oom_dump_dir,
                oom_buffer_size,
                oom_max_dumps,
                oom_max_total_mb,
                history=max_events,
            ),
            identity=(job_id, rank, local_rank, world_size),
            telemetry_sink_config=telemetry_sink_config,
            recording_dir=recording_dir,
        )
        if native_history_max_entries <= 0:
            raise ValueError("native_history_max_entries must be >= 1")
        if collector is not None and device is not None:
            raise ValueError("device and collector cannot be provided together")
        self.enable_native_cuda_history = enable_native_cuda_history
        self.native_history_max_entries = native_history_max_entries
        self._collect_from(collector or _collector_of(device))
        self.device: Any = getattr(self.collector, "device", None) if collector is None else None
        if enable_native_cuda_history and not self.collector_capabilities.supports_native_allocator_history:
            raise ValueError(f"native allocator history is unavailable for backend {self.backend!r}")
        self._history: NativeHistory | None = None
        if enable_native_cuda_history:
            # Here, for a tracker without it need not pay for the import.
            from stormlog._torch.history import NativeHistory

            self._history = NativeHistory(self.device, native_history_max_entries)
        self.gpu_info = _gpu_info(self.device)
        self._initial_total = self._first_total()

    def start_tracking(self) -> None:
        """Start a new session: the first sample is taken before this returns."""
        super().start_tracking()
        if self._history is not None:
            self._history.start()

    def stop_tracking(self) -> None:
        """Stop sampling and end the session."""
        try:
            super().stop_tracking()
        finally:
            if self._history is not None:
                self._history.stop()

    @contextmanager
    def capture_oom(self, context: str = "runtime", metadata: dict[str, Any] | None = None) -> Iterator[None]:
        """Write a bundle if the block raises an out-of-memory error; the exception is raised again."""
        # Without a session the history of the block is better than none.
        history = None if self._history is None or self._history.is_on else self._history
        if history is not None:
            history.start()
        try:
            with super().capture_oom(context, metadata):
                yield
        finally:
            if history is not None:
                history.stop()

    @property
    def total_memory(self) -> int:
        """The size of the device; 0 when it is not known."""
        return self._total_memory() or self._initial_total or 0

    def get_statistics(self) -> dict[str, Any]:
        """Peaks, current memory, counts, limits and the collector's health, in bytes; None is unknown."""
        seen = self._ensure().statistics()
        has_allocator = self.collector_capabilities.supports_allocator_allocated
        started = seen["tracking_start_time"]
        session = self.get_session_summary() if started is not None else None
        sample = seen["last_sample"] or _native.tracking.Sample(self._device_id())
        total, used = self.total_memory, sample.used
        counted = self._counted(seen)
        statistics = {
            **counted,
            "total_events": seen["retained_events"],
            "events_last_hour": self._ensure().count_since(time.time() - 3600),
            "history_window_limit_events": self.max_events,
            "history_retained_events": seen["retained_events"],
            "history_dropped_events": seen["dropped_events"],
            "backend": self.backend,
            "oom_flight_recorder_enabled": self._recorder_config.enabled,
            "last_oom_dump_path": self.last_oom_dump_path,
            "session_id": session.session_id if session else None,
            "session_status": session.status if session else None,
            "current_memory_allocated": sample.allocated,
            "current_memory_reserved": sample.reserved,
            "current_device_used": used,
            "current_device_free": sample.free,
            "device_total": sample.total,
            "memory_utilization_percent": used / total * 100 if used is not None and total else None,
            "seconds_to_limit": seen["seconds_to_limit"],
            "memory_capabilities": self._capabilities(),
            "average_allocation_size": counted["total_allocation_bytes"]
            / max(counted["total_allocations"], 1),
            "average_deallocation_size": (
                counted["total_deallocation_bytes"] / max(counted["total_deallocations"], 1)
            ),
            **{key: seen[key] for key in HEALTH_KEYS},
            **{key: seen[key] for key in SINK_KEYS},
        }
        if started is not None:
            duration = time.time() - started
            statistics["tracking_duration_seconds"] = duration
            statistics["allocations_per_second"] = counted["total_allocations"] / max(duration, 1)
            statistics["bytes_allocated_per_second"] = counted["total_allocation_bytes"] / max(duration, 1)
        if not has_allocator:
            unknown = ("peak_memory", *COUNTED, "average_allocation_size", "average_deallocation_size")
            rates = ("allocations_per_second", "bytes_allocated_per_second")
            statistics.update(dict.fromkeys((*unknown, *rates)))
        return statistics

    def _first_total(self) -> int | None:
        sample = reading_of(self.collector, self.collector_capabilities).sample
        total = None if sample is None else sample.total
        return total if total is not None else self.gpu_info.get("total_memory")

    def _known_total(self) -> int | None:
        return None if self._read() is None else self._initial_total

    def _holders(self, exc: BaseException) -> list[Holder]:
        if self.backend not in {"cuda", "rocm"} or "torch" not in sys.modules:
            return super()._holders(exc)
        try:
            return largest_tensors(build_cuda_tensor_attribution_index(self._device_id(), skip_gc=True))
        except Exception as error:
            _LOGGER.warning("The tensors could not be read for the OOM bundle: %s", error)
            return []

    def _add_evidence(self, bundle: Path) -> None:
        if self._history is not None and self._history.is_on:
            self._history.add_to(bundle)
            config = self._recorder_config
            _native.oom.prune_bundles(config.dump_dir, bundle, config.max_dumps, config.max_total_mb)

    def _metadata(self) -> dict[str, Any]:
        capabilities = self.collector_capabilities
        asked = getattr(self.collector, "device_uuid", None)
        uuid = None if asked is None else asked()
        return {
            "backend": self.backend,
            "supports_device_total": capabilities.supports_device_total,
            "supports_device_free": capabilities.supports_device_free,
            "sampling_source": capabilities.sampling_source,
            "memory_capabilities": capabilities.to_metadata(),
            # By it a device is known whose number is another one outside (CUDA_VISIBLE_DEVICES).
            **({} if uuid is None else {"device_uuid": uuid}),
        }

    def _device_id(self) -> int:
        return -1 if self.backend == "cpu" else int(getattr(self.device, "index", None) or 0)


def _collector_of(device: Any) -> DeviceMemoryCollector:
    """The collector for a device; a GPU's number on a machine without any means the host instead."""
    if isinstance(device, int) and detect_torch_runtime_backend() == "cpu":
        _LOGGER.warning("There is no GPU %s here: tracking the memory of this process instead", device)
        return CPUDeviceCollector()
    collector = build_device_memory_collector(device)
    if not collector.is_available():
        raise RuntimeError(f"{collector.name().upper()} backend is not available in this runtime")
    return collector


def _gpu_info(device: Any) -> dict[str, Any]:
    if device is None or getattr(device, "type", None) != "cuda":
        return {}
    from stormlog.utils import get_gpu_info

    return get_gpu_info(device)
