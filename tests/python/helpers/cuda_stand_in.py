"""A stand-in for PyTorch on CUDA whose allocator counts: what a test allocates is in its counters.

No device and no real memory; the rules of the counters (peaks, resets, ever allocated) are those of PyTorch's
caching allocator. The real ones are checked by tests/gpu on a GPU.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch_stand_in

GB = 1 << 30
MB = 1 << 20


class Tensor:
    """`torch.Tensor`: some bytes at an address of a device."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        self.allocator, self.size = allocator, size
        self.device = torch_stand_in.Device(f"cuda:{allocator.index}")
        self.is_cuda, self.requires_grad, self.is_leaf = True, False, True
        self.grad: Tensor | None = None
        self.grad_fn: object = None
        self.shape, self.dtype = (size,), "torch.uint8"
        self.address = allocator.take(size)

    def untyped_storage(self) -> Tensor:
        return self

    def data_ptr(self) -> int:
        return self.address

    def nbytes(self) -> int:
        return self.size

    def nelement(self) -> int:
        return self.size

    def element_size(self) -> int:
        return 1

    def free(self) -> None:
        self.allocator.give(self.size)


class Parameter(Tensor):
    """`torch.nn.Parameter`."""


class Optimizer:
    """`torch.optim.Optimizer`: tensors by the parameter they are of."""

    def __init__(self, **state: Any) -> None:
        self.state = state


class Module:
    """`torch.nn.Module`: named tensors."""

    def __init__(self, **parameters: Tensor) -> None:
        self.parameters_by_name = parameters
        self.kept: list[Tensor] = []

    def named_parameters(self, recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters_by_name.items()

    def named_buffers(self, recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        yield from ()

    def buffers(self) -> Iterator[Tensor]:
        yield from self.kept


class Allocator:
    """One device's caching allocator, by its counters."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.current = self.peak = self.ever = self.freed = 0
        self.reserved = self.reserved_peak = 0
        self.next_address = 0x7000_0000

    def take(self, size: int) -> int:
        self.current += size
        self.ever += size
        self.peak = max(self.peak, self.current)
        self.reserved = max(self.reserved, self.current)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.next_address += size
        return self.next_address - size

    def give(self, size: int) -> None:
        self.current -= size
        self.freed += size

    def reset_peak(self) -> None:
        self.peak, self.reserved_peak = self.current, self.reserved

    def empty_cache(self) -> None:
        self.reserved = self.current

    def stats(self) -> dict[str, Any]:
        numbers = {
            "allocated_bytes": (self.current, self.peak, self.ever, self.freed),
            "active_bytes": (self.current, self.peak, self.ever, self.freed),
            "reserved_bytes": (self.reserved, self.reserved_peak, 0, 0),
            "inactive_split_bytes": (0, 0, 0, 0),
        }
        kinds = ("current", "peak", "allocated", "freed")
        return {name: {"all": dict(zip(kinds, row, strict=True))} for name, row in numbers.items()}

    def flat(self) -> dict[str, int]:
        return {
            f"{name}.all.{kind}": value
            for name, pools in self.stats().items()
            for kind, value in pools["all"].items()
        }


class History:
    """`torch.cuda.memory`: recording, with the signature of a PyTorch of 2.1 or later, or an older one."""

    def __init__(self, is_newer: bool, segments: Callable[[], list[dict[str, Any]]]) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.is_on = False
        self._segments = segments
        self._record_memory_history: Callable[..., None] = self._newer if is_newer else self._older

    def _newer(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1 << 62,
        device: Any = None,
        clear_history: bool = False,
    ) -> None:
        assert not isinstance(enabled, bool)
        self.calls.append(((enabled,), {"context": context, "stacks": stacks, "max_entries": max_entries}))
        self.is_on = enabled is not None

    def _older(
        self,
        enabled: bool,
        record_context: bool = True,
        trace_alloc_max_entries: int = 1,
        trace_alloc_record_context: bool = False,
        device: Any = None,
    ) -> None:
        assert isinstance(enabled, bool)
        self.calls.append(((enabled,), {"trace_alloc_max_entries": trace_alloc_max_entries}))
        self.is_on = enabled

    def _snapshot(self, device: Any = None) -> dict[str, Any]:
        return {"segments": self._segments(), "device_traces": [[]], "allocator_settings": {"x": 1}}


def make(devices: int = 1, newer_history: bool = True, cheap_stats: bool = True) -> Any:
    """PyTorch with these devices: their `torch.allocators`; `torch.waits` counts synchronisations."""
    torch: Any = torch_stand_in.make()
    allocators = [Allocator(index) for index in range(devices)]
    torch.allocators, torch.waits = allocators, []
    torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Module=Module, Parameter=Parameter)
    torch.optim = types.SimpleNamespace(Optimizer=Optimizer)

    def of(device: Any) -> Allocator:
        index = getattr(device, "index", device)
        return allocators[index or 0]

    def empty_cache() -> None:
        for allocator in allocators:
            allocator.empty_cache()

    def segments() -> list[dict[str, Any]]:
        blocks = [{"address": 0x7000_0000, "size": MB, "state": "active_allocated"}]
        return [{"address": 0x7000_0000, "stream": 0, "device": 0, "blocks": blocks}]

    torch.history = History(newer_history, segments)
    cuda = torch.cuda
    cuda.memory = torch.history
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: devices
    cuda.memory_allocated = lambda device=None: of(device).current
    cuda.memory_reserved = lambda device=None: of(device).reserved
    cuda.max_memory_allocated = lambda device=None: of(device).peak
    cuda.max_memory_reserved = lambda device=None: of(device).reserved_peak
    cuda.memory_stats = lambda device=None: of(device).flat()
    cuda.mem_get_info = lambda device=None: (16 * GB - of(device).reserved - GB, 16 * GB)
    cuda.reset_peak_memory_stats = lambda device=None: of(device).reset_peak()
    cuda.synchronize = lambda device=None: torch.waits.append(device)
    cuda.empty_cache = empty_cache
    torch._C = types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: torch.history.is_on)
    if cheap_stats:
        torch._C._cuda_memoryStats = lambda index: allocators[index].stats()
    return torch
