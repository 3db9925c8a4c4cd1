"""The memory of a TensorFlow program over time: samples, alerts, phases, and telemetry that outlives it.

Sizes are megabytes, as 0.4.3 has them. A GPU that cannot be asked is a state that is reported, and it is
asked again after a while; what goes wrong with the telemetry never reaches the program.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stormlog import _native
from stormlog._tracking.base import SINK_KEYS
from stormlog._tracking.monitor import Monitor
from stormlog._tracking.phased import Phased
from stormlog.collector_health import (
    COLLECTOR_HEALTH_HEALTHY,
    COLLECTOR_HEALTH_UNHEALTHY,
    CollectorHealthState,
    collector_retry_delay_seconds,
)
from stormlog.phases import PhaseBoundary
from stormlog.session import (
    SESSION_STATUS_INCOMPLETE,
    SessionSummary,
    create_session_summary,
    finalize_session_summary,
    now_ns,
    update_session_summary,
)
from stormlog.telemetry import (
    resolve_distributed_identity,
    telemetry_event_from_record,
    telemetry_event_to_dict,
)
from stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._history import History
from stormlog.tensorflow._watchdog import MemoryWatchdog

__all__ = ["MemoryTracker", "MemoryWatchdog", "TrackingResult"]

_LOGGER = logging.getLogger("stormlog.tensorflow")
_COLLECTOR = "stormlog.tensorflow.memory_tracker"
_RECENT_SECONDS = 10.0


@dataclass
class TrackingResult:
    """What a tracker saw; the last so many samples, events and alerts, and sums over all."""

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
        """Seconds it tracked."""
        return self.end_time - self.start_time

    @property
    def memory_growth_rate(self) -> float:
        """Megabytes a second from the first sample that is left to the last."""
        if len(self.memory_usage) < 2 or self.duration <= 0:
            return 0.0
        return (self.memory_usage[-1] - self.memory_usage[0]) / self.duration


class MemoryTracker(Phased):
    """Samples a GPU, or this process on the CPU, in the background. ImportError without TensorFlow."""

    session_source = "stormlog.tensorflow.tracker"

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
    ) -> None:
        super().__init__()
        self._tf = _runtime.tensorflow()
        if sampling_interval <= 0:
            raise ValueError("sampling_interval must be > 0")
        if max_history <= 0:
            raise ValueError("max_history must be >= 1")
        self.sampling_interval = sampling_interval
        self.alert_threshold_mb = alert_threshold_mb
        self.device = device or ("/GPU:0" if _runtime.gpus(self._tf) else "/CPU:0")
        self.enable_logging = enable_logging
        self.max_history = max_history
        self.distributed_identity = resolve_distributed_identity(
            job_id=job_id, rank=rank, local_rank=local_rank, world_size=world_size, env=os.environ
        )
        self.alert_callbacks: list[Callable[[dict[str, Any]], None]] = []
        self._sink_config = telemetry_sink_config
        self._sink: AppendOnlyTelemetrySink | None = None
        self._sink_diagnostics: dict[str, int] = dict.fromkeys(SINK_KEYS, 0)
        self._session: SessionSummary | None = None
        self._history = History(max_history)
        self._health = CollectorHealthState()
        self._transitions = 0
        self._last_mb: float | None = None
        self._began: float | None = None
        self._ended: float | None = None
        self._probe = _native.tracking.ProcessProbe()
        self._monitor = Monitor(self._take)

    @property
    def tracking(self) -> bool:
        """Whether it runs."""
        return self._monitor.is_on

    @property
    def memory_usage(self) -> list[float]:
        """The samples that are left, in megabytes."""
        return [megabytes for _, megabytes in self._history.samples()]

    @property
    def timestamps(self) -> list[float]:
        """When they were taken."""
        return [at for at, _ in self._history.samples()]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that are left, as telemetry records."""
        return self._history.events()

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are left."""
        return self._history.alerts()

    def start_tracking(self) -> None:
        """Begins a session; the first sample is taken at once. One that runs continues."""
        if self.tracking:
            return
        self._began, self._ended, self._last_mb = time.time(), None, None
        self._history, self._health, self._transitions = History(self.max_history), CollectorHealthState(), 0
        self._phases.reset()
        self._session = create_session_summary(source=self.session_source, **self.distributed_identity)
        if self._sink_config is not None:
            self._sink = AppendOnlyTelemetrySink(self._sink_config)
            self._session = self._sink.start_session(self._session)
        self._add("start", self._began, "Memory tracking started")
        self._monitor.start(self.sampling_interval)

    def stop_tracking(self) -> TrackingResult:
        """Ends the session; an empty result where none was begun."""
        if not self.tracking:
            return self._result(History(self.max_history))
        self._monitor.stop()
        self._ended = time.time()
        self._add("stop", self._ended, "Memory tracking stopped")
        self._with_sink("close", lambda sink: sink.close())
        self._sink = None
        if self._session is not None:
            self._session = finalize_session_summary(self._session, ended_at_ns=now_ns())
        self._phases.reset()
        return self._result(self._history)

    def get_tracking_results(self) -> TrackingResult:
        """What there is so far."""
        return self._result(self._history)

    def get_session_summary(self) -> SessionSummary | None:
        """The session that runs, or the last one."""
        return self._session

    def get_current_memory(self) -> float:
        """Megabytes now; the last that were known where it cannot be read."""
        try:
            return self._read()
        except Exception:
            return self._last_mb or 0.0

    def add_alert_callback(self, callback: Callable[[dict[str, Any]], None]) -> None:
        """Has a function called with every alert; what it raises is only logged."""
        self.alert_callbacks.append(callback)

    def set_alert_threshold(self, threshold_mb: float) -> None:
        """Alerts above so many megabytes."""
        self.alert_threshold_mb = threshold_mb

    def check_alerts(self) -> bool:
        """Whether there was an alert in the last ten seconds."""
        now = time.time()
        return any(now - alert["timestamp"] < _RECENT_SECONDS for alert in self._history.alerts())

    def get_statistics(self) -> dict[str, Any]:
        """The session in numbers, with the health of its readings and of its sink."""
        peak, average, lowest = self._history.sums()
        is_healthy = self._health.status == COLLECTOR_HEALTH_HEALTHY
        counts = self._history.counts()
        return {
            "current_memory_mb": self._last_mb if is_healthy else None,
            "peak_memory_mb": peak,
            "average_memory_mb": average,
            "min_memory_mb": lowest,
            "collector_failure_event_count": self._transitions,
            "total_events": counts["history_retained_events"],
            "tracking_duration_seconds": (self._ended or time.time()) - self._began if self._began else 0.0,
            **counts,
            **self._sink_diagnostics,
            "session_id": None if self._session is None else self._session.session_id,
            "session_status": None if self._session is None else self._session.status,
            **self._health.to_dict(),
        }

    def _running_session(self) -> SessionSummary | None:
        return self._session if self.tracking else None

    def _add_boundary(self, boundary: PhaseBoundary) -> None:
        self._add(boundary.event_type, time.time(), boundary.context, boundary.metadata)

    def _read(self) -> float:
        if "/GPU:" in self.device.upper():
            return float(self._tf.config.experimental.get_memory_info(self.device)["current"]) / _runtime.MIB
        return self._probe.memory()[0] / _runtime.MIB

    def _take(self) -> None:
        """One sample, or one failed try; after a failure the next try waits longer each time."""
        at = time.time()
        retry_at = self._health.next_retry_epoch_s
        if retry_at is not None and at < retry_at:
            return
        try:
            megabytes = self._read()
        except Exception as error:
            self._failed(at, str(error))
            return
        self._last_mb = megabytes
        self._recovered(at)
        self._history.add_sample(at, megabytes)
        self._add("sample", at)
        self._with_sink("flush", lambda sink: sink.flush())
        if self.alert_threshold_mb and megabytes > self.alert_threshold_mb:
            self._alert(at, megabytes, self.alert_threshold_mb)

    def _failed(self, at: float, reason: str) -> None:
        was, failures = self._health.status, self._health.consecutive_failures + 1
        delay = collector_retry_delay_seconds(failures, initial_delay_s=1.0, factor=2.0, max_delay_s=30.0)
        self._health = CollectorHealthState(
            status=COLLECTOR_HEALTH_UNHEALTHY,
            telemetry_partial=True,
            last_error=reason,
            consecutive_failures=failures,
            next_retry_epoch_s=at + delay,
        )
        if was == COLLECTOR_HEALTH_HEALTHY:
            self._transitions += 1
            facts = {
                "collector_transition": "degraded",
                "collector_degraded_from": was,
                "collector_degradation_reason": reason,
                "collector_retry_delay_s": delay,
            }
            sentence = "Collector unavailable; telemetry paused until recovery."
            self._add("collector_degraded", at, sentence, facts)

    def _recovered(self, at: float) -> None:
        before, self._health = self._health, CollectorHealthState()
        if before.status != COLLECTOR_HEALTH_HEALTHY:
            self._transitions += 1
            facts = {
                "collector_transition": "recovered",
                "collector_recovered_from": before.status,
                "collector_previous_error": before.last_error,
                "collector_previous_failure_count": before.consecutive_failures,
            }
            sentence = "Collector recovered; full telemetry sampling resumed."
            self._add("collector_recovered", at, sentence, facts)

    def _alert(self, at: float, megabytes: float, threshold: float) -> None:
        message = f"Memory usage {megabytes:.1f} MB exceeds threshold {threshold:.1f} MB"
        alert = {"timestamp": at, "memory_mb": megabytes, "threshold_mb": threshold, "message": message}
        self._history.add_alert(alert)
        if self.enable_logging:
            _LOGGER.warning("%s", message)
        for callback in list(self.alert_callbacks):
            try:
                callback(alert)
            except Exception as error:
                _LOGGER.error("An alert callback failed: %s", error)

    def _add(
        self, kind: str, at: float, context: str | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        session = self._session
        if session is None:
            return
        place = self.device.rpartition(":")[2]
        number = int(place) if place.isdigit() and "GPU" in self.device.upper() else -1
        interval_ms = round(self.sampling_interval * 1000)
        event = telemetry_event_from_record(
            {
                "session_id": session.session_id,
                "timestamp": at,
                "type": kind,
                "memory_mb": self._last_mb or 0.0,
                "device_id": number,
                "context": context,
                "metadata": {**(metadata or {}), **self._health.to_dict()},
                "collector": _COLLECTOR,
                "sampling_interval_ms": interval_ms,
                "pid": session.pid,
                "host": session.host,
                **self.distributed_identity,
            },
            default_collector=_COLLECTOR,
            default_sampling_interval_ms=interval_ms,
            default_session_id=session.session_id,
        )
        record = telemetry_event_to_dict(event)
        self._history.add_event(record)
        self._with_sink("append", lambda sink: sink.append(record))

    def _with_sink(self, what: str, do: Callable[[AppendOnlyTelemetrySink], object]) -> None:
        """Something with the sink. After a failure it is not used again, and the session says so."""
        sink = self._sink
        if sink is None:
            return
        try:
            do(sink)
            self._sink_diagnostics = sink.get_diagnostics()
        except Exception as error:
            self._sink = None
            _LOGGER.warning("The telemetry sink is not used after a failed %s: %s", what, error)
            if self._session is not None:
                self._session = update_session_summary(
                    self._session, status=SESSION_STATUS_INCOMPLETE, ended_at_ns=now_ns()
                )

    def _result(self, history: History) -> TrackingResult:
        samples = history.samples()
        peak, average, lowest = history.sums()
        now = time.time()
        began = self._began or now
        return TrackingResult(
            start_time=began,
            end_time=self._ended or (samples[-1][0] if samples else began),
            memory_usage=[megabytes for _, megabytes in samples],
            timestamps=[at for at, _ in samples],
            events=history.events(),
            alerts_triggered=history.alerts(),
            peak_memory=peak,
            average_memory=average,
            min_memory=lowest,
            **history.counts(),
        )
