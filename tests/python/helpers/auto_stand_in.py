"""A stand-in for PyTorch on CUDA that starts when first used, runs out of memory and notifies observers.

No device and no real memory. What calls what, and in which order, is PyTorch's; tests/gpu checks it on a GPU.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import cuda_stand_in
from cuda_stand_in import GB, MB

# As the allocator has it: what is not handed out of a segment is one free block at its end.
SEGMENT = 64 * MB


class Cuda:
    """The state of the stand-in: `torch.stand_in`."""

    def __init__(self, torch: Any, limit: int) -> None:
        self.torch = torch
        self.limit = limit
        self.contexts: set[int] = set()
        self.is_initialized = False
        self.queued: list[Callable[[], object]] = []
        self.observers: list[Callable[[int, int, int, int], object]] = []
        self.live: weakref.WeakSet[cuda_stand_in.Tensor] = weakref.WeakSet()
        self.frames: dict[int, list[dict[str, Any]]] = {}
        self.trace: list[dict[str, Any]] = []

    def lazy_call(self, call: Callable[[], object]) -> None:
        call() if self.is_initialized else self.queued.append(call)

    def use(self, device: int = 0) -> None:
        """What the first tensor on a device does."""
        if not self.is_initialized:
            for call in self.queued:
                call()
            self.is_initialized = True
        self.contexts.add(device)

    def take(self, size: int, device: int = 0, kind: type[Any] = cuda_stand_in.Tensor) -> Any:
        """`torch.empty(size, device="cuda")`."""
        self.use(device)
        allocator = self.torch.allocators[device]
        frames = stack()
        if allocator.current + size > self.limit:
            self.trace.append(
                {
                    "action": "oom",
                    "device_free": 8 * GB,
                    "size": size,
                    "stream": 0,
                    "time_us": 1,
                    "frames": frames,
                }
            )
            for observer in self.observers:
                observer(device, size, self.limit, 8 * GB)
            raise self.torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / MB:.2f} MiB.")
        tensor = kind(allocator, size)
        self.frames[tensor.address] = frames
        self.live.add(tensor)
        # As the real one: memory comes back when nobody holds the tensor.
        weakref.finalize(tensor, allocator.give, size)
        return tensor

    def segments(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [
            {
                "address": one.address,
                "size": one.size,
                "requested_size": one.size,
                "state": "active_allocated",
                "frames": self.frames[one.address] if self.has_stacks() else [],
            }
            for one in sorted(self.live, key=lambda tensor: tensor.address)
        ]
        held = sum(int(block["size"]) for block in blocks)
        end = max((int(block["address"]) + int(block["size"]) for block in blocks), default=0x7000_0000)
        free: dict[str, Any] = {
            "address": end,
            "size": SEGMENT,
            "requested_size": 0,
            "state": "inactive",
            "frames": [],
        }
        return [
            {
                "device": 0,
                "address": 0x7000_0000,
                "total_size": held + SEGMENT,
                "allocated_size": held,
                "active_size": held,
                "requested_size": held,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [*blocks, free],
            }
        ]

    def has_stacks(self) -> bool:
        """Blocks have frames where the history was started with them."""
        calls = self.torch.history.calls
        return bool(self.torch.history.is_on and calls and calls[-1][1].get("context"))

    def snapshot(self, device: Any = None) -> dict[str, Any]:
        return {
            "segments": self.segments(),
            "device_traces": [list(self.trace) if self.torch.history.is_on else []],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "expandable_segments": False,
                "garbage_collection_threshold": 0.0,
            },
            "external_annotations": [],
        }


def use_another_allocator(torch: Any) -> None:
    """As `backend:cudaMallocAsync`: it counts, and refuses to be recorded, observed or looked into."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support this.\nException raised from C++:\nframe #0")

    def record(enabled: str | None = "all", max_entries: int = 1, device: Any = None) -> None:
        refuse()

    torch.history._record_memory_history = record
    torch.history._snapshot = torch.cuda.memory_snapshot = refuse
    torch._C._cuda_attach_out_of_memory_observer = refuse
    torch._C._cuda_getAllocatorBackend = lambda: "cudaMallocAsync"


def stack() -> list[dict[str, Any]]:
    frames = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
        frame = frame.f_back
    return frames


def make(limit: int = 256 * MB, devices: int = 1) -> Any:
    """PyTorch that may allocate so much; `torch.stand_in` is its state."""
    torch = cuda_stand_in.make(devices)
    cuda = Cuda(torch, limit)
    torch.stand_in = cuda
    torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    torch.cuda.OutOfMemoryError = torch.OutOfMemoryError
    torch.cuda.is_initialized = lambda: cuda.is_initialized
    torch.cuda._lazy_call = cuda.lazy_call
    torch.history._snapshot = cuda.snapshot
    torch._C._cuda_attach_out_of_memory_observer = cuda.observers.append
    torch._C._cuda_hasPrimaryContext = lambda index: index in cuda.contexts
    torch._C._cuda_getAllocatorBackend = lambda: "native"
    return torch
