"""The collector of one JAX device: its allocator's counters.

`reserved` is the pool that JAX has taken from the driver; `total` is the limit of that pool, at which an
allocation fails. The driver's own number for the device is sampled from outside.
"""

from __future__ import annotations

from typing import Any

from stormlog._jax import runtime
from stormlog._jax.preallocation import Preallocation, limit_bytes, peak_bytes, pool_bytes
from stormlog.device_collectors import (
    DeviceMemoryCapabilities,
    DeviceMemoryCollector,
    DeviceMemorySample,
    DeviceMemorySampleResult,
)

COLLECTOR = "stormlog.jax.memory_tracker"
SOURCE = "jax_device_stats"
_FACTS = ("largest_free_block_bytes", "num_allocs")


class JaxDeviceCollector(DeviceMemoryCollector):
    """A device as JAX numbers it. A device without counters has no samples."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.preallocation = Preallocation.of()

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "jax"

    def is_available(self) -> bool:
        """Whether its allocator counts."""
        return runtime.memory_stats(self.device) is not None

    def sample(self) -> DeviceMemorySample:
        """One reading; RuntimeError when there is none."""
        result = self.sample_with_diagnostics()
        if result.sample is None:
            raise RuntimeError(result.core_error or "JAX does not report the memory of this device")
        return result.sample

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """One reading, with the allocator's own peak beside it."""
        stats = runtime.memory_stats(self.device)
        if stats is None:
            return DeviceMemorySampleResult(None, core_error=why_unknown(self.device))
        in_use, limit = stats["bytes_in_use"], limit_bytes(stats, self.preallocation)
        pool = pool_bytes(stats, self.preallocation)
        missing = {
            field: "not reported by JAX"
            for field, value in (("allocator_reserved_bytes", pool), ("device_total_bytes", limit))
            if value is None
        }
        number = max(runtime.number_of(self.device), 0)
        sample = DeviceMemorySample(in_use, pool, None, None, limit, None, None, number)
        facts = {name: stats[name] for name in _FACTS if name in stats}
        peak = peak_bytes(stats, self.preallocation)
        if peak is not None:
            facts["peak_bytes_in_use"] = peak
        facts["jax_preallocated"] = int(self.preallocation.is_on)
        return DeviceMemorySampleResult(sample, tuple(missing), missing, facts=facts)

    def capabilities(self) -> DeviceMemoryCapabilities:
        """The pool, and what of it is in use. Its unused part is a reserve, not fragmentation."""
        return DeviceMemoryCapabilities(
            backend="jax",
            telemetry_collector=COLLECTOR,
            sampling_source=SOURCE,
            supports_allocator_allocated=True,
            supports_allocator_reserved=True,
            supports_device_total=True,
        )


def why_unknown(device: Any) -> str:
    """Why a device has no counters."""
    if device.platform == "cpu":
        return "JAX does not count the memory of the CPU; `stormlog run` records the host's"
    return f"JAX does not report the memory of {device} (memory_stats() has no bytes_in_use)"
