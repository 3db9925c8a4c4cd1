"""What results of JAX share: a span of time, and sizes in bytes that are read in megabytes. Private."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormlog._jax import runtime


class SizedResult:
    """A span of time with a peak and a mean."""

    if TYPE_CHECKING:
        start_time: float
        end_time: float
        peak_memory_bytes: int
        average_memory_bytes: int

    @property
    def peak_memory_mb(self) -> float:
        """The peak, in megabytes."""
        return self.peak_memory_bytes / runtime.MIB

    @property
    def average_memory_mb(self) -> float:
        """The mean, in megabytes."""
        return self.average_memory_bytes / runtime.MIB

    @property
    def duration(self) -> float:
        """Seconds between its start and its end."""
        return self.end_time - self.start_time
