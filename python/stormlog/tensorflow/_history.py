"""What a tracker remembers: the last so many samples, events and alerts, and sums over all samples."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """The last so many of something, and how many were dropped."""

    def __init__(self, limit: int) -> None:
        self._items: deque[_T] = deque(maxlen=limit)
        self.dropped = 0

    def add(self, item: _T) -> None:
        """Adds one; the oldest goes where there is no room."""
        self.dropped += len(self._items) == self._items.maxlen
        self._items.append(item)

    def all(self) -> list[_T]:
        """Those that are left."""
        return list(self._items)

    def __len__(self) -> int:
        return len(self._items)


class History:
    """One tracking session. Every method may be called from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        # When, and how many megabytes.
        self._samples: Kept[tuple[float, float]] = Kept(limit)
        self._events: Kept[dict[str, Any]] = Kept(limit)
        self._alerts: Kept[dict[str, Any]] = Kept(limit)
        self._count, self._sum = 0, 0.0
        self._lowest, self._highest = 0.0, 0.0

    def add_sample(self, at: float, megabytes: float) -> None:
        """A reading."""
        with self._lock:
            self._samples.add((at, megabytes))
            self._lowest = min(self._lowest, megabytes) if self._count else megabytes
            self._highest = max(self._highest, megabytes)
            self._count += 1
            self._sum += megabytes

    def add_event(self, record: dict[str, Any]) -> None:
        """An event, as a record."""
        with self._lock:
            self._events.add(record)

    def add_alert(self, alert: dict[str, Any]) -> None:
        """An alert."""
        with self._lock:
            self._alerts.add(alert)

    def samples(self) -> list[tuple[float, float]]:
        """The readings that are left."""
        with self._lock:
            return self._samples.all()

    def events(self) -> list[dict[str, Any]]:
        """The events that are left."""
        with self._lock:
            return self._events.all()

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are left."""
        with self._lock:
            return self._alerts.all()

    def sums(self) -> tuple[float, float, float]:
        """The highest, the mean and the lowest of all readings; zeros where there was none."""
        with self._lock:
            return self._highest, self._sum / self._count if self._count else 0.0, self._lowest

    def counts(self) -> Mapping[str, int]:
        """How much is left and how much was dropped, under the names results have."""
        with self._lock:
            kept: dict[str, Kept[Any]] = {
                "samples": self._samples,
                "events": self._events,
                "alerts": self._alerts,
            }
            retained = {f"history_retained_{name}": len(one) for name, one in kept.items()}
            dropped = {f"history_dropped_{name}": one.dropped for name, one in kept.items()}
        return {"history_window_limit": self.limit, **retained, **dropped}
