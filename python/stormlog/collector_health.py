"""How a collector is: healthy, degraded or unhealthy, and when it is asked again."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

__all__ = [
    "COLLECTOR_HEALTH_DEGRADED",
    "COLLECTOR_HEALTH_HEALTHY",
    "COLLECTOR_HEALTH_UNHEALTHY",
    "CollectorHealthState",
    "collector_retry_delay_seconds",
]

COLLECTOR_HEALTH_HEALTHY = "healthy"
COLLECTOR_HEALTH_DEGRADED = "degraded"
COLLECTOR_HEALTH_UNHEALTHY = "unhealthy"

_STATES = frozenset({COLLECTOR_HEALTH_HEALTHY, COLLECTOR_HEALTH_DEGRADED, COLLECTOR_HEALTH_UNHEALTHY})


@dataclasses.dataclass(frozen=True)
class CollectorHealthState:
    """The state as events and statistics show it."""

    status: str = COLLECTOR_HEALTH_HEALTHY
    telemetry_partial: bool = False
    partial_fields: tuple[str, ...] = ()
    last_error: str | None = None
    consecutive_failures: int = 0
    next_retry_epoch_s: float | None = None

    def __post_init__(self) -> None:
        if self.status not in _STATES:
            raise ValueError(f"Unsupported collector health status: {self.status}")
        named = tuple(dict.fromkeys(name for name in self.partial_fields if name))
        object.__setattr__(self, "partial_fields", named)

    def to_dict(self) -> dict[str, Any]:
        """The keys in an event's metadata."""
        return {
            "collector_health_status": self.status,
            "telemetry_partial": self.telemetry_partial,
            "collector_partial_fields": list(self.partial_fields),
            "collector_last_error": self.last_error,
            "collector_consecutive_failures": self.consecutive_failures,
            "collector_next_retry_epoch_s": self.next_retry_epoch_s,
        }


def collector_retry_delay_seconds(
    consecutive_failures: int, *, initial_delay_s: float, factor: float, max_delay_s: float
) -> float:
    """Seconds to wait after `consecutive_failures`: growing by `factor`, up to `max_delay_s`."""
    if consecutive_failures <= 0 or initial_delay_s <= 0 or max_delay_s <= 0:
        return 0.0
    if factor <= 1.0:
        return min(initial_delay_s, max_delay_s)
    try:
        delay = initial_delay_s * factor ** (consecutive_failures - 1)
    except OverflowError:
        return max_delay_s
    return min(max_delay_s, delay) if math.isfinite(delay) else max_delay_s
