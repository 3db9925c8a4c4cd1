"""The tensors that stay: their age in steps, their kind, what holds them, and in which reference cycles.

Looks at what Python's collector knows, when it is asked to: milliseconds, so at the end of a step, not inside
it. Holds tensors weakly, never makes one live longer, and calls nothing on a device. Tensors that only C++
holds (saved for backward) are not seen; the loss or output that keeps them is.
"""

from __future__ import annotations

import dataclasses
import gc
import traceback
import weakref
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import pairwise
from types import CellType, FrameType
from typing import Any

from stormlog._torch.cuda_categories import placed, stack_of
from stormlog._torch.cuda_snapshot import allocator_segments
from stormlog._torch.live_objects import live_objects
from stormlog._torch.recorded_stacks import stacks_by_address

__all__ = ["HeldTensor", "TensorTracker"]

_STACK_DEPTH = 5
_MAX_REFERRERS = 5
_MAX_WAY = 10


@dataclasses.dataclass(frozen=True)
class HeldTensor:
    """A tensor that outlived some steps, described; not the tensor.

    `kind` is parameter, gradient, loss (one number that still has its graph), graph (part of one, or the end
    of one) or data. `stack` is where it was watched from; of one that was only found, where it was allocated,
    if a recording of this process or the history of PyTorch's CUDA allocator has it; else None.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    size_bytes: int
    age: int
    name: str | None
    held_by: tuple[str, ...]
    stack: str | None


@dataclasses.dataclass
class _Known:
    reference: weakref.ref[Any]
    since: int
    name: str | None = None
    stack: str | None = None


class TensorTracker:
    """Counts the tensors of a kind of device, and follows them from step to step."""

    def __init__(self, device_type: str = "cuda") -> None:
        self.device_type = device_type
        self.steps = 0
        self._known: dict[int, _Known] = {}

    def count_tensors(self) -> int:
        """The number of live tensors."""
        return sum(1 for _ in self._live())

    def watch(self, tensor: Any, name: str | None = None) -> Any:
        """Follow a tensor from here, with this stack; gives it back."""
        known = self._know(tensor)
        known.name = name
        # Without this frame.
        known.stack = "".join(traceback.format_stack(limit=_STACK_DEPTH + 1)[:-1])
        return tensor

    def step(self) -> None:
        """Ends one step of the program: notes new and freed tensors, and ages the others by a step."""
        for tensor in [*self._gradients(), *self._live()]:
            self._know(tensor)
        self._known = {key: known for key, known in self._known.items() if known.reference() is not None}
        self.steps += 1

    def persistent(self, min_age: int = 2, kinds: Iterable[str] | None = None) -> list[HeldTensor]:
        """The tensors that outlived `min_age` steps, largest first; only of `kinds`, if given."""
        wanted = None if kinds is None else set(kinds)
        gradients = {id(gradient) for gradient in self._gradients()}
        stacks = self._stacks()
        found = []
        for known in list(self._known.values()):
            age = self.steps - known.since
            tensor = known.reference()
            if tensor is None or age < min_age:
                continue
            kind = "gradient" if id(tensor) in gradients else _kind(tensor)
            if wanted is None or kind in wanted:
                stack = known.stack or stacks.get(_address(tensor))
                found.append(_described(tensor, kind, age, known.name, stack, _holders(tensor)))
            del tensor
        return sorted(found, key=lambda held: held.size_bytes, reverse=True)

    def cycles(self) -> list[HeldTensor]:
        """The tensors that nothing holds but a cycle of references, with the way around it; collects them.

        Until the collector happens to run such a cycle holds its memory. Other garbage is collected as well.
        """
        flags, before = gc.get_debug(), len(gc.garbage)
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
        finally:
            gc.set_debug(flags)
        garbage = gc.garbage[before:]
        del gc.garbage[before:]
        kind = import_module("torch").Tensor
        inside = {id(thing) for thing in garbage}
        stacks = self._stacks()
        found = []
        for thing in garbage:
            if issubclass(type(thing), kind) and self._is_ours(thing):
                known = self._known.get(id(thing)) or _Known(weakref.ref(thing), self.steps)
                age = self.steps - known.since
                stack = known.stack or stacks.get(_address(thing))
                found.append(_described(thing, _kind(thing), age, known.name, stack, _around(thing, inside)))
        # Saved garbage is collected only the next time.
        garbage.clear()
        thing = None
        gc.collect()
        return found

    def _live(self) -> Iterator[Any]:
        kind = import_module("torch").Tensor
        for thing in live_objects():
            # `isinstance` would ask proxies for their class, and they answer by loading what they stand for.
            if issubclass(type(thing), kind) and self._is_ours(thing):
                yield thing

    def _stacks(self) -> dict[int, str]:
        """Where each block of the device's memory was allocated, by its address.

        By the heap recording of this process where one runs, else as far as PyTorch's own history has it.
        """
        torch = import_module("torch")
        if self.device_type != "cuda" or not torch.cuda.is_initialized():
            return {}
        recorded = _recorded_stacks(torch)
        if recorded:
            return recorded
        segments = allocator_segments(torch) or ()
        blocks = (row for segment in segments for row in placed(segment))
        return {address: "\n".join(stack_of(block)) for address, block in blocks if block.get("frames")}

    def _is_ours(self, tensor: Any) -> bool:
        try:
            return bool(tensor.device.type == self.device_type)
        except Exception:
            return False

    def _know(self, tensor: Any) -> _Known:
        known = self._known.get(id(tensor))
        # The number of a tensor that is gone may be that of a new one.
        if known is None or known.reference() is not tensor:
            known = _Known(weakref.ref(tensor), self.steps)
            self._known[id(tensor)] = known
        return known

    def _gradients(self) -> list[Any]:
        """Those of the leaves: Python's collector does not know them until they have been asked for."""
        leaves = (tensor for tensor in self._live() if tensor.is_leaf)
        return [tensor.grad for tensor in leaves if tensor.grad is not None]


