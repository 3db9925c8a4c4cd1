"""Frees memory when a JAX device fills up: caches, garbage, and what the program offers."""

from __future__ import annotations

import logging

from stormlog._jax import runtime
from stormlog._tracking.device_watchdog import DeviceWatchdog
from stormlog.jax.utils import resolve_jax_device


class MemoryWatchdog(DeviceWatchdog):
    """Looks at one device at intervals. ImportError without JAX."""

    _logger = logging.getLogger("stormlog.jax")

    def __init__(
        self,
        max_memory_mb: float = 8000,
        cleanup_threshold_mb: float = 6000,
        check_interval: float = 5.0,
        device_index: int = 0,
    ) -> None:
        self._jax = runtime.jax()
        self._device = resolve_jax_device(device_index)[0]
        super().__init__(max_memory_mb, cleanup_threshold_mb, check_interval)

    def force_cleanup(self, aggressive: bool = False) -> None:
        """Clean up now. `aggressive` deletes every live array first: the program must not use them again."""
        if aggressive:
            for array in self._jax.live_arrays():
                runtime.quietly(array.delete, None, "that an array was deleted")
        runtime.quietly(self._jax.clear_caches, None, "that its caches were cleared")
        self._collect_and_call()

    def _held_mb(self) -> float:
        stats = runtime.memory_stats(self._device)
        return 0.0 if stats is None else stats["bytes_in_use"] / runtime.MIB
