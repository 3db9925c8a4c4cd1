"""Frees memory when a TensorFlow device fills up: Keras's session, garbage, and what the program offers."""

from __future__ import annotations

import logging

from stormlog import _native
from stormlog._tracking.device_watchdog import DeviceWatchdog
from stormlog.tensorflow import _runtime
from stormlog.tensorflow._peak import held


class MemoryWatchdog(DeviceWatchdog):
    """Looks at a device at intervals: the first GPU, or the one named; `/CPU:0` is this process.

    ImportError without TensorFlow. `stormlog.MemoryWatchdog(tracker)` is the one that follows alerts.
    """

    _logger = logging.getLogger("stormlog.tensorflow")

    def __init__(
        self,
        max_memory_mb: float = 8000,
        cleanup_threshold_mb: float = 6000,
        check_interval: float = 5.0,
        *,
        device: str | None = None,
    ) -> None:
        self._tf = _runtime.tensorflow()
        self.device = device
        self._probe = _native.tracking.ProcessProbe()
        super().__init__(max_memory_mb, cleanup_threshold_mb, check_interval)

    def force_cleanup(self) -> None:
        """Run the cleanup callbacks and free cached memory now, whatever the threshold."""
        _runtime.quietly(self._tf.keras.backend.clear_session, None, "that its session was cleared")
        self._collect_and_call()

    def _watched(self) -> str | None:
        # Without a device there is nothing to watch where there is no GPU, as in 0.4.3.
        return self.device or ("/GPU:0" if _runtime.gpus(self._tf) else None)

    def _held_mb(self) -> float:
        device = self._watched()
        return 0.0 if device is None else held(self._tf, device, self._probe) / _runtime.MIB

    def _subject(self) -> str:
        return f"Memory of {self._watched()}"
