"""The memory of a TensorFlow program over time: samples, alerts, phases, OOM bundles, durable telemetry.

Everything `stormlog.MemoryTracker` does, over the same native tracker, under the names of 0.4.3: sizes are
megabytes, events and alerts are dictionaries. A GPU that cannot be asked is a state that is reported, and it
is asked again after a while; what goes wrong with the telemetry never reaches the program.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stormlog import _native
from stormlog._tracking.base import HEALTH_KEYS, SINK_KEYS
from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.reading import reading_of
from stormlog._tracking.threshold_alerts import AlertingTracker, megabytes
from stormlog.device_collectors import CPUDeviceCollector, DeviceMemoryCapabilities
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.telemetry_sink import TelemetrySinkConfig
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._collector import COLLECTOR_NAME, TensorFlowCollector
from stormlog.tensorflow._watchdog import MemoryWatchdog

__all__ = ["MemoryTracker", "MemoryWatchdog", "TrackingResult"]

# A sample may come with a peak, a change and an alert: this many events are kept for each.
_EVENTS_PER_SAMPLE = 4
_TRANSITIONS = ("collector_degraded", "collector_recovered")


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


class MemoryTracker(AlertingTracker):
    """Samples a GPU, or this process on the CPU, in the background. ImportError without TensorFlow."""

    session_source = "stormlog.tensorflow.tracker"
    _collector_name = COLLECTOR_NAME
    _logger = logging.getLogger("stormlog.tensorflow")

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
        super().__init__(
            alert_threshold_mb=alert_threshold_mb,
            enable_logging=enable_logging,
            max_history=max_history,
            sampling_interval=sampling_interval,
            max_events=max_history * _EVENTS_PER_SAMPLE,
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
        self.device = device or ("/GPU:0" if _runtime.gpus(tf) else "/CPU:0")
        self._last_mb = 0.0
        self._ended: float | None = None
        self._gpu = TensorFlowCollector(tf, self.device) if _runtime.is_gpu(self.device) else None
        self._abilities: DeviceMemoryCapabilities = (self._gpu or CPUDeviceCollector()).capabilities()
        self.backend = self._abilities.backend

    @property
    def memory_usage(self) -> list[float]:
        """The stored samples, in megabytes."""
        return [held for _, held in self._samples()]

    @property
    def timestamps(self) -> list[float]:
        """The times of the samples, in seconds since the epoch."""
        return [at for at, _ in self._samples()]

    @property
    def events(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The events that are left, as telemetry records; `get_events` has them as objects."""
        return [] if self._tracker is None else self._tracker.records(self.max_history)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The stored alerts, oldest first."""
        return list(self._alerts)

    @property
    def forecast_seconds(self) -> float | None:
        """Seconds until memory reaches its limit, where that is near and sure enough for an alert."""
        left: float | None = None if self._tracker is None else self._tracker.statistics()["forecast_seconds"]
        return left

    def start_tracking(self) -> None:
        """Begins a session; the first sample is taken at once. One that runs continues."""
        if self.is_tracking:
            return
        self._ended = None
        super().start_tracking()

    def stop_tracking(self) -> TrackingResult:  # type: ignore[override]
        """Ends the session; an empty result where none was begun."""
        if not self.is_tracking:
            now = time.time()
            return TrackingResult(now, now, min_memory=0.0, history_window_limit=self.max_history)
        super().stop_tracking()
        self._ended = time.time()
        return self.get_tracking_results()

    def get_tracking_results(self) -> TrackingResult:
        """The samples and alerts up to now, as one object."""
        samples = self._samples()
        statistics = self.get_statistics()
        seen = None if self._tracker is None else self._tracker.statistics()
        began = (seen and seen["tracking_start_time"]) or time.time()
        counts = {name: value for name, value in statistics.items() if name.startswith("history_")}
        return TrackingResult(
            start_time=began,
            end_time=self._ended or (samples[-1][0] if samples else began),
            memory_usage=[held for _, held in samples],
            timestamps=[at for at, _ in samples],
            events=self.events,
            alerts_triggered=self.alerts,
            peak_memory=statistics["peak_memory_mb"],
            average_memory=statistics["average_memory_mb"],
            min_memory=statistics["min_memory_mb"],
            **counts,
        )

    def get_current_memory(self) -> float:
        """Megabytes now; the last that were known where it cannot be read."""
        sample = self._ensure().sample_now().sample
        if sample is not None and sample.allocated is not None:
            self._last_mb = sample.allocated / _runtime.MIB
        return self._last_mb

    def get_statistics(self) -> dict[str, Any]:
        """The session in numbers, with the health of its readings and of its sink."""
        seen = self._ensure().statistics()
        began = seen["tracking_start_time"]
        session = self.get_session_summary() if began is not None else None
        sample = seen["last_sample"]
        kept_samples = min(seen["sample_count"], self.max_history, len(self._samples()))
        kept_events = min(seen["retained_events"], self.max_history)
        return {
            "current_memory_mb": None if sample is None else megabytes(sample.allocated),
            "peak_memory_mb": megabytes(seen["peak_memory"]) or 0.0,
            "average_memory_mb": megabytes(seen["mean_memory"]) or 0.0,
            "min_memory_mb": megabytes(seen["lowest_memory"]) or 0.0,
            "collector_failure_event_count": len(self._events(list(_TRANSITIONS), None, None)),
            "total_events": kept_events,
            "tracking_duration_seconds": 0.0 if began is None else (self._ended or time.time()) - began,
            "history_window_limit": self.max_history,
            "history_retained_samples": kept_samples,
            "history_retained_events": kept_events,
            "history_retained_alerts": len(self._alerts),
            "history_dropped_samples": seen["sample_count"] - kept_samples,
            "history_dropped_events": seen["retained_events"] + seen["dropped_events"] - kept_events,
            "history_dropped_alerts": self._alert_count - len(self._alerts),
            **{key: seen[key] for key in SINK_KEYS},
            "session_id": session.session_id if session else None,
            "session_status": session.status if session else None,
            "alert_count": seen["alert_count"],
            "memory_limit": seen["total_bytes"],
            "seconds_to_limit": seen["seconds_to_limit"],
            "oom_flight_recorder_enabled": self._recorder_config.enabled,
            "last_oom_dump_path": self.last_oom_dump_path,
            **{key: seen[key] for key in HEALTH_KEYS},
        }

    def _samples(self) -> list[tuple[float, float]]:
        found = self._events(["sample"], self.max_history, None)
        return [
            (event.timestamp, event.memory_allocated / _runtime.MIB)
            for event in found
            if event.memory_allocated is not None
        ]

    def _read(self) -> Callable[[], _native.tracking.Reading] | None:
        collector, abilities = self._gpu, self._abilities
        # The host is sampled natively, with the limits that hold here.
        return None if collector is None else lambda: reading_of(collector, abilities)

    def _is_alert(self, kind: str, event: TrackingEvent) -> bool:
        # A large step between two samples is an event; as an alert it would come with every model loaded.
        return kind.startswith(("usage_", "forecast_")) or event.event_type == "error"

    def _capabilities(self) -> dict[str, Any]:
        return self._abilities.to_metadata()

    def _device_id(self) -> int:
        return -1 if self._gpu is None else self._gpu.device_id