def _recorded_stacks(torch: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for device in range(torch.cuda.device_count()):
        for address, frames in stacks_by_address(device).items():
            found[address] = "\n".join(stack_of({"frames": frames}))
    return found


def _kind(tensor: Any) -> str:
    if isinstance(tensor, import_module("torch").nn.Parameter):
        return "parameter"
    if tensor.grad_fn is not None:
        return "loss" if tensor.numel() == 1 else "graph"
    return "data"


def _address(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:  # one without a storage, as wrappers are
        return 0


def _described(
    tensor: Any, kind: str, age: int, name: str | None, stack: str | None, held_by: list[str]
) -> HeldTensor:
    return HeldTensor(
        kind,
        tuple(tensor.shape),
        str(tensor.dtype),
        str(tensor.device),
        int(tensor.nelement() * tensor.element_size()),
        age,
        name,
        tuple(held_by),
        stack,
    )


def _holders(tensor: Any) -> list[str]:
    """The objects that refer to it, in words; without those of this module."""
    words = []
    for holder in gc.get_referrers(tensor):
        if isinstance(holder, FrameType) and holder.f_code.co_filename == __file__:
            continue
        word = _word(holder, tensor)
        if word is not None:
            words.append(word)
    return list(dict.fromkeys(words))[:_MAX_REFERRERS]


def _word(holder: Any, held: Any) -> str | None:
    if isinstance(holder, dict):
        owners = [type(owner).__name__ for owner in gc.get_referrers(holder) if _has_dict(owner, holder)]
        return _attribute(owners[0] if owners else "dict", holder, held)
    if isinstance(holder, FrameType):
        return f"local variable of {holder.f_code.co_name}"
    if isinstance(holder, CellType):
        return "closure"
    if isinstance(holder, (list, tuple, set, frozenset)):
        return f"{type(holder).__name__} of {len(holder)}"
    kind = type(holder).__name__
    return _attribute(kind, getattr(holder, "__dict__", {}), held) or kind


def _attribute(owner: str, names: dict[Any, Any], held: Any) -> str | None:
    return next((f"{owner}.{key}" for key, value in list(names.items()) if value is held), None)


def _has_dict(owner: Any, namespace: dict[Any, Any]) -> bool:
    try:
        return owner.__dict__ is namespace
    except AttributeError:
        return False


def _around(start: Any, inside: set[int]) -> list[str]:
    """The reference cycle of a tensor: from holder to holder, through garbage, until it closes."""
    way = [start]
    while len(way) < _MAX_WAY:
        holders = [one for one in gc.get_referrers(way[-1]) if id(one) in inside]
        following = next((one for one in holders if all(one is not seen for seen in way)), None)
        if following is None:
            break
        way.append(following)
    # Only now: to ask an object for its attributes makes a dictionary of them, which changes the way.
    words = [_word(holder, held) for held, holder in pairwise(way)]
    return [word for word in words if word is not None]
