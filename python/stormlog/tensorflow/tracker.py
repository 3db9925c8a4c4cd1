"""The memory of a TensorFlow program over time: samples, alerts, phases, OOM bundles, durable telemetry.

Everything `stormlog.MemoryTracker` does, over the same native tracker, under the names of 0.4.3: sizes are
megabytes, events and alerts are dictionaries. A GPU that cannot be asked is a state that is reported, and it
is asked again after a while; what goes wrong with the telemetry never reaches the program.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.failure import Holder, device_holders
from stormlog._tracking.framework import FrameworkTracker
from stormlog.device_collectors import CPUDeviceCollector
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.telemetry_sink import TelemetrySinkConfig
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._collector import COLLECTOR_NAME, TensorFlowCollector
from stormlog.tensorflow._watchdog import MemoryWatchdog

__all__ = ["MemoryTracker", "MemoryWatchdog", "TrackingResult"]


@dataclass
class TrackingResult:
    """The result of a tracker: the newest samples, events and alerts up to a limit, and totals over all."""

    start_time: float
    end_time: float
    memory_usage: list[float] = field(default_factory=list)
    timestamps: list[float] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    alerts_triggered: list[dict[str, Any]] = field(default_factory=list)
    peak_memory: float = 0.0
    average_memory: float = 0.0
    min_memory: float = float("inf")
    history_window_limit: int = 0
    history_retained_samples: int = 0
    history_dropped_samples: int = 0
    history_retained_events: int = 0
    history_dropped_events: int = 0
    history_retained_alerts: int = 0
    history_dropped_alerts: int = 0

    @property
    def duration(self) -> float:
        """The length of the tracked time, in seconds."""
        return self.end_time - self.start_time

    @property
    def memory_growth_rate(self) -> float:
        """Megabytes a second from the first sample that is left to the last."""
        if len(self.memory_usage) < 2 or self.duration <= 0:
            return 0.0
        return (self.memory_usage[-1] - self.memory_usage[0]) / self.duration


class MemoryTracker(FrameworkTracker):
    """Samples a GPU, or this process on the CPU, in the background. ImportError without TensorFlow."""

    session_source = "stormlog.tensorflow.tracker"
    _logger = logging.getLogger("stormlog.tensorflow")
    _events_per_sample = 4

    def __init__(
        self,
        sampling_interval: float = 1.0,
        alert_threshold_mb: float | None = None,
        device: str | None = None,
        enable_logging: bool = True,
        max_history: int = 10_000,
        job_id: str | None = None,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        telemetry_sink_config: TelemetrySinkConfig | None = None,
        *,
        enable_alerts: bool = True,
        enable_oom_flight_recorder: bool = False,
        oom_dump_dir: str = "oom_dumps",
        oom_buffer_size: int | None = None,
        oom_max_dumps: int = 5,
        oom_max_total_mb: int = 256,
        recording_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        tf = _runtime.tensorflow()
        place = device or ("/GPU:0" if _runtime.gpus(tf) else "/CPU:0")
        self._gpu = TensorFlowCollector(tf, place) if _runtime.is_gpu(place) else None
        super().__init__(
            self._gpu or CPUDeviceCollector(),
            alert_threshold_mb=alert_threshold_mb,
            enable_logging=enable_logging,
            max_history=max_history,
            sampling_interval=sampling_interval,
            enable_alerts=enable_alerts,
            recorder=OOMFlightRecorderConfig.of_tracker(
                enable_oom_flight_recorder,
                oom_dump_dir,
                oom_buffer_size,
                oom_max_dumps,
                oom_max_total_mb,
                history=max_history,
            ),
            identity=(job_id, rank, local_rank, world_size),
            telemetry_sink_config=telemetry_sink_config,
            recording_dir=recording_dir,
        )
        self.device = place
        # Also of the host: it is the tracker that is named.
        self._collector_name = COLLECTOR_NAME

    @property
    def memory_usage(self) -> list[float]:
        """The stored samples, in megabytes."""
        return [held / _runtime.MIB for _, held in self._samples()]

    @property
    def timestamps(self) -> list[float]:
        """The times of the samples, in seconds since the epoch."""
        return [at for at, _ in self._samples()]

    @property
    def events(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The events that are left, as telemetry records; `get_events` has them as objects."""
        return self._records()

    def stop_tracking(self) -> TrackingResult:  # type: ignore[override]
        """Ends the session; an empty result where none was begun."""
        if not self.is_tracking:
            now = time.time()
            return TrackingResult(now, now, min_memory=0.0, history_window_limit=self.max_history)
        super().stop_tracking()
        return self.get_tracking_results()

    def get_tracking_results(self) -> TrackingResult:
        """The samples and alerts up to now, as one object."""
        samples = self._samples()
        statistics = self.get_statistics()
        began = self._began or time.time()
        counts = {name: value for name, value in statistics.items() if name.startswith("history_")}
        return TrackingResult(
            start_time=began,
            end_time=self._ended or (samples[-1][0] if samples else began),
            memory_usage=[held / _runtime.MIB for _, held in samples],
            timestamps=[at for at, _ in samples],
            events=self.events,
            alerts_triggered=self.alerts,
            peak_memory=statistics["peak_memory_mb"],
            average_memory=statistics["average_memory_mb"],
            min_memory=statistics["min_memory_mb"],
            **counts,
        )

    def _is_alert(self, kind: str, event: TrackingEvent) -> bool:
        # A large step between two samples is an event; as an alert it would come with every model loaded.
        return kind.startswith(("usage_", "forecast_")) or event.event_type == "error"

    def _device_id(self) -> int:
        return -1 if self._gpu is None else self._gpu.device_id

    def _holders(self, exc: BaseException) -> list[Holder]:
        """The largest variables of the frames: on a GPU those whose tensors are there."""
        return super()._holders(exc) if self._is_host else device_holders(exc, "GPU")
