"""The memory of a GPU as TensorFlow's allocator reports it.

`current` is what tensors hold; the allocator's limit is the size of the device for a TensorFlow program:
beyond it an allocation fails, whatever the driver has left. Never makes TensorFlow's devices: the program may
still configure them. Until it has them nothing is held, and no limit is known.
"""

from __future__ import annotations

from typing import Any

from stormlog.device_collectors import (
    DeviceMemoryCapabilities,
    DeviceMemoryCollector,
    DeviceMemorySample,
    DeviceMemorySampleResult,
)
from stormlog.tensorflow import _runtime

COLLECTOR_NAME = "stormlog.tensorflow.memory_tracker"


class TensorFlowCollector(DeviceMemoryCollector):
    """One GPU of a TensorFlow program."""

    def __init__(self, tf: Any, device: str) -> None:
        self._tf = tf
        self.device = device
        number = device.rpartition(":")[2]
        self.device_id = int(number) if number.isdigit() else 0
        self._limit: int | None = None

    def name(self) -> str:
        """The backend: cuda, rocm, or gpu where the build does not tell."""
        build = _runtime.build_info(self._tf)
        if build.get("is_cuda_build"):
            return "cuda"
        return "rocm" if build.get("is_rocm_build") else "gpu"

    def is_available(self) -> bool:
        """Whether TensorFlow sees a GPU."""
        return bool(_runtime.gpus(self._tf))

    def sample(self) -> DeviceMemorySample:
        """One reading; raises where TensorFlow has no such device."""
        if not _runtime.is_started():
            return DeviceMemorySample(0, 0, 0, None, None, None, None, self.device_id)
        if self._limit is None:
            self._limit = _runtime.memory_limit(self._tf, self.device_id)
        held = int(self._tf.config.experimental.get_memory_info(self.device)["current"])
        limit = None if self._limit is None else max(self._limit, held)
        free = None if limit is None else limit - held
        # There is no counter of its own for what is reserved; 0.4.3 has the same number there.
        return DeviceMemorySample(held, held, held, free, limit, None, None, self.device_id)

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """One reading, and why it has no limit where it has none."""
        result = super().sample_with_diagnostics()
        if result.sample is None or result.sample.total_bytes is not None:
            return result
        reason = "TensorFlow does not report it" if _runtime.is_started() else "TensorFlow has no devices yet"
        missing = dict.fromkeys(("device_free_bytes", "device_total_bytes"), reason)
        return DeviceMemorySampleResult(result.sample, tuple(missing), missing)

    def capabilities(self) -> DeviceMemoryCapabilities:
        """What tensors hold, and the limit once the program has its devices."""
        return DeviceMemoryCapabilities(
            self.name(),
            COLLECTOR_NAME,
            "tf.config.experimental.get_memory_info",
            supports_allocator_allocated=True,
            supports_allocator_reserved=True,
            supports_device_used=True,
            supports_device_free=True,
            supports_device_total=True,
        )
