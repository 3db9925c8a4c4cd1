"""What a rank holds of a sharded model, by category, counted from the real objects.

Private. Bytes of storages, each once: a shard counts as the memory it takes on this rank, whatever the size
of the whole. Understands `DTensor` (FSDP2) and the partitions of DeepSpeed's ZeRO.
Keeps no tensor.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

_LOGGER = logging.getLogger("stormlog.integrations")


def sharded_categories(model: Any, optimizer: Any = None) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer state on this rank, and of all parameters together."""
    seen: set[tuple[str, int]] = set()
    parameters = list(model.parameters())
    held = {
        "parameters_bytes": _bytes(map(_parameter_shard, parameters), seen),
        "gradients_bytes": _bytes(_gradients(parameters, optimizer), seen),
        "optimizer_state_bytes": _bytes(_optimizer_state(optimizer), seen),
    }
    held["full_parameters_bytes"] = sum(_full_bytes(parameter) for parameter in parameters)
    return held


def _parameter_shard(parameter: Any) -> Any:
    # ZeRO-3 leaves an empty parameter and keeps this rank's part beside it.
    return getattr(parameter, "ds_tensor", None) if hasattr(parameter, "ds_tensor") else parameter


def _full_bytes(parameter: Any) -> int:
    count = getattr(parameter, "ds_numel", None)
    return int(parameter.numel() if count is None else count) * int(parameter.element_size())


def _gradients(parameters: list[Any], optimizer: Any) -> Iterator[Any]:
    for parameter in parameters:
        yield parameter.grad
    # ZeRO-1 and 2 move them into buffers of their own until the step is made.
    averaged = getattr(optimizer, "averaged_gradients", None)
    if isinstance(averaged, dict):
        yield from _tensors(averaged.values())


def _optimizer_state(optimizer: Any) -> Iterator[Any]:
    """The moments, and the master copies that mixed precision keeps of the parameters."""
    if optimizer is None:
        return
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        yield from _tensors([getattr(optimizer, name, None)])
    inner = getattr(optimizer, "optimizer", None)
    state = getattr(inner if inner is not None else optimizer, "state", None)
    if state is not None:
        yield from _tensors(dict(state).values())


def _tensors(things: Iterable[Any], depth: int = 3) -> Iterator[Any]:
    """The tensors in nested lists and mappings."""
    for thing in things:
        if hasattr(thing, "untyped_storage") or hasattr(thing, "to_local"):
            yield thing
        elif depth > 0 and isinstance(thing, dict):
            yield from _tensors(thing.values(), depth - 1)
        elif depth > 0 and isinstance(thing, list | tuple):
            yield from _tensors(thing, depth - 1)


def _bytes(tensors: Iterable[Any], seen: set[tuple[str, int]]) -> int:
    """The bytes of their storages on this rank; those that were counted before are not counted again."""
    total = 0
    for tensor in tensors:
        if tensor is None:
            continue
        try:
            parts = _dense_parts(tensor.to_local() if hasattr(tensor, "to_local") else tensor)
            total += sum(_storage_bytes(part, seen) for part in parts)
        except Exception as error:
            # A layout without a storage must not hide what the other tensors hold.
            _LOGGER.debug("The bytes of a %s are not counted: %s", type(tensor).__name__, error)
    return total


def _dense_parts(tensor: Any) -> tuple[Any, ...]:
    # The gradient of `Embedding(sparse=True)` has no storage of its own.
    return (tensor._indices(), tensor._values()) if getattr(tensor, "is_sparse", False) else (tensor,)


def _storage_bytes(tensor: Any, seen: set[tuple[str, int]]) -> int:
    storage = tensor.untyped_storage()
    size = int(storage.nbytes())
    key = (str(tensor.device), storage.data_ptr())
    if not size or key in seen:
        return 0
    seen.add(key)
    return size
