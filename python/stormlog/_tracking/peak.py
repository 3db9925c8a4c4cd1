"""The highest RSS inside a call: the kernel's own high-water mark, reset at the start.

There is one mark for the whole process, so calls inside calls and in other threads share it: each hands
what the mark had reached to the others before it resets it. Where the kernel does not let it be reset, a
native thread samples every millisecond instead.
"""

from __future__ import annotations

import json
import threading

from stormlog import _native
from stormlog._tracking.event import TrackingEvent
from stormlog.device_collectors import CPUDeviceCollector
from stormlog.session import create_session_summary

_LOCK = threading.Lock()
_OPEN: list[PeakOfCall] = []


class PeakOfCall:
    """A stretch of time whose peak is wanted, from its making to `end`."""

    def __init__(self, probe: _native.tracking.ProcessProbe) -> None:
        self._probe = probe
        self._peak = 0
        self._sampler: _native.tracking.Tracker | None = None
        with _LOCK:
            _share(probe)
            window = probe.begin_peak()
            _OPEN.append(self)
        if not window[2]:
            self._sampler = _sampler()
            self._sampler.start()

    def end(self) -> int | None:
        """The highest RSS; None when it could not be measured."""
        with _LOCK:
            _share(self._probe)
            _OPEN.remove(self)
        if self._sampler is not None:
            self._sampler.stop(1.0)
            self._peak = self._sampler.statistics()["peak_memory"] or 0
        return self._peak or None

    def _saw(self, mark: int) -> None:
        # Without a reset the mark may be an old peak, and says nothing of this stretch.
        if self._sampler is None:
            self._peak = max(self._peak, mark)


def _share(probe: _native.tracking.ProcessProbe) -> None:
    mark = probe.peak_rss()
    if mark is not None:
        for window in _OPEN:
            window._saw(mark)


def _sampler() -> _native.tracking.Tracker:
    capabilities = CPUDeviceCollector().capabilities().to_metadata()
    settings = _native.tracking.TrackerSettings(
        session=create_session_summary(source="stormlog.cpu_profiler"),
        collector="stormlog.cpu_tracker",
        backend="cpu",
        sampling_interval=0.001,
        max_events=1,
        metadata=json.dumps({"memory_capabilities": capabilities}),
        wording="cpu",
    )
    return _native.tracking.Tracker(settings, TrackingEvent, None, None, None, None)
