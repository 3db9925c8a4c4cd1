"""The live CUDA tensors of a process by their storage, with the names they go by.

Private; `cuda_native_debug` has the public names. A scan of what Python's collector knows: tensors that only
C++ ever had (an operator's own) are not in it. Keeps no tensor, calls nothing on the device.
"""

from __future__ import annotations

import gc
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from stormlog._torch.cuda_categories import categories_of_storages
from stormlog._torch.live_objects import live_objects
from stormlog.utils import _torch


def device_index(device: Any) -> int:
    """The number of a device; of the current one for None."""
    if isinstance(device, int):
        return device
    torch = _torch("CUDA memory attribution")
    index = getattr(torch.device(device) if isinstance(device, str) else device, "index", None)
    return int(torch.cuda.current_device() if index is None else index)


def build_cuda_tensor_attribution_index(device: Any = None, *, skip_gc: bool = False) -> dict[str, Any]:
    """Which live tensors lie at which storage of a device, and what they are called."""
    index = device_index(device)
    torch = _torch("CUDA memory attribution")
    if not skip_gc:
        gc.collect()
    tensors: dict[int, list[dict[str, Any]]] = defaultdict(list)
    sizes: dict[int, int] = {}
    with warnings.catch_warnings():
        # Looking at attributes of everything there is wakes up every deprecation there is.
        warnings.simplefilter("ignore")
        objects = live_objects()
        names = _names(index, objects)
        # First, for it asks for the gradients, which Python's collector knows only afterwards.
        categories = categories_of_storages(torch, _live(index, objects), objects)
        for tensor in _live(index, live_objects()):
            pointer = _storage(tensor)
            if pointer is not None:
                tensors[pointer].append(_described(tensor))
                sizes[pointer] = int(tensor.untyped_storage().nbytes())
    return {
        "device_index": index,
        "storage_pointer_count": len(tensors),
        "attributed_storage_pointers": [
            {
                "storage_ptr": hex(pointer),
                "storage_ptr_int": pointer,
                # The whole path of a parameter before its last part alone.
                "names": sorted(
                    names.get(pointer, ()), key=lambda name: (name.count("."), len(name)), reverse=True
                ),
                "storage_bytes": sizes[pointer],
                "category": categories.get(pointer, "data"),
                "tensor_count": len(found),
                "tensors": found,
            }
            for pointer, found in sorted(tensors.items())
        ],
    }


def _live(index: int, objects: list[Any]) -> Iterator[Any]:
    kind = _torch("CUDA memory attribution").Tensor
    for thing in objects:
        # `isinstance` would ask a proxy for its class, and proxies answer by loading things.
        if issubclass(type(thing), kind) and _is_on(thing, index):
            yield thing


def _is_on(tensor: Any, index: int) -> bool:
    try:
        return bool(tensor.is_cuda) and tensor.device.index == index
    except Exception:
        return False


def _names(index: int, objects: list[Any]) -> dict[int, set[str]]:
    """Parameters and buffers by their paths; what is none of them by the variable that holds it."""
    torch = _torch("CUDA memory attribution")
    of_modules: dict[int, set[str]] = defaultdict(set)
    of_variables: dict[int, set[str]] = defaultdict(set)
    for thing in objects:
        try:
            if issubclass(type(thing), torch.nn.Module):
                _note(of_modules, thing.named_parameters(recurse=True), index)
                _note(of_modules, thing.named_buffers(recurse=True), index)
            elif type(thing) is dict:
                named = ((key, value) for key, value in list(thing.items()) if _is_variable(key))
                tensors = ((key, value) for key, value in named if issubclass(type(value), torch.Tensor))
                _note(of_variables, tensors, index)
        except Exception:  # a half-built module must not cost us the others
            continue
    return {**of_variables, **of_modules}


def _note(names: dict[int, set[str]], tensors: Iterable[tuple[str, Any]], index: int) -> None:
    for name, tensor in tensors:
        pointer = _storage(tensor) if _is_on(tensor, index) else None
        if pointer is not None:
            names[pointer].add(name)


def _is_variable(key: object) -> bool:
    return isinstance(key, str) and not key.startswith("__")


def _storage(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:
        return None


def _described(tensor: Any) -> dict[str, Any]:
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "device": str(tensor.device),
        "size_bytes": int(tensor.nelement() * tensor.element_size()),
        "requires_grad": bool(tensor.requires_grad),
        "is_leaf": bool(tensor.is_leaf),
    }
