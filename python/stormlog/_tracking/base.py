"""What both trackers are made of: the native tracker, phases, alerts, exports and OOM bundles.

Private. The sampling thread is native and enters the interpreter only for a collector written in Python and
for alerts. Nothing here may hold a lock while a user's code runs.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stormlog import _native
from stormlog._tracking.allocator_report import (
    LogMark,
    allocator_report,
    chunk_holders,
    metadata_of,
    named_holders,
)
from stormlog._tracking.event import THRESHOLDS, Thresholds, TrackingEvent
from stormlog._tracking.failure import Holder, advice, holders, traceback_of
from stormlog._tracking.phased import Phased
from stormlog.oom_flight_recorder import OOMFlightRecorderConfig, classified, exception_text
from stormlog.phases import PhaseBoundary
from stormlog.session import SessionSummary, create_session_summary, session_summary_of
from stormlog.telemetry import resolve_distributed_identity
from stormlog.telemetry_sink import TelemetrySinkConfig

ALERT_TYPES = ["warning", "critical", "error"]
SINK_KEYS = (
    "rollover_count",
    "pruned_segment_count",
    "pruned_bytes",
    "final_retained_files",
    "final_retained_bytes",
)
HEALTH_KEYS = (
    "collector_health_status",
    "telemetry_partial",
    "collector_partial_fields",
    "collector_last_error",
    "collector_consecutive_failures",
    "collector_next_retry_epoch_s",
)

_LOGGER = logging.getLogger("stormlog.tracker")


class BaseTracker(Phased):
    """Samples in the background, keeps events, warns, and keeps the evidence when memory runs out."""

    session_source = "stormlog.tracker"
    backend = "cpu"
    _wording = "device"
    _says_health = True
    _collector_name = "stormlog.cpu_tracker"
    # Whether its holders are lines of the program, which say more than an allocator's list of chunks.
    _knows_lines = False

    def __init__(
        self,
        *,
        sampling_interval: float,
        max_events: int,
        enable_alerts: bool,
        recorder: OOMFlightRecorderConfig,
        identity: tuple[str | None, int | None, int | None, int | None],
        telemetry_sink_config: TelemetrySinkConfig | None,
        recording_dir: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__()
        if sampling_interval <= 0:
            raise ValueError("sampling_interval must be > 0")
        if max_events <= 0:
            raise ValueError("max_events must be >= 1")
        self.sampling_interval = sampling_interval
        self.max_events = max_events
        self.enable_alerts = enable_alerts
        self.alert_callbacks: list[Callable[[TrackingEvent], None]] = []
        self.prediction_callbacks: list[Callable[[TrackingEvent], None]] = []
        self.last_oom_dump_path: str | None = None
        job_id, rank, local_rank, world_size = identity
        self.distributed_identity = resolve_distributed_identity(
            job_id=job_id, rank=rank, local_rank=local_rank, world_size=world_size, env=os.environ
        )
        self._log = LogMark()
        me = weakref.ref(self)
        self.thresholds = Thresholds(lambda name, value: _forward(me(), name, value))
        self._recorder_config = recorder
        self._sink_config = telemetry_sink_config
        self._recording_dir = recording_dir
        self._tracker: _native.tracking.Tracker | None = None

    # Life

    def start_tracking(self) -> None:
        """Start a new session: the first sample is taken before this returns."""
        if self.is_tracking:
            return
        self._phases.reset()
        self.last_oom_dump_path = None
        tracker = self._make(self._sink_config, _free(self._recording_dir))
        self._tracker = tracker
        try:
            tracker.start()
        finally:
            self._log_warnings()

    def stop_tracking(self) -> None:
        """Stop sampling and end the session."""
        tracker = self._tracker
        if tracker is None or not tracker.is_running():
            return
        stopped = tracker.stop(5.0)
        self._log_warnings()
        if not stopped:
            raise TimeoutError("Memory tracking thread did not stop within 5.0 seconds")
        self._phases.reset()

    @property
    def is_tracking(self) -> bool:
        """Whether a session is sampling in this process."""
        return self._tracker is not None and self._tracker.is_running()

    def __enter__(self) -> Self:
        self.start_tracking()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_tracking()

    def get_session_summary(self) -> SessionSummary | None:
        """The running session, or the last one; None before the first."""
        session = None if self._tracker is None else self._tracker.session()
        return None if session is None else session_summary_of(session)

    # Events

    @property
    def events(self) -> deque[TrackingEvent]:
        """A copy of the stored events, oldest first."""
        return deque(self.get_events(), maxlen=self.max_events)

    def get_events(
        self, event_type: str | None = None, last_n: int | None = None, since: float | None = None
    ) -> list[TrackingEvent]:
        """The stored events: all, or only those of `event_type`, after `since`, the last `last_n`."""
        return self._events([event_type] if event_type else None, last_n, since)

    def get_alerts(self, last_n: int | None = None) -> list[TrackingEvent]:
        """The stored events of type `warning`, `critical` and `error`, oldest first."""
        return self._events(ALERT_TYPES, last_n, None)

    def clear_events(self) -> None:
        """Remove the stored events and reset the counts made from them."""
        if self._tracker is not None:
            self._tracker.clear()

    def export_events(self, filename: str | os.PathLike[str], format: str = "csv") -> None:
        """Write the stored events to a file, `format` csv or json; no file is written without events."""
        if format not in {"csv", "json"}:
            raise ValueError(f"Unsupported format: {format}")
        if self._tracker is not None:
            self._tracker.export(filename, format)

    # Alerts

    def set_threshold(self, threshold_name: str, value: float) -> None:
        """Set the value at which an alert begins; another name than those of `thresholds` is an error.

        Names: `memory_warning_percent`, `memory_critical_percent`, `memory_leak_threshold` (bytes) and
        `fragmentation_threshold` (a share).
        """
        if threshold_name not in self.thresholds:
            raise ValueError(f"Unknown threshold: {threshold_name}")
        self.thresholds[threshold_name] = value

    def add_alert_callback(self, callback: Callable[[TrackingEvent], None]) -> None:
        """Call `callback` with every alert, on the thread that noticed it."""
        self.alert_callbacks.append(callback)

    def _add_listener(self, listener: Callable[[TrackingEvent], None]) -> None:
        """Call this with every alert as an event, whatever form callbacks get it in."""
        self.add_alert_callback(listener)

    def remove_alert_callback(self, callback: Callable[..., object]) -> None:
        """Remove a callback that `add_alert_callback` added."""
        if callback in self.alert_callbacks:
            self.alert_callbacks.remove(callback)

    def add_prediction_callback(self, callback: Callable[[TrackingEvent], None]) -> None:
        """Call `callback` when memory is forecast to reach its limit: minutes before, then seconds before.

        The event's metadata has `seconds_to_limit`, `confidence`, `bytes_per_second` and `limit_bytes`.
        """
        self.prediction_callbacks.append(callback)

    def remove_prediction_callback(self, callback: Callable[[TrackingEvent], None]) -> None:
        """Remove a callback that `add_prediction_callback` added."""
        if callback in self.prediction_callbacks:
            self.prediction_callbacks.remove(callback)

    # Out of memory

    @property
    def oom_buffer_size(self) -> int:
        """The number of events that a bundle holds."""
        return self._recorder_config.buffer_size

    def handle_exception(
        self, exc: BaseException, context: str | None = None, metadata: dict[str, Any] | None = None
    ) -> str | None:
        """Write a bundle if `exc` is an out-of-memory error; its path, or None if none was written."""
        found = classified(exc)
        reason = found.reason
        if not found.is_oom or reason is None:
            return None
        if not self._recorder_config.enabled:
            _LOGGER.warning(
                "Memory ran out (%s), and no OOM bundle was written: "
                "create the tracker with enable_oom_flight_recorder=True",
                reason,
            )
            return None
        tracker = self._ensure()
        sample = tracker.sample_now().sample
        self._add_event("error", 0, f"OOM detected ({reason})", {"oom_reason": reason}, sample)
        known = sample or _native.tracking.Sample(self._device_id())
        session = self.get_session_summary()
        details: dict[str, Any] = {
            "tracker_stats": self.get_statistics(),
            "collector_capabilities": self._capabilities(),
            "total_memory_bytes": self._total_memory(),
            "sampling_interval_s": self.sampling_interval,
            "session_id": session.session_id if session else None,
            **self.distributed_identity,
            "traceback": traceback_of(exc),
            **(metadata or {}),
            "sample_allocated_bytes": known.allocated,
            "sample_reserved_bytes": known.reserved,
            "sample_used_bytes": known.used,
            "sample_free_bytes": known.free,
            "sample_total_bytes": known.total,
            "sample_device_id": known.device_id,
        }
        report = allocator_report(exc, self._log)
        held, chunks = self._held_by(exc, report), chunk_holders(report)
        tries = [*(report.remedies if report else ()), *advice(held, self._is_host)]
        if report is not None:
            details["allocator_failure"] = metadata_of(report)
        try:
            path = tracker.dump(
                root=self._recorder_config.dump_dir,
                backend=self.backend,
                reason=reason,
                cause=found.cause,
                exception=(type(exc).__name__, type(exc).__module__, exception_text(exc)),
                context=context,
                custom_metadata=details,
                system=self._system(),
                held_by=held or chunks,
                tries=tries,
            )
        except Exception as error:
            _LOGGER.warning("The OOM bundle could not be written: %s", error)
            return None
        if path is not None:
            self._add_evidence(Path(path))
        self.last_oom_dump_path = None if path is None else os.fspath(path)
        return self.last_oom_dump_path

    @contextmanager
    def capture_oom(self, context: str = "runtime", metadata: dict[str, Any] | None = None) -> Iterator[None]:
        """Write a bundle if the block raises an out-of-memory error; the exception is raised again."""
        try:
            yield
        except Exception as error:
            path = self.handle_exception(error, context=context, metadata=metadata)
            if path:
                _LOGGER.error("OOM flight recorder dump saved to: %s", path)
            raise

    # For the classes that build on this

    def get_statistics(self) -> dict[str, Any]:
        """Peaks, current memory and counts."""
        raise NotImplementedError

    def _read(self) -> Callable[[], _native.tracking.Reading] | None:
        """What asks a collector written in Python; None where the host is sampled natively."""
        return None

    def _held_by(self, exc: BaseException, report: _native.oom.AllocationFailure | None) -> list[Holder]:
        """What holds most memory by line or by name; empty where only the sizes of chunks are known."""
        named = named_holders(report)
        return self._holders(exc) or named if self._knows_lines else named or self._holders(exc)

    def _holders(self, exc: BaseException) -> list[Holder]:
        """What holds most memory, as far as it is known when an exception arrives."""
        return holders(exc)

    def _system(self) -> dict[str, Any]:
        """The machine and the framework, for a bundle."""
        return _system_info()

    def _add_evidence(self, bundle: Path) -> None:
        """What else belongs into a bundle that was just written."""

    def _capabilities(self) -> dict[str, Any]:
        raise NotImplementedError

    def _metadata(self) -> dict[str, Any]:
        return {"memory_capabilities": self._capabilities()}

    @property
    def _is_host(self) -> bool:
        """Whether it is the host's memory that runs out."""
        return self.backend == "cpu"

    def _device_id(self) -> int:
        return -1

    def _total_memory(self) -> int | None:
        return None if self._tracker is None else self._tracker.statistics()["total_bytes"]

    def _ensure(self) -> _native.tracking.Tracker:
        """The tracker of the last session, or one that only keeps the events it is given."""
        if self._tracker is None:
            self._tracker = self._make(None, None)
        return self._tracker

    def _make(
        self, sink: TelemetrySinkConfig | None, recording: str | os.PathLike[str] | None
    ) -> _native.tracking.Tracker:
        identity: Any = self.distributed_identity
        session = create_session_summary(source=self.session_source, **identity)
        recorder = self._recorder_config
        settings = _native.tracking.TrackerSettings(
            session=session,
            collector=self._collector_name,
            backend=self.backend,
            sampling_interval=self.sampling_interval,
            max_events=self.max_events,
            flight_events=recorder.buffer_size if recorder.enabled else 0,
            max_dumps=recorder.max_dumps,
            max_total_mb=recorder.max_total_mb,
            metadata=json.dumps(self._metadata()),
            wording=self._wording,
            says_health=self._says_health,
            alerts=self.enable_alerts,
            thresholds=self._threshold_values(),
            total_bytes=self._known_total(),
        )
        return _native.tracking.Tracker(
            settings, TrackingEvent, sink, recording, self._read(), _listener(weakref.ref(self))
        )

    def _known_total(self) -> int | None:
        return None

    def _threshold_values(self) -> dict[str, float]:
        """What alerts begin at, under the names of the native rules."""
        return {name: self.thresholds[name] for name in THRESHOLDS}

    def _add_event(
        self,
        event_type: str,
        memory_change: int | None,
        context: str,
        metadata: dict[str, Any] | None = None,
        sample: _native.tracking.Sample | None = None,
    ) -> None:
        text = json.dumps(metadata, default=str) if metadata else None
        self._ensure().add_event(event_type, memory_change, context, text, sample)

    def _events(
        self, types: list[str] | None, last_n: int | None, since: float | None
    ) -> list[TrackingEvent]:
        if self._tracker is None:
            return []
        # As a slice has it: a negative number leaves this many out at the start.
        count = last_n if last_n is not None and last_n > 0 else None
        found = self._tracker.events(types, count, since or None)
        if last_n is not None and last_n < 0:
            found = found[-last_n:]
        return found

    def _timeline(self, interval: float) -> tuple[list[float], list[list[int | None]]]:
        """Times and five columns: what held at the end of each interval, also of one without an event."""
        if interval <= 0:
            raise ValueError("interval must be > 0")
        if self._tracker is None:
            return [], [[] for _ in range(5)]
        return self._tracker.timeline(interval)

    def _running_session(self) -> SessionSummary | None:
        return self.get_session_summary() if self.is_tracking else None

    def _add_boundary(self, boundary: PhaseBoundary) -> None:
        self._add_event(boundary.event_type, 0, boundary.context, boundary.metadata)

    def _deliver(self, event: TrackingEvent) -> None:
        kind = str((event.metadata or {}).get("alert"))
        is_forecast = kind.startswith("forecast_") and event.event_type in ALERT_TYPES
        for callback in [*self.alert_callbacks, *(self.prediction_callbacks if is_forecast else ())]:
            try:
                callback(event)
            except Exception as error:
                _LOGGER.debug("Alert callback error (suppressed): %s", error)

    def _log_warnings(self) -> None:
        if self._tracker is not None:
            for warning in self._tracker.take_warnings():
                _LOGGER.warning("%s", warning)


def _free(directory: str | os.PathLike[str] | None) -> Path | None:
    """A directory holds one recording: the next session of a tracker goes beside it, as `run-2`."""
    if directory is None:
        return None
    return _native.catalog.unused_directory(directory)


def _forward(tracker: BaseTracker | None, name: str, value: float) -> None:
    # Other names are the caller's own; 0.4.3 keeps them too.
    if tracker is not None and tracker._tracker is not None and name in THRESHOLDS:
        tracker._tracker.set_threshold(name, float(value))


def _listener(me: weakref.ref[BaseTracker]) -> Callable[[TrackingEvent], None]:
    """Receives alerts. The native side must not keep a tracker alive by it: hence the weak reference."""

    def receive(event: TrackingEvent) -> None:
        tracker = me()
        if tracker is not None:
            tracker._deliver(event)

    return receive


def _system_info() -> dict[str, Any]:
    from stormlog.utils import system_info_without_imports

    return system_info_without_imports()
