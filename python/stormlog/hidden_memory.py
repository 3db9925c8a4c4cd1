"""GPU memory of this process that PyTorch's allocator does not know: context, kernels, NCCL, graphs.

The driver says what the process holds, the allocator what it reserved; the difference is hidden. It is split
by when it grew: each growth belongs to what happened since the reading before (`mark` names it, or it is
found out). Must never touch a device that has no context yet, and never wait for one.

    from stormlog import hidden_memory

    hidden_memory.mark("nccl")          # what grew until here is NCCL's
    print(hidden_memory.report(0)["parts"])
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stormlog import _native, cuda_driver
from stormlog._torch.cuda_snapshot import allocator_segments
from stormlog.device_collectors import cuda_uuid

__all__ = ["HiddenMemory", "Reading", "mark", "measure", "report"]

CONTEXT, MODULES, NCCL, GRAPHS = "context", "modules_and_libraries", "nccl", "cuda_graphs"
# The driver hands out memory in pieces of this size; less is noise.
_STEP = 2 << 20


class Reading(NamedTuple):
    """A device at one moment; None is unknown. `own` is this process's share of `used`."""

    used: int | None
    free: int | None
    total: int | None
    own: int | None
    reserved: int
    others: tuple[tuple[int, int | None], ...] | None = None


class HiddenMemory:
    """The hidden memory of one device and its parts, built up from readings."""

    def __init__(self, device: int, used_before: int | None = None) -> None:
        self.device = device
        self.parts: dict[str, int] = {}
        self._before = used_before
        self._hidden: int | None = None
        self._peak = 0
        self._last: Reading | None = None
        self._is_settled = False
        # Grown since the last mark, under names that were found out.
        self._unmarked: dict[str, int] = {}
        self._lock = threading.Lock()

    def observe(self, reading: Reading, cause: Callable[[], str]) -> None:
        """Take a reading into account; what grew since the last one belongs to the cause, asked only then."""
        with self._lock:
            self._last = reading
            hidden = self._hidden_in(reading)
            if hidden is None:
                return
            growth = hidden - (self._hidden or 0)
            if 0 < growth < _STEP and self._hidden is not None:
                return  # kept for later, where it may become a step
            self._hidden = hidden
            self._peak = max(self._peak, hidden)
            if growth > 0:
                # Until the allocator holds something the context is still being made.
                name = cause() if self._is_settled else CONTEXT
                self.parts[name] = self.parts.get(name, 0) + growth
                if self._is_settled:
                    self._unmarked[name] = self._unmarked.get(name, 0) + growth
            elif growth < 0:
                self._shrink(-growth)
            self._is_settled = self._is_settled or reading.reserved > 0

    def mark(self, name: str) -> None:
        """Attribute the growth since the last mark to `name`."""
        with self._lock:
            for found, size in self._unmarked.items():
                moved = min(size, self.parts.get(found, 0))
                if moved and found != name:
                    self._take(found, moved)
                    self.parts[name] = self.parts.get(name, 0) + moved
            self._unmarked.clear()

    def report(self) -> dict[str, Any]:
        """The last reading, the hidden memory in it and its parts, largest first."""
        with self._lock:
            last = self._last
            parts = dict(sorted(self.parts.items(), key=lambda part: part[1], reverse=True))
            hidden, peak = self._hidden, self._peak
        if last is None:
            return {"device_index": self.device, "hidden_bytes": None, "parts": {}}
        others = last.others
        return {
            "device_index": self.device,
            "device_total_bytes": last.total,
            "device_used_bytes": last.used,
            "device_free_bytes": last.free,
            "process_bytes": last.own,
            "is_process_known": last.own is not None,
            "reserved_bytes": last.reserved,
            "hidden_bytes": hidden,
            "peak_hidden_bytes": peak,
            "parts": parts,
            "other_processes_bytes": self._others_in(last),
            "other_processes": [
                {"pid": pid, "bytes": size, "name": _name(pid)} for pid, size in others or () if size != 0
            ],
        }

    def _others_in(self, reading: Reading) -> int | None:
        if reading.own is not None and reading.used is not None:
            return max(reading.used - reading.own, 0)
        return self._before

    def _hidden_in(self, reading: Reading) -> int | None:
        """By the driver's number for this process, or by what the device had in use before it came."""
        if reading.own is not None:
            return max(reading.own - reading.reserved, 0)
        if reading.used is None or self._before is None:
            return None
        return max(reading.used - self._before - reading.reserved, 0)

    def _shrink(self, size: int) -> None:
        """What came last goes first; the context stays as long as it can."""
        names = [CONTEXT, *(name for name in self.parts if name != CONTEXT)]
        for name in reversed(names):
            taken = min(size, self.parts.get(name, 0))
            size -= taken
            self._take(name, taken)

    def _take(self, name: str, size: int) -> None:
        left = self.parts.get(name, 0) - size
        self.parts[name] = left
        if left == 0:
            del self.parts[name]


