"""Alerts as 0.4.3's framework trackers have them: above a number of megabytes, handed out as dictionaries.

Private. The rule is native: one breach is one alert, which ends after memory stayed clearly below. The
program's callbacks get dictionaries; listeners of this package (`stormlog.MemoryWatchdog`) get every alert of
the session as an event.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stormlog._tracking.collected import CollectedTracker
from stormlog._tracking.event import TrackingEvent

MIB = 1024 * 1024
_RECENT_SECONDS = 10.0
_THRESHOLD = "usage_threshold"


class AlertingTracker(CollectedTracker):
    """A tracker with a threshold in megabytes."""

    _logger = logging.getLogger("stormlog.tracker")
    # 0.4.3's trackers of frameworks hand out dictionaries where the others have events.
    alert_callbacks: list[Callable[[dict[str, Any]], None]]  # type: ignore[assignment]

    def __init__(
        self, *, alert_threshold_mb: float | None, enable_logging: bool, max_history: int, **options: Any
    ) -> None:
        if max_history <= 0:
            raise ValueError("max_history must be >= 1")
        super().__init__(**options)
        self.enable_logging = enable_logging
        self.max_history = max_history
        self._alert_threshold_mb = alert_threshold_mb
        self._listeners: list[Callable[[TrackingEvent], None]] = []
        self._alerts: deque[dict[str, Any]] = deque(maxlen=max_history)
        self._alert_count = 0

    @property
    def tracking(self) -> bool:
        """Whether a session is sampling."""
        return self.is_tracking

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are left."""
        return list(self._alerts)

    @property
    def alert_threshold_mb(self) -> float | None:
        """Megabytes beyond which there is an alert; None where there is no such threshold."""
        return self._alert_threshold_mb

    @alert_threshold_mb.setter
    def alert_threshold_mb(self, threshold_mb: float | None) -> None:
        self._alert_threshold_mb = threshold_mb
        if self._tracker is not None:
            self._tracker.set_threshold("memory_threshold_bytes", _bytes_of(threshold_mb))

    def start_tracking(self) -> None:
        """Begins a session; the first sample is taken at once. One that runs continues."""
        if self.is_tracking:
            return
        self._alerts.clear()
        self._alert_count = 0
        super().start_tracking()

    def add_alert_callback(self, callback: Callable[[dict[str, Any]], None]) -> None:  # type: ignore[override]
        """Has a function called with every alert; what it raises is only logged."""
        self.alert_callbacks.append(callback)

    def set_alert_threshold(self, threshold_mb: float) -> None:
        """Alerts above `threshold_mb` megabytes."""
        self.alert_threshold_mb = threshold_mb

    def check_alerts(self) -> bool:
        """Whether an alert holds, or began in the last ten seconds."""
        now = time.time()
        ended: dict[str, float] = {}
        for event in self.get_events("recovered"):
            ended[str((event.metadata or {}).get("alert"))] = event.timestamp
        return any(
            now - alert["timestamp"] < _RECENT_SECONDS
            or (alert["alert"] != "error" and alert["timestamp"] > ended.get(alert["alert"], 0.0))
            for alert in list(self._alerts)
        )

    def _is_alert(self, kind: str, event: TrackingEvent) -> bool:
        """Whether the program's callbacks get it; the others are events of the session only."""
        return kind == _THRESHOLD

    def _add_listener(self, listener: Callable[[TrackingEvent], None]) -> None:
        self._listeners.append(listener)

    def _deliver(self, event: TrackingEvent) -> None:
        kind = str((event.metadata or {}).get("alert", event.event_type))
        if self._is_alert(kind, event):
            self._alert(kind, event)
        for listener in list(self._listeners):
            self._call(listener, event)
        if kind.startswith("forecast_"):
            for callback in list(self.prediction_callbacks):
                self._call(callback, event)

    def _alert(self, kind: str, event: TrackingEvent) -> None:
        alert = {
            "timestamp": event.timestamp,
            "memory_mb": megabytes(event.memory_allocated) or 0.0,
            "threshold_mb": self._threshold_of(kind, event),
            "message": event.context or "",
            "alert": kind,
            "level": event.event_type,
        }
        self._alerts.append(alert)
        self._alert_count += 1
        if self.enable_logging:
            self._logger.warning("%s", alert["message"])
        for callback in list(self.alert_callbacks):
            self._call(callback, alert)

    def _call(self, callback: Callable[[Any], object], value: object) -> None:
        try:
            callback(value)
        except Exception as error:
            self._logger.error("An alert callback failed: %s", error)

    def _threshold_of(self, kind: str, event: TrackingEvent) -> float:
        """Megabytes at which an alert of this kind begins."""
        if kind == _THRESHOLD:
            return float((event.metadata or {}).get("threshold_mb", self._alert_threshold_mb or 0.0))
        total = megabytes(event.device_total or self._total_memory()) or 0.0
        percent = {"usage_warning": "memory_warning_percent", "usage_critical": "memory_critical_percent"}
        return total * self.thresholds[percent[kind]] / 100 if kind in percent else total

    def _threshold_values(self) -> dict[str, float]:
        return {
            **super()._threshold_values(),
            "memory_threshold_bytes": _bytes_of(self._alert_threshold_mb),
        }


def megabytes(size: float | None) -> float | None:
    """Bytes in megabytes; None stays unknown."""
    return None if size is None else size / MIB


def _bytes_of(threshold_mb: float | None) -> float:
    """A threshold no process reaches where there is none: the native rule takes finite numbers."""
    return threshold_mb * MIB if threshold_mb and threshold_mb > 0 else sys.float_info.max
