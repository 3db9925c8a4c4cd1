"""What the memory of a CUDA device is: parameters, gradients, optimizer state, activations and the rest.

By matching the storage of live tensors to the allocator's blocks. What no tensor of Python's explains is said
to be that, not guessed: saved for backward, temporaries and workspaces are C++'s. The sum of all categories
is what is allocated, to the byte. Keeps no tensor, calls nothing on the device.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stormlog._native import code, oom

# The words are those of `oom.GPU_MEMORY_CATEGORIES` (docs/gpu-memory-categories.md).
# Where a storage is several things at once, the first of these.
PRECEDENCE = ("parameters", "gradients", "optimizer_state", "buffers", "activations", "data")
UNEXPLAINED = "unknown"
_TOP_STACKS = 20
_FRAMES = 8
# The function that allocates, and the category it allocates for.
_OWN_FRAMES = 2
_PLACE = re.compile(r"(.*?):(?:\d+|None) ")


def categories_of_storages(torch: Any, tensors: Iterable[Any], objects: list[Any]) -> dict[int, str]:
    """The category of each storage among these tensors and what they lead to, by its address.

    `objects` is everything that may be a module or an optimizer.
    """
    found: dict[str, set[int]] = {name: set() for name in PRECEDENCE}
    for tensor in tensors:
        found[_of_tensor(torch, tensor)].update(_addresses([tensor]))
        if tensor.is_leaf and tensor.grad is not None:
            found["gradients"].update(_addresses([tensor.grad]))
    for thing in objects:
        try:
            if issubclass(type(thing), torch.optim.Optimizer):
                found["optimizer_state"].update(_addresses(tensors_in(torch, thing.state.values())))
            elif issubclass(type(thing), torch.nn.Module):
                found["buffers"].update(_addresses(thing.buffers()))
        except Exception:  # a half-built one must not cost us the others
            continue
    return {address: name for name in reversed(PRECEDENCE) for address in found[name]}


def workspace_bytes(torch: Any, device: int) -> int | None:
    """The size of the workspace cuBLAS has on each stream, as PyTorch chooses it; None when unknown."""
    text = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if not text:
        # Hopper and later have a larger one.
        is_hopper = torch.cuda.get_device_capability(device)[0] >= 9
        return oom.CUBLAS_WORKSPACE_HOPPER_BYTES if is_hopper else oom.CUBLAS_WORKSPACE_BYTES
    try:
        numbers = [int(part) for part in text.split(":") if part]
        return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True)) << 10
    except ValueError:
        return None


def memory_categories(
    snapshot: dict[str, Any], tensor_index: dict[str, Any], workspace: int | None = None
) -> dict[str, Any]:
    """The blocks of one device by category, the stacks that hold most, and what is free in the cache.

    With the size of a workspace, one block of exactly that size on each stream that no tensor of Python's
    explains is taken for one.
    """
    device = tensor_index.get("device_index")
    known = {
        int(entry["storage_ptr_int"]): entry.get("category", "data")
        for entry in tensor_index.get("attributed_storage_pointers", [])
    }
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    stacks: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    free: list[int] = []
    seen: set[Any] = set()
    reserved = 0
    for segment in snapshot.get("segments", []):
        if device is not None and segment.get("device", device) != device:
            continue
        reserved += int(segment.get("total_size") or 0)
        for address, block in placed(segment):
            size, state = int(block.get("size") or 0), block.get("state")
            if state == "inactive":
                free.append(size)
                continue
            name = "awaiting_free"
            if state == "active_allocated":
                is_graphs = tuple(segment.get("segment_pool_id") or (0, 0)) != (0, 0)
                name = known.get(address) or ("graph_pools" if is_graphs else UNEXPLAINED)
                if name == UNEXPLAINED and size == workspace and segment.get("stream") not in seen:
                    seen.add(segment.get("stream"))
                    name = "workspaces"
            _add(sums[name], size)
            _add(stacks[stack_of(block)], size)
    held = sorted(stacks.items(), key=lambda item: item[1][0], reverse=True)[:_TOP_STACKS]
    return {
        "device_index": device,
        "allocated_bytes": sum(size for size, _ in sums.values()),
        "reserved_bytes": reserved,
        "free_in_cache_bytes": sum(free),
        "largest_free_block_bytes": max(free, default=0),
        "categories": _largest_first(sums),
        "top_stacks": [
            {"bytes": size, "blocks": count, "frames": list(frames)} for frames, (size, count) in held
        ],
        "allocator_settings": snapshot.get("allocator_settings"),
    }


def tensor_categories(tensor_index: dict[str, Any], allocated: int, reserved: int) -> dict[str, Any]:
    """The same by live tensors alone, for an allocator that does not tell its blocks (cudaMallocAsync)."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in tensor_index.get("attributed_storage_pointers", []):
        _add(sums[entry.get("category", "data")], int(entry["storage_bytes"]))
    rest = allocated - sum(size for size, _ in sums.values())
    if rest > 0:
        # The number of pieces is unknown.
        sums[UNEXPLAINED] = [rest, 0]
    return {
        "device_index": tensor_index.get("device_index"),
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "categories": _largest_first(sums),
    }