class Driver:
    """One device by its driver; by CUDA's own call where the driver cannot be asked."""

    def __init__(self, torch: Any, index: int) -> None:
        self._torch = torch
        self._index = index
        uuid = cuda_uuid(torch, index)
        self._gpu = None if uuid is None else _native.cuda.Gpu.find(uuid)

    def memory(self) -> tuple[int | None, int | None, int | None]:
        """Used, free and total of the whole device."""
        found = None if self._gpu is None else self._gpu.memory()
        if found is not None:
            return found.used, found.free, found.total
        if not has_context(self._torch, self._index):
            return None, None, None
        free, total = self._torch.cuda.mem_get_info(self._index)
        return int(total - free), int(free), int(total)

    def read(self, reserved: int, *, with_processes: bool = True) -> Reading:
        """A reading, with the other processes on the device."""
        used, free, total = self.memory()
        found = self._gpu.processes() if self._gpu is not None and with_processes else None
        me = os.getpid()
        own = None if found is None else dict(found).get(me)
        # Numbers of another namespace, as in a container: which of them is us is not known.
        others = None if found is None or own is None else tuple(row for row in found if row[0] != me)
        return Reading(used, free, total, own, reserved, others)


_KNOWN: dict[int, tuple[Driver, HiddenMemory]] = {}
_LOCK = threading.Lock()
_LAST_STATE: dict[int, tuple[int, int]] = {}


def measure(device: int = 0) -> HiddenMemory | None:
    """Read a device now; None where it has no context."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or not has_context(torch, device):
        return None
    with _LOCK:
        driver, hidden = _KNOWN.get(device) or _KNOWN.setdefault(device, _made(torch, device))
        reading = driver.read(_reserved(torch, device))
        # An allocation between the two readings would look like hidden memory.
        if reading.reserved == _reserved(torch, device):
            hidden.observe(reading, lambda: _found_out(torch, device))
    return hidden


def mark(name: str, device: int = 0) -> dict[str, Any]:
    """Say what happened since the last mark: what is new in hidden memory is that."""
    hidden = measure(device)
    if hidden is not None:
        hidden.mark(name)
    return report(device)


def report(device: int = 0) -> dict[str, Any]:
    """The parts of a device's hidden memory, as of now."""
    hidden = measure(device)
    found = HiddenMemory(device).report() if hidden is None else hidden.report()
    return {**found, "driver_events": cuda_driver.report(device)} if cuda_driver.was_heard() else found


def begin(device: int, driver: Driver, used_before: int | None) -> None:
    """Know what the device had in use before this process came to it."""
    with _LOCK:
        _KNOWN.setdefault(device, (driver, HiddenMemory(device, used_before)))


def forget() -> None:
    """For a forked child, which has no context, and whose parent may have held the lock."""
    global _LOCK
    _LOCK = threading.Lock()
    _KNOWN.clear()
    _LAST_STATE.clear()


def has_context(torch: Any, index: int) -> bool:
    """Whether this process has a context there; to ask a device without one would make one."""
    ask = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(torch.cuda.is_initialized()) if ask is None else bool(ask(index))


def _made(torch: Any, device: int) -> tuple[Driver, HiddenMemory]:
    return Driver(torch, device), HiddenMemory(device)


def _found_out(torch: Any, device: int) -> str:
    """The library that allocated it, by driver events; else what is new: a communicator, a graph, kernels."""
    owner = cuda_driver.grown(device, _STEP)
    if owner is not None:
        return owner
    before = _LAST_STATE.get(device, (0, 0))
    now = (_communicators(torch), _private_pools(torch, device))
    _LAST_STATE[device] = now
    return NCCL if now[0] > before[0] else GRAPHS if now[1] > before[1] else MODULES


def _communicators(torch: Any) -> int:
    """NCCL groups that have a communicator; those that cannot tell count as having one."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    count = 0
    try:
        groups = list(distributed._world.pg_map.items()) if distributed is not None else []
        for group, (backend, _) in groups:
            if "nccl" in str(backend):
                inner = group._get_backend(torch.device("cuda"))
                count += bool(getattr(inner, "_is_initialized", lambda: True)())
    except Exception:
        return count
    return count


def _private_pools(torch: Any, device: int) -> int:
    """Pools that graphs and the user have to themselves. Asked without traces, or not at all."""
    pools = {
        tuple(segment.get("segment_pool_id") or (0, 0))
        for segment in allocator_segments(torch) or ()
        if segment.get("device") == device
    }
    return len(pools - {(0, 0)})


def _reserved(torch: Any, index: int) -> int:
    ask = getattr(torch._C, "_cuda_memoryStats", None)
    if ask is not None:
        try:
            return int(ask(index)["reserved_bytes"]["all"]["current"])
        except (KeyError, TypeError):
            pass  # another allocator behind the same call
    return int(torch.cuda.memory_reserved(index))


def _name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
