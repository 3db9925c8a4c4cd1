"""The highest memory inside a block: on a GPU by TensorFlow's own peak, on the CPU by the kernel's and both.

There is one peak a device for the whole process, so blocks inside blocks and in other threads share it: each
hands what the peak had reached to the others before it resets it.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from stormlog import _native
from stormlog._tracking.peak import PeakOfCall
from stormlog.tensorflow import _runtime


class BlockPeak(Protocol):
    """A block whose peak is wanted, from its making to `end`."""

    def end(self) -> int | None:
        """The highest number of bytes; None when it could not be measured."""


_LOCK = threading.Lock()
_OPEN: list[_DevicePeak] = []
_HOST = "CPU:0"


class _DevicePeak:
    """A block on a device whose allocator counts."""

    def __init__(self, tf: Any, device: str) -> None:
        self._tf = tf
        self._device = device
        with _LOCK:
            self._share()
            _runtime.forget_peak(tf, device)
            self._peak = _runtime.pool_memory(tf, device)[0]
            _OPEN.append(self)

    def end(self) -> int | None:
        """The most that tensors held."""
        with _LOCK:
            self._share()
            _OPEN.remove(self)
        return self._peak

    def _share(self) -> None:
        _, highest = _runtime.pool_memory(self._tf, self._device)
        for block in _OPEN:
            if block._device == self._device:
                block._peak = max(block._peak, highest)


class _HostPeak:
    """A block on the CPU.

    The allocator of oneDNN keeps what tensors free, and hands it out again without a change of the resident
    memory. So the peak is that of the kernel, or the start with what tensors took above it, if that is more.
    """

    def __init__(self, tf: Any, probe: _native.tracking.ProcessProbe) -> None:
        self._call = PeakOfCall(probe)
        self._tensors = _DevicePeak(tf, _HOST)
        self._held_before = _runtime.pool_memory(tf, _HOST)[0]
        self._before = probe.memory()[0]

    def end(self) -> int | None:
        """The most that was resident, or would have been without the allocator's store."""
        taken = (self._tensors.end() or 0) - self._held_before
        resident = self._call.end()
        return None if resident is None else max(resident, self._before + taken)


def begin_peak(tf: Any, device: str, probe: _native.tracking.ProcessProbe) -> BlockPeak:
    """A block on this device."""
    return _DevicePeak(tf, device) if _runtime.is_gpu(device) else _HostPeak(tf, probe)


def held(tf: Any, device: str, probe: _native.tracking.ProcessProbe) -> int:
    """Bytes held now: by tensors on a GPU, by the process on the CPU."""
    return _runtime.device_memory(tf, device)[0] if _runtime.is_gpu(device) else probe.memory()[0]
