"""A module that stands in for PyTorch where a test needs a GPU there is none of. Fixed numbers, no memory."""

from __future__ import annotations

import os
import types
from typing import Any

GB = 1 << 30


class Device:
    """`torch.device`."""

    def __init__(self, name: str) -> None:
        self.type, _, number = name.partition(":")
        self.index = int(number) if number else None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class OutOfMemoryError(RuntimeError):
    """`torch.cuda.OutOfMemoryError`."""


def make() -> types.ModuleType:
    """One CUDA device of 16 GiB: 2 allocated, 3 reserved, 5 in use as the driver sees it."""
    torch = types.ModuleType("torch")
    calls: list[str] = []
    # As PyTorch before 2.4, unless STAND_IN_UUID names the device.
    uuid = os.environ.get("STAND_IN_UUID")
    device_id = {} if uuid is None else {"uuid": uuid}
    stats = {
        "allocated_bytes.all.current": 2 * GB,
        "reserved_bytes.all.current": 3 * GB,
        "active_bytes.all.current": 2 * GB,
        "inactive_split_bytes.all.current": GB,
    }
    cuda = types.SimpleNamespace(
        OutOfMemoryError=OutOfMemoryError,
        is_available=lambda: True,
        current_device=lambda: 0,
        device_count=lambda: 1,
        memory_allocated=lambda device: 2 * GB,
        memory_reserved=lambda device: 3 * GB,
        max_memory_allocated=lambda device: 2 * GB,
        max_memory_reserved=lambda device: 3 * GB,
        mem_get_info=lambda device: (11 * GB, 16 * GB),
        memory_stats=lambda device: dict(stats),
        get_device_name=lambda device: "Stand-in",
        get_device_capability=lambda device: (9, 0),
        get_device_properties=lambda device: types.SimpleNamespace(
            total_memory=16 * GB, multi_processor_count=1, **device_id
        ),
        empty_cache=lambda: calls.append("empty_cache"),
        synchronize=lambda: calls.append("synchronize"),
    )
    mps = types.SimpleNamespace(
        current_allocated_memory=lambda: GB,
        driver_allocated_memory=lambda: 2 * GB,
        recommended_max_memory=lambda: 8 * GB,
    )
    parts: dict[str, Any] = {
        "__version__": "0",
        "device": Device,
        "cuda": cuda,
        "mps": mps,
        "calls": calls,
        "version": types.SimpleNamespace(cuda="12.0", hip=None),
        "backends": types.SimpleNamespace(
            mps=types.SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
        ),
    }
    for name, part in parts.items():
        setattr(torch, name, part)
    return torch
