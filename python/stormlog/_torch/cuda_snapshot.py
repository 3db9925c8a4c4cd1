"""PyTorch's snapshot of its CUDA allocator, without what PyTorch would import on the way.

Private. To name the frames of compiled code PyTorch looks for `torch._inductor`, and to look is
to import it: seconds, at the moment the memory ran out, in a program that has no use for it. Worse, what is
imported there keeps the frames it was imported from (`torch.fx.wrap`), and with them the tensors of a program
that wants to try again. A program that has not imported it has no such frames to name.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_NAME = "_inductor"


def allocator_snapshot(torch: Any) -> Any:
    """The whole state with its history, of all devices."""
    with _unimported(torch):
        return torch.cuda.memory._snapshot()


def allocator_segments(torch: Any) -> list[dict[str, Any]] | None:
    """The segments alone; None where this PyTorch cannot leave the history out, or its allocator has none."""
    ask: Any = getattr(torch.cuda, "memory_snapshot", None)
    names = getattr(getattr(ask, "__code__", None), "co_varnames", ())
    if "include_traces" not in names:
        return None
    try:
        with _unimported(torch):
            return list(ask(include_traces=False))
    except RuntimeError:  # cudaMallocAsync, or an allocator of the user's
        return None


@contextmanager
def _unimported(torch: Any) -> Iterator[None]:
    if f"torch.{_NAME}" in sys.modules:
        yield
        return
    stand_in = _Absent(f"torch.{_NAME}")
    names = vars(torch)
    names.setdefault(_NAME, stand_in)
    try:
        yield
    finally:
        stand_in.hides_from = None
        # Another thread may have imported the real one meanwhile.
        if names.get(_NAME) is stand_in:
            del names[_NAME]


class _Absent(ModuleType):
    """Has nothing for the thread that takes the snapshot; any other thread gets the real module."""

    hides_from: int | None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.hides_from = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self.hides_from:
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)
