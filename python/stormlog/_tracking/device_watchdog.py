"""Frees memory when a device fills up: what 0.4.3's watchdogs of TensorFlow and JAX share. Private.

A framework says what is held and how its own memory is released. Nothing here may raise into the program.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from stormlog._tracking.monitor import Monitor


class DeviceWatchdog:
    """Looks at one device at intervals, and cleans up above a threshold."""

    _logger: logging.Logger

    def __init__(self, max_memory_mb: float, cleanup_threshold_mb: float, check_interval: float) -> None:
        self.max_memory_mb = max_memory_mb
        self.cleanup_threshold_mb = cleanup_threshold_mb
        self.check_interval = check_interval
        self.cleanup_callbacks: list[Callable[[], None]] = []
        self._is_above = False
        self._monitor = Monitor(self._check)

    @property
    def active(self) -> bool:
        """Whether the checking thread runs."""
        return self._monitor.is_on

    def add_cleanup_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every cleanup; an exception that it raises is logged."""
        self.cleanup_callbacks.append(callback)

    def start(self) -> None:
        """Start a thread that checks memory every `check_interval` seconds."""
        self._monitor.start(self.check_interval)

    def stop(self) -> None:
        """Stop checking; `start` begins again."""
        self._monitor.stop()

    def _held_mb(self) -> float:
        """Megabytes in use on the device; 0 where that is not known."""
        raise NotImplementedError

    def _subject(self) -> str:
        """What is full, for the log."""
        return "Device memory"

    def force_cleanup(self) -> None:
        """Run the cleanup callbacks and free cached memory now, whatever the threshold."""
        raise NotImplementedError

    def _collect_and_call(self) -> None:
        """Drops garbage and calls what the program offered."""
        gc.collect()
        for callback in list(self.cleanup_callbacks):
            try:
                callback()
            except Exception as error:
                self._logger.error("A cleanup callback failed: %s", error)

    def _check(self) -> None:
        held = self._held_mb()
        was_above = self._is_above
        self._is_above = held > min(self.max_memory_mb, self.cleanup_threshold_mb)
        # Once for each breach, and again for as long as it is above the maximum.
        if held > self.max_memory_mb or (self._is_above and not was_above):
            self._logger.warning("%s is at %.1f MB: cleaning up", self._subject(), held)
            self.force_cleanup()
