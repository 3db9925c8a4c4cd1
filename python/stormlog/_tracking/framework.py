"""The trackers of frameworks that are sampled by a collector, with results as 0.4.3 has them.

Private. Sampling, sinks, sessions, forecasts and OOM bundles are of `base`, alerts of `threshold_alerts`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from stormlog import _native
from stormlog._tracking.base import HEALTH_KEYS, SINK_KEYS
from stormlog._tracking.event import TrackingEvent
from stormlog._tracking.reading import reading_of
from stormlog._tracking.threshold_alerts import MIB, AlertingTracker
from stormlog.device_collectors import DeviceMemoryCapabilities, DeviceMemoryCollector
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig
from stormlog.telemetry import telemetry_event_from_record, telemetry_event_to_dict
from stormlog.telemetry_sink import TelemetrySinkConfig

_TRANSITIONS = ["collector_degraded", "collector_recovered"]
# The field of an event and the key of its telemetry record.
_COUNTERS = (
    ("memory_allocated", "allocator_allocated_bytes"),
    ("memory_reserved", "allocator_reserved_bytes"),
    ("active_memory", "allocator_active_bytes"),
    ("inactive_memory", "allocator_inactive_bytes"),
    ("device_used", "device_used_bytes"),
    ("device_free", "device_free_bytes"),
    ("device_total", "device_total_bytes"),
)


class Sums:
    """The readings of one session, summed up. The sampling thread adds, others read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count, self.total = 0, 0
        self.lowest: int | None = None
        self.highest = 0
        self.last: int | None = None

    def add(self, held: int | None) -> None:
        """A reading; None is one that failed."""
        with self._lock:
            self.last = held
            if held is not None:
                self.count += 1
                self.total += held
                self.lowest = held if self.lowest is None else min(self.lowest, held)
                self.highest = max(self.highest, held)

    @property
    def average(self) -> float:
        """The mean of all readings; 0 where there was none."""
        return self.total / self.count if self.count else 0.0


class FrameworkTracker(AlertingTracker):
    """Tracks one device by a collector, in the manner of 0.4.3's framework trackers."""

    def __init__(
        self,
        collector: DeviceMemoryCollector,
        *,
        sampling_interval: float,
        alert_threshold_mb: float | None,
        enable_logging: bool,
        max_history: int,
        recorder: OOMFlightRecorderConfig,
        identity: tuple[str | None, int | None, int | None, int | None],
        telemetry_sink_config: TelemetrySinkConfig | None,
        recording_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            alert_threshold_mb=alert_threshold_mb,
            enable_logging=enable_logging,
            max_history=max_history,
            sampling_interval=sampling_interval,
            max_events=max_history,
            enable_alerts=True,
            recorder=recorder,
            identity=identity,
            telemetry_sink_config=telemetry_sink_config,
            recording_dir=recording_dir,
        )
        self.collector = collector
        self.backend = collector.name()
        given: DeviceMemoryCapabilities | Mapping[str, Any] = collector.capabilities()
        self.collector_capabilities = (
            given
            if isinstance(given, DeviceMemoryCapabilities)
            else DeviceMemoryCapabilities.from_mapping(given)
        )
        self._collector_name = self.collector_capabilities.telemetry_collector
        self._sums = Sums()
        self._began: float | None = None
        self._ended: float | None = None

    def start_tracking(self) -> None:
        """Start a session; the first sample is taken at once. One that runs continues."""
        if self.is_tracking:
            return
        self._sums = Sums()
        self._began, self._ended = time.time(), None
        super().start_tracking()

    def get_current_memory(self) -> float:
        """Megabytes now; the last that were known where they cannot be read, 0.0 where none ever were."""
        sample = reading_of(self.collector, self.collector_capabilities).sample
        held = self._sums.last if sample is None else _held(sample)
        return (held or 0) / MIB

    # What a session came to

    def get_statistics(self) -> dict[str, Any]:
        """The session in numbers, with the health of its readings and of its sink."""
        seen = self._ensure().statistics()
        session = self.get_session_summary() if self._began is not None else None
        sums = self._sums
        return {
            "current_memory_mb": None if sums.last is None else sums.last / MIB,
            "peak_memory_mb": sums.highest / MIB,
            "average_memory_mb": sums.average / MIB,
            "min_memory_mb": (sums.lowest or 0) / MIB,
            "collector_failure_event_count": len(self._events(_TRANSITIONS, None, None)),
            "total_events": seen["retained_events"],
            "tracking_duration_seconds": (
                0.0 if self._began is None else (self._ended or time.time()) - self._began
            ),
            **self._history(seen),
            **{key: seen[key] for key in SINK_KEYS},
            "session_id": session.session_id if session else None,
            "session_status": session.status if session else None,
            **{key: seen[key] for key in HEALTH_KEYS},
            "seconds_to_limit": seen["seconds_to_limit"],
            "oom_flight_recorder_enabled": self._recorder_config.enabled,
            "last_oom_dump_path": self.last_oom_dump_path,
        }

    def _history(self, seen: dict[str, Any]) -> dict[str, int]:
        """What is left of the session and what was dropped, under the names results have."""
        samples = len(self._events(["sample"], None, None))
        return {
            "history_window_limit": self.max_history,
            "history_retained_samples": samples,
            "history_dropped_samples": max(self._sums.count - samples, 0),
            "history_retained_events": seen["retained_events"],
            "history_dropped_events": seen["dropped_events"],
            "history_retained_alerts": len(self._alerts),
            "history_dropped_alerts": self._alert_count - len(self._alerts),
        }

    def _samples(self) -> tuple[list[float], list[int]]:
        """When the samples that are left were taken, and their bytes."""
        rows = self._events(["sample"], None, None)
        known = [(row.timestamp, row.memory_allocated) for row in rows if row.memory_allocated is not None]
        return [at for at, _ in known], [held for _, held in known]

    def _records(self) -> list[dict[str, Any]]:
        """The events that are left, as telemetry records."""
        session = self.get_session_summary()
        return [] if session is None else [self._record(event, session) for event in self.get_events()]

    def _record(self, event: TrackingEvent, session: Any) -> dict[str, Any]:
        interval_ms = round(self.sampling_interval * 1000)
        found = telemetry_event_from_record(
            {
                "session_id": session.session_id,
                "timestamp": event.timestamp,
                "event_type": event.event_type,
                "device_id": event.device_id,
                "context": event.context,
                "metadata": dict(event.metadata or {}),
                "collector": self._collector_name,
                "sampling_interval_ms": interval_ms,
                "pid": session.pid,
                "host": session.host,
                **{key: getattr(event, field) for field, key in _COUNTERS},
                **self.distributed_identity,
            },
            default_collector=self._collector_name,
            default_sampling_interval_ms=interval_ms,
            default_session_id=session.session_id,
        )
        return telemetry_event_to_dict(found)

    # For the base

    def _read(self) -> Callable[[], _native.tracking.Reading] | None:
        collector, capabilities, me = self.collector, self.collector_capabilities, weakref.ref(self)

        def read() -> _native.tracking.Reading:
            reading = reading_of(collector, capabilities)
            # The native side must not keep a tracker alive.
            tracker = me()
            if tracker is not None:
                tracker._sums.add(None if reading.sample is None else _held(reading.sample))
            return reading

        return read

    def _capabilities(self) -> dict[str, Any]:
        return self.collector_capabilities.to_metadata()

    def _metadata(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "sampling_source": self.collector_capabilities.sampling_source,
            "memory_capabilities": self._capabilities(),
        }


def _held(sample: _native.tracking.Sample) -> int | None:
    return sample.allocated if sample.allocated is not None else sample.used
