"""What the memory of a PyTorch program is for: weights, KV cache, activations, workspaces, other.

Private. The storage of every live tensor is counted once; on a CUDA device the allocator's blocks are, so
that the components sum to what is allocated. What the program named comes first (`stormlog.component`), then
what the names of its attributes tell, then what PyTorch knows of a tensor. Keeps no tensor, uses no device.
"""

from __future__ import annotations

import pickle
import sys
import warnings
import weakref
from collections import defaultdict
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._torch import component_names
from stormlog._torch.cuda_categories import (
    categories_of_storages,
    memory_categories,
    responsible,
    tensor_categories,
    tensors_in,
    workspace_bytes,
)
from stormlog._torch.cuda_snapshot import allocator_snapshot
from stormlog._torch.live_objects import live_objects
from stormlog._torch.recorded_stacks import complete
from stormlog.cuda_native_debug import private_file

_OF_CATEGORY = {
    "parameters": "weights",
    "buffers": "weights",
    "gradients": "gradients",
    "optimizer_state": "optimizer_state",
    "activations": "activations",
    "workspaces": "workspaces",
    "graph_pools": "graph_pools",
}
OTHER = "other"
_HOLDERS = 8
_OWN_CODE = str(Path(__file__).parents[1])


def look(torch: Any, directory: Path, notes: list[str]) -> dict[str, Any]:
    """The parts of a snapshot that PyTorch knows; the state of its CUDA allocator goes into the directory."""
    with warnings.catch_warnings():
        # Looking at everything there is wakes up every deprecation there is.
        warnings.simplefilter("ignore")
        sizes, words = storages(torch)
    found: dict[str, Any] = {"memories": [], "components": _rows("host", sizes.get("host", {}), words)}
    if torch.cuda.is_initialized():
        _look_at_cuda(torch, directory, notes, found, sizes, words)
    for memory in sizes:
        if memory != "host" and not memory.startswith("cuda:"):
            rows = _rows(memory, sizes[memory], words)
            found["components"] += rows
            found["memories"].append({"memory": memory, "bytes": sum(row["bytes"] for row in rows)})
    found["components"].sort(key=lambda row: row["bytes"], reverse=True)
    return found


def storages(torch: Any) -> tuple[dict[str, dict[int, int]], dict[int, str]]:
    """The size of each storage by memory and address, and the component of each address."""
    objects = live_objects()
    tensors = [thing for thing in objects if issubclass(type(thing), torch.Tensor)]
    categories = categories_of_storages(torch, tensors, objects)
    # Python's collector knows a gradient only after it was asked for.
    tensors += [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
    sizes: dict[str, dict[int, int]] = defaultdict(dict)
    for tensor in tensors:
        address = component_names.address_of(tensor)
        if address:
            device = tensor.device
            memory = "host" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
            sizes[memory][address] = int(tensor.untyped_storage().nbytes())
    words = {address: _OF_CATEGORY.get(category, OTHER) for address, category in categories.items()}
    for address in _of_running_modules(torch):
        if words.get(address) == OTHER:
            words[address] = "activations"
    refs = [weakref.ref(tensor) for tensor in tensors]
    holders = [thing for thing in objects if not issubclass(type(thing), torch.Tensor)]
    # The search takes a while: what a forward pass frees meanwhile must not be kept by it.
    tensor = None
    del objects, tensors
    words.update(component_names.found_storages(refs, holders))
    words.update(component_names.named_storages())
    return sizes, words


def _of_running_modules(torch: Any) -> set[int]:
    """The storages that local variables hold of modules which are being called: inference has no graph."""
    found: set[int] = set()
    for frame in sys._current_frames().values():
        inner: list[Any] = []
        held: list[Any] = []
        current: Any = frame
        while current is not None:
            code = current.f_code
            # Where the program asks in a module, the variables of the search lead to every tensor.
            if not code.co_filename.startswith(_OWN_CODE):
                inner.append(current)
            if code.co_name == "_call_impl" and code.co_filename.endswith("module.py"):
                held, inner = [*held, *inner], []
            current = current.f_back
        for one in held:
            for tensor in tensors_in(torch, list(one.f_locals.values())):
                found.add(component_names.address_of(tensor))
    return found


def _look_at_cuda(
    torch: Any,
    directory: Path,
    notes: list[str],
    found: dict[str, Any],
    sizes: dict[str, dict[int, int]],
    words: dict[int, str],
) -> None:
    snapshot: dict[str, Any] | None = None
    try:
        snapshot = allocator_snapshot(torch)
    except Exception as error:  # cudaMallocAsync, or an allocator of the program's
        notes.append(f"the CUDA allocator lists no blocks: {str(error).splitlines()[0]}")
    devices = sorted({int(segment.get("device", 0)) for segment in (snapshot or {}).get("segments", [])})
    if snapshot is None:
        devices = sorted(int(memory.split(":")[1]) for memory in sizes if memory.startswith("cuda:"))
    holders: list[dict[str, Any]] = []
    for device in devices:
        memory = f"cuda:{device}"
        index = {
            "device_index": device,
            "attributed_storage_pointers": [
                {"storage_ptr_int": address, "storage_bytes": size, "category": words.get(address, OTHER)}
                for address, size in sizes.get(memory, {}).items()
            ],
        }
        if snapshot is None:
            allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
            parts = tensor_categories(index, int(allocated), int(reserved))
        else:
            complete(snapshot, device, None, None, ())
            parts = memory_categories(snapshot, index, workspace_bytes(torch, device))
            holders += _holders(memory, parts)
        found["memories"].append(
            {
                "memory": memory,
                "bytes": parts["allocated_bytes"],
                "reserved_bytes": parts["reserved_bytes"],
                "free_in_cache_bytes": parts.get("free_in_cache_bytes"),
            }
        )
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        known = set(words.values())
        for name, part in parts["categories"].items():
            word = name if name in known else _OF_CATEGORY.get(name, OTHER)
            sums[word][0] += part["bytes"]
            sums[word][1] += part["blocks"]
        found["components"] += [
            {"component": word, "memory": memory, "bytes": size, "count": count}
            for word, (size, count) in sums.items()
        ]
    if holders:
        found["holders"] = holders
    if snapshot is not None and devices:
        name = _native.oom.CUDA_SNAPSHOT_FILE
        with private_file(directory / name) as file:
            pickle.dump(snapshot, file, protocol=4)
        found["allocator_snapshot"] = name


def _holders(memory: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines that hold most of a device, by the stacks of its blocks."""
    sums: dict[str, int] = defaultdict(int)
    for row in parts.get("top_stacks", []):
        line = responsible(row["frames"])
        if line is not None:
            sums[line[0]] += int(row["bytes"])
    largest = sorted(sums.items(), key=lambda item: item[1], reverse=True)[:_HOLDERS]
    return [_held(memory, place, size) for place, size in largest]


def _held(memory: str, frame: str, size: int) -> dict[str, Any]:
    place, _, function = frame.rpartition(" ")
    file, _, line = place.rpartition(":")
    number = int(line) if line.isdigit() else 0
    return {"memory": memory, "bytes": size, "file": file, "line": number, "function": function}


def _rows(memory: str, sizes: dict[int, int], words: dict[int, str]) -> list[dict[str, Any]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for address, size in sizes.items():
        total = sums[words.get(address, OTHER)]
        total[0] += size
        total[1] += 1
    return [
        {"component": word, "memory": memory, "bytes": size, "count": count}
        for word, (size, count) in sums.items()
        if size > 0
    ]
