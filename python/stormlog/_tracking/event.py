"""What a tracker hands out and what it warns by: events and thresholds. Private; nothing here runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

THRESHOLDS = {
    "memory_warning_percent": 80.0,
    "memory_critical_percent": 95.0,
    "memory_leak_threshold": float(100 * 1024 * 1024),
    "fragmentation_threshold": 0.3,
}


@dataclasses.dataclass
class TrackingEvent:
    """One event of a tracker; None is unknown."""

    timestamp: float
    event_type: str
    memory_allocated: int | None
    memory_reserved: int | None
    memory_change: int | None
    device_id: int
    session_id: str | None = None
    context: str | None = None
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    metadata: dict[str, Any] | None = None
    active_memory: int | None = None
    inactive_memory: int | None = None
    device_used: int | None = None
    device_free: int | None = None
    device_total: int | None = None
    backend: str = "cuda"


class Thresholds(dict[str, float]):
    """The thresholds by name; setting one reaches the running tracker."""

    def __init__(self, changed: Callable[[str, float], None]) -> None:
        super().__init__(THRESHOLDS)
        self._changed = changed

    def __setitem__(self, name: str, value: float) -> None:
        self._changed(name, value)
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: float) -> None:
        """Set several."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value
