"""Gives memory back when a GPU fills up: Keras forgets its state, garbage goes, the program is asked."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from stormlog._tracking.monitor import Monitor
from stormlog.tensorflow import _runtime

_LOGGER = logging.getLogger("stormlog.tensorflow")


class MemoryWatchdog:
    """Looks at the first GPU at intervals. ImportError without TensorFlow."""

    def __init__(
        self, max_memory_mb: float = 8000, cleanup_threshold_mb: float = 6000, check_interval: float = 5.0
    ) -> None:
        self._tf = _runtime.tensorflow()
        self.max_memory_mb = max_memory_mb
        self.cleanup_threshold_mb = cleanup_threshold_mb
        self.check_interval = check_interval
        self.cleanup_callbacks: list[Callable[[], None]] = []
        self._monitor = Monitor(self._check)

    @property
    def active(self) -> bool:
        """Whether it looks."""
        return self._monitor.is_on

    def add_cleanup_callback(self, callback: Callable[[], None]) -> None:
        """Has a function called at every cleanup; what it raises is only logged."""
        self.cleanup_callbacks.append(callback)

    def start(self) -> None:
        """Begins to look."""
        self._monitor.start(self.check_interval)

    def stop(self) -> None:
        """Stops."""
        self._monitor.stop()

    def force_cleanup(self) -> None:
        """Cleans up now."""
        _runtime.quietly(self._tf.keras.backend.clear_session, None, "that its session was cleared")
        gc.collect()
        for callback in list(self.cleanup_callbacks):
            try:
                callback()
            except Exception as error:
                _LOGGER.error("A cleanup callback failed: %s", error)

    def _check(self) -> None:
        held = (
            _runtime.device_memory(self._tf, "/GPU:0")[0] / _runtime.MIB if _runtime.gpus(self._tf) else 0.0
        )
        if held > min(self.max_memory_mb, self.cleanup_threshold_mb):
            _LOGGER.warning("GPU memory is at %.1f MB: cleaning up", held)
            self.force_cleanup()
