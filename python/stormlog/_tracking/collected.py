"""A tracker of one collector: what it reads, and what its session has counted under 0.4.3's names.

Private; `stormlog.MemoryTracker` and the trackers of frameworks build on it. The host is sampled natively;
any other collector is asked under the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stormlog import _native
from stormlog._tracking.base import BaseTracker
from stormlog._tracking.reading import reading_of
from stormlog.device_collectors import CPUDeviceCollector, DeviceMemoryCapabilities, DeviceMemoryCollector

COUNTED = ("total_allocations", "total_deallocations", "total_allocation_bytes", "total_deallocation_bytes")
_COLUMNS = ("allocated", "reserved", "device_used", "device_free", "device_total")


class CollectedTracker(BaseTracker):
    """Tracks what a collector reads; a subclass calls `_collect_from` when it is made."""

    collector: DeviceMemoryCollector
    collector_capabilities: DeviceMemoryCapabilities

    @property
    def total_memory(self) -> int:
        """The size of the device; 0 when it is not known."""
        return self._total_memory() or 0

    @property
    def stats(self) -> dict[str, Any]:
        """Peaks, counts of allocations, frees and alerts, and times; a copy."""
        return self._counted(None if self._tracker is None else self._tracker.statistics())

    def get_memory_timeline(self, interval: float = 1.0) -> dict[str, list[Any]]:
        """Memory over time: the values at the end of each interval, as lists of equal length."""
        times, columns = self._timeline(interval)
        found = {name: list(column) for name, column in zip(_COLUMNS, columns, strict=True)}
        return {"timestamps": times, **found}

    def _collect_from(self, collector: DeviceMemoryCollector) -> None:
        self.collector = collector
        self.backend = collector.name()
        given: DeviceMemoryCapabilities | Mapping[str, Any] = collector.capabilities()
        self.collector_capabilities = (
            given
            if isinstance(given, DeviceMemoryCapabilities)
            else DeviceMemoryCapabilities.from_mapping(given)
        )
        self._collector_name = self.collector_capabilities.telemetry_collector

    def _counted(self, seen: dict[str, Any] | None) -> dict[str, Any]:
        known = seen or {}
        return {
            "peak_memory": known.get("peak_memory") or 0,
            "peak_device_used": known.get("peak_device_used") or 0,
            **{key: known.get(key, 0) for key in (*COUNTED, "alert_count")},
            "tracking_start_time": known.get("tracking_start_time"),
            "last_memory_check": known.get("last_memory_check") or 0,
        }

    # For the base

    def _read(self) -> Callable[[], _native.tracking.Reading] | None:
        collector, capabilities = self.collector, self.collector_capabilities
        # Without a reference to the tracker, which the native side must not keep alive.
        return None if type(collector) is CPUDeviceCollector else lambda: reading_of(collector, capabilities)

    def _capabilities(self) -> dict[str, Any]:
        return self.collector_capabilities.to_metadata()
