"""What the trackers of TensorFlow and JAX share: a session in numbers, as 0.4.3's have it.

Private. Sampling, sinks, sessions, forecasts and OOM bundles are of `base`, alerts of `threshold_alerts`; the
numbers are the native tracker's. Sizes of statistics are megabytes.
"""

from __future__ import annotations

import time
from typing import Any

from stormlog._tracking.base import HEALTH_KEYS, SINK_KEYS
from stormlog._tracking.reading import reading_of
from stormlog._tracking.threshold_alerts import AlertingTracker, megabytes
from stormlog.device_collectors import DeviceMemoryCollector

_TRANSITIONS = ["collector_degraded", "collector_recovered"]


class FrameworkTracker(AlertingTracker):
    """Tracks one device by a collector, in the manner of 0.4.3's framework trackers."""

    # Events that are kept for each sample: it may come with a peak, a change and an alert.
    _events_per_sample = 1

    def __init__(self, collector: DeviceMemoryCollector, *, max_history: int, **options: Any) -> None:
        events = max_history * self._events_per_sample
        super().__init__(max_history=max_history, max_events=events, **options)
        self._collect_from(collector)
        self._last_mb = 0.0
        self._ended: float | None = None

    @property
    def forecast_seconds(self) -> float | None:
        """Seconds until memory reaches its limit, where that is near and sure enough for an alert."""
        left: float | None = None if self._tracker is None else self._tracker.statistics()["forecast_seconds"]
        return left

    def start_tracking(self) -> None:
        """Start a session; the first sample is taken at once. One that runs continues."""
        if not self.is_tracking:
            self._ended = None
            super().start_tracking()

    def stop_tracking(self) -> None:
        """End the session."""
        if self.is_tracking:
            super().stop_tracking()
            self._ended = time.time()

    def get_current_memory(self) -> float:
        """Megabytes now; the last that were known where they cannot be read, 0.0 where none ever were."""
        sample = reading_of(self.collector, self.collector_capabilities).sample
        if sample is not None and sample.allocated is not None:
            self._last_mb = megabytes(sample.allocated) or 0.0
        return self._last_mb

    def get_statistics(self) -> dict[str, Any]:
        """The session in numbers, with the health of its readings and of its sink."""
        seen = self._ensure().statistics()
        began = seen["tracking_start_time"]
        session = None if began is None else self.get_session_summary()
        sample = seen["last_sample"]
        return {
            "current_memory_mb": None if sample is None else megabytes(sample.allocated),
            "peak_memory_mb": megabytes(seen["peak_memory"]) or 0.0,
            "average_memory_mb": megabytes(seen["mean_memory"]) or 0.0,
            "min_memory_mb": megabytes(seen["lowest_memory"]) or 0.0,
            "collector_failure_event_count": len(self._events(_TRANSITIONS, None, None)),
            "total_events": min(seen["retained_events"], self.max_history),
            "tracking_duration_seconds": 0.0 if began is None else (self._ended or time.time()) - began,
            **self._history(seen),
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

    @property
    def _began(self) -> float | None:
        """When the session was started; None where none was."""
        began: float | None = (
            None if self._tracker is None else self._tracker.statistics()["tracking_start_time"]
        )
        return began

    def _history(self, seen: dict[str, Any]) -> dict[str, int]:
        """What is left of the session and what was dropped, under the names results have."""
        samples = len(self._samples())
        events = min(seen["retained_events"], self.max_history)
        return {
            "history_window_limit": self.max_history,
            "history_retained_samples": samples,
            "history_dropped_samples": max(seen["sample_count"] - samples, 0),
            "history_retained_events": events,
            "history_dropped_events": seen["retained_events"] + seen["dropped_events"] - events,
            "history_retained_alerts": len(self._alerts),
            "history_dropped_alerts": self._alert_count - len(self._alerts),
        }

    def _samples(self) -> list[tuple[float, int]]:
        """When the samples that are left were taken, and their bytes."""
        rows = self._events(["sample"], self.max_history, None)
        return [(row.timestamp, row.memory_allocated) for row in rows if row.memory_allocated is not None]

    def _records(self) -> list[dict[str, Any]]:
        """The events that are left, as telemetry records."""
        return [] if self._tracker is None else self._tracker.records(self.max_history)
