"""A thread that takes snapshots at intervals, for a profiler that was asked to watch. Private."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from stormlog.errors import ConfigurationError

_LOGGER = logging.getLogger("stormlog.profiler")
DEFAULT_INTERVAL = 0.1


class StopsAtExit:
    """A profiler as a context manager: leaving it ends its monitoring."""

    def stop_monitoring(self) -> None:
        """End taking snapshots."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_monitoring()


class Monitor:
    """Takes the first snapshot at once, the next after each interval, until it is stopped."""

    def __init__(self, take: Callable[[], object]) -> None:
        self._take = take
        self._running: tuple[threading.Thread, threading.Event] | None = None

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self._running is not None

    def start(self, interval: float | None) -> None:
        """Begin; one that runs continues as it is."""
        interval = DEFAULT_INTERVAL if interval is None else interval
        if self._running is not None:
            return
        if interval <= 0:
            raise ConfigurationError("interval must be > 0")
        stop = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(stop, interval), name="stormlog-monitor", daemon=True
        )
        self._running = (thread, stop)
        thread.start()

    def stop(self) -> None:
        """End, when the snapshot that is being taken is taken."""
        running, self._running = self._running, None
        if running is not None:
            running[1].set()
            running[0].join()

    def _watch(self, stop: threading.Event, interval: float) -> None:
        while True:
            try:
                self._take()
            except Exception as error:
                _LOGGER.debug("A snapshot could not be taken: %s", error)
            if stop.wait(interval):
                return