def _largest_first(sums: dict[str, list[int]]) -> dict[str, dict[str, int]]:
    rows = sorted(sums.items(), key=lambda item: item[1][0], reverse=True)
    return {name: {"bytes": size, "blocks": count} for name, (size, count) in rows}


def _of_tensor(torch: Any, tensor: Any) -> str:
    if issubclass(type(tensor), torch.nn.Parameter):
        return "parameters"
    return "activations" if tensor.grad_fn is not None else "data"


def _addresses(tensors: Iterable[Any]) -> Iterator[int]:
    for tensor in tensors:
        try:
            yield int(tensor.untyped_storage().data_ptr())
        except Exception:
            continue


def tensors_in(torch: Any, values: Iterable[Any]) -> Iterator[Any]:
    """The tensors in an optimizer's state or a call's arguments: dictionaries, lists, or themselves."""
    # By hand, for a list may contain itself. `isinstance` would ask a proxy for its class.
    seen: set[int] = set()
    open_ones = [list(values)]
    while open_ones:
        for value in open_ones.pop():
            kind = type(value)
            if issubclass(kind, torch.Tensor):
                yield value
            elif issubclass(kind, (dict, list, tuple)) and id(value) not in seen:
                seen.add(id(value))
                open_ones.append(list(value.values() if issubclass(kind, dict) else value))


def placed(segment: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The blocks of a segment with their addresses; older snapshots leave those to be counted."""
    address = int(segment.get("address") or 0)
    for block in segment.get("blocks", []):
        address = int(block.get("address") or address)
        yield address, block
        address += int(block.get("size") or 0)


def stack_of(block: dict[str, Any]) -> tuple[str, ...]:
    """Where a block was allocated, innermost first; empty where the history does not tell.

    Under a deep library the program's own lines are far out: the first of them are kept all the same.
    """
    frames = block.get("frames") or []
    lines = [f"{frame.get('filename')}:{frame.get('line')} {frame.get('name')}" for frame in frames]
    inner, outer = lines[:_FRAMES], lines[_FRAMES:]
    missing = _OWN_FRAMES - sum(map(is_own, inner))
    return (*inner, *list(filter(is_own, outer))[: max(missing, 0)])


def is_own(frame: str) -> bool:
    """Whether a line of a stack is the program's own code."""
    return code.is_own_code(_file_of(frame))


def responsible(stack: Sequence[str]) -> tuple[str, str | None] | None:
    """The responsible line of a stack (the innermost first), and the own line that calls it."""
    at = code.responsible_frame([_file_of(frame) for frame in stack])
    if at is None:
        return None
    return stack[at], next(filter(is_own, stack[at + 1 :]), None)


def _file_of(frame: str) -> str:
    match = _PLACE.match(frame)
    return match[1] if match else ""


def _add(total: list[int], size: int) -> None:
    total[0] += size
    total[1] += 1
