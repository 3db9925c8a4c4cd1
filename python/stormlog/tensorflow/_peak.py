"""The highest memory inside a block: on a GPU by TensorFlow's own peak, on the CPU by the kernel's and both.

There is one peak a device for the whole process, so blocks inside blocks and in other threads share it: each
hands what the peak had reached to the others before it resets it.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, Protocol

from stormlog import _native
from stormlog._tracking.peak import PeakOfCall
from stormlog.tensorflow import _runtime


class Highest(NamedTuple):
    """The most bytes that were held inside a block, and how far above its start the block went."""

    held: int
    increase: int


class BlockPeak(Protocol):
    """A block whose peak is wanted, from its making to `end`."""

    def end(self) -> Highest:
        """The peak; zeros where it could not be measured."""


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
            self._peak = self._before = _runtime.pool_memory(tf, device)[0]
            _OPEN.append(self)

    def end(self) -> Highest:
        """The most that tensors held."""
        with _LOCK:
            self._share()
            _OPEN.remove(self)
        return Highest(self._peak, self._peak - self._before)

    def _share(self) -> None:
        _, highest = _runtime.pool_memory(self._tf, self._device)
        for block in _OPEN:
            if block._device == self._device:
                block._peak = max(block._peak, highest)


class _HostPeak:
    """A block on the CPU.

    The allocator of oneDNN keeps what tensors free, and hands it out again without a change of the resident
    memory. So what tensors took counts as an increase, and only what was resident as held.
    """

    def __init__(self, tf: Any, probe: _native.tracking.ProcessProbe) -> None:
        self._call = PeakOfCall(probe)
        self._tensors = _DevicePeak(tf, _HOST)
        self._before = probe.memory()[0]

    def end(self) -> Highest:
        """The most that was resident."""
        taken, resident = self._tensors.end().increase, self._call.end() or 0
        return Highest(resident, max(taken, resident - self._before))


def begin_peak(tf: Any, device: str, probe: _native.tracking.ProcessProbe) -> BlockPeak:
    """A block on this device."""
    return _DevicePeak(tf, device) if _runtime.is_gpu(device) else _HostPeak(tf, probe)


def held(tf: Any, device: str, probe: _native.tracking.ProcessProbe) -> int:
    """Bytes held now: by tensors on a GPU, by the process on the CPU."""
    return _runtime.device_memory(tf, device)[0] if _runtime.is_gpu(device) else probe.memory()[0]
