"""The memory of a JAX device over time: samples, alerts, phases, OOM bundles, and telemetry that outlives it.

Sizes of results are bytes, of alerts megabytes, as 0.4.3 has them. A device without counters (the CPU) has no
samples: its memory is unknown, and the results give the reason.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._jax import profiles, runtime
from stormlog._jax.collector import SOURCE, JaxDeviceCollector
from stormlog._jax.results import SizedResult
from stormlog._jax.tracker import DeviceTracker
from stormlog.jax._watchdog import MemoryWatchdog
from stormlog.jax.utils import get_device_memory_capability, resolve_jax_device
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.session import SessionSummary
from stormlog.telemetry_sink import TelemetrySinkConfig

__all__ = ["JAXMemoryTracker", "MemoryTracker", "MemoryWatchdog", "TrackingResult"]

_LOGGER = logging.getLogger("stormlog.jax")


@dataclass
class TrackingResult(SizedResult):
    """A session summed up: the samples and events that are left, and sums over all."""

    start_time: float
    end_time: float
    samples_collected: int
    peak_memory_bytes: int
    min_memory_bytes: int
    average_memory_bytes: int
    alert_count: int
    session_summary: SessionSummary | None = None
    telemetry_events: list[dict[str, Any]] = field(default_factory=list)
    memory_usage: list[int] = field(default_factory=list)
    timestamps: list[float] = field(default_factory=list)
    device_memory_profile_path: str | None = None
    device_memory_available: bool = False
    memory_source: str = "unavailable"
    device_memory_unavailable_reason: str | None = None
    process_memory_bytes: int | None = None
    history_window_limit: int = 0
    history_retained_samples: int = 0
    history_dropped_samples: int = 0
    history_retained_events: int = 0
    history_dropped_events: int = 0
    history_retained_alerts: int = 0
    history_dropped_alerts: int = 0


class MemoryTracker(DeviceTracker):
    """Samples one device in the background. ImportError without JAX."""

    def __init__(
        self,
        sampling_interval: float = 1.0,
        alert_threshold_mb: float | None = None,
        device_index: int | str = 0,
        enable_logging: bool = True,
        max_history: int = 10_000,
        job_id: str | None = None,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        telemetry_sink_config: TelemetrySinkConfig | None = None,
        save_device_profile_on_stop: bool = False,
        enable_oom_flight_recorder: bool = False,
        oom_dump_dir: str = "oom_dumps",
        oom_buffer_size: int | None = None,
        oom_max_dumps: int = 5,
        oom_max_total_mb: int = 256,
        *,
        enable_alerts: bool = True,
        recording_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        device, number = resolve_jax_device(device_index)
        super().__init__(
            JaxDeviceCollector(device),
            sampling_interval=sampling_interval,
            alert_threshold_mb=alert_threshold_mb,
            enable_logging=enable_logging,
            max_history=max_history,
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
            enable_alerts=enable_alerts,
            recording_dir=recording_dir,
        )
        self.device_index = number
        self.save_device_profile_on_stop = save_device_profile_on_stop
        self._device = device
        self._probe = _native.tracking.ProcessProbe()

    def stop_tracking(self) -> TrackingResult:  # type: ignore[override]
        """End the session; an empty result where none was begun."""
        if not self.is_tracking:
            return self._empty()
        super().stop_tracking()
        result = self.get_tracking_results()
        if self.save_device_profile_on_stop:
            result.device_memory_profile_path = self.save_device_memory_profile_to_dir()
        return result

    def get_tracking_results(self) -> TrackingResult:
        """The samples and alerts up to now, as one object."""
        if self._began is None:
            return self._empty()
        samples, seen = self._samples(), self._ensure().statistics()
        result = self._empty()
        result.samples_collected = seen["sample_count"]
        result.peak_memory_bytes = seen["peak_memory"] or 0
        result.min_memory_bytes = seen["lowest_memory"] or 0
        result.average_memory_bytes = int(seen["mean_memory"] or 0)
        result.alert_count = self._alert_count
        result.telemetry_events = self._records()
        result.timestamps, result.memory_usage = [at for at, _ in samples], [held for _, held in samples]
        for name, value in self._history(seen).items():
            setattr(result, name, value)
        return result

    def trigger_oom_dump(
        self, exception: BaseException, context: str | None = None, metadata: dict[str, Any] | None = None
    ) -> str | None:
        """Write a bundle now, if the exception means that memory ran out; its path."""
        return self.handle_exception(exception, context=context, metadata=metadata)

    def save_device_memory_profile(self, output_path: str) -> bool:
        """Write JAX's memory profile of this moment; False where that is not possible."""
        try:
            profiles.write(Path(output_path).absolute(), runtime.jax())
        except Exception as error:
            _LOGGER.error("JAX's memory profile could not be written to %s: %s", output_path, error)
            return False
        return True

    def save_device_memory_profile_to_dir(self, output_dir: str | None = None) -> str | None:
        """The same under a name with the time, in a directory; the path."""
        folder = Path(output_dir or ".").absolute()
        _native.files.create_directory(folder)
        path = folder / f"jax-device-memory-{int(time.time())}.prof"
        return str(path) if self.save_device_memory_profile(str(path)) else None

    def _empty(self) -> TrackingResult:
        capability = get_device_memory_capability(self._device)
        is_known = bool(capability["memory_stats_available"])
        began = self._began or time.time()
        return TrackingResult(
            start_time=began,
            end_time=self._ended or (began if self._began is None else time.time()),
            samples_collected=0,
            peak_memory_bytes=0,
            min_memory_bytes=0,
            average_memory_bytes=0,
            alert_count=0,
            session_summary=self.get_session_summary() if self._began is not None else None,
            device_memory_available=is_known,
            memory_source=SOURCE if is_known else "unavailable",
            device_memory_unavailable_reason=capability["memory_stats_error"],
            process_memory_bytes=self._probe.memory()[0],
            history_window_limit=self.max_history,
        )

    def _metadata(self) -> dict[str, Any]:
        return {**super()._metadata(), "device": str(self._device)}

    def _device_id(self) -> int:
        return self.device_index


JAXMemoryTracker = MemoryTracker
