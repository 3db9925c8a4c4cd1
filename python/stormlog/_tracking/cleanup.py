"""The rungs that free memory, safest first, each measured.

There is no forced reset of a device from inside a program, and none is pretended. A rung that fails is
noted and the next one tried; nothing here may raise because there was nothing to win.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Step = tuple[str, Callable[[], object]]


class Rung(NamedTuple):
    """One step: its name, the bytes it won, what went wrong; None where it cannot be known.

    `bytes_won` is what the device or the system got back. An allocator keeps what is freed inside it for
    itself: that is `allocator_bytes_won`, and becomes the device's with `empty_cache`.
    """

    name: str
    bytes_won: int | None
    error: str | None = None
    allocator_bytes_won: int | None = None


class InUse(NamedTuple):
    """Bytes in use now: as the driver or the system sees it, and inside the allocator."""

    used: int | None
    allocated: int | None


def climb(steps: Iterable[Step], in_use: Callable[[], InUse]) -> list[Rung]:
    """Takes the steps in their order; `in_use` is asked between them."""
    rungs: list[Rung] = []
    before = in_use()
    for name, step in steps:
        problem = None
        try:
            step()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        after = in_use()
        rungs.append(
            Rung(name, _won(before.used, after.used), problem, _won(before.allocated, after.allocated))
        )
        before = after
    return rungs


def freeing_steps(
    backend: str,
    aggressive: bool,
    callbacks: Sequence[Callable[[], object]],
    graphs: Sequence[Any] = (),
    exception: BaseException | None = None,
) -> Iterator[Step]:
    """What can be freed here without the program's help, and with what it offered."""
    if aggressive or exception is not None:
        # The traceback of an error keeps every tensor of its frames alive.
        yield "drop_exception_frames", lambda: _drop_frames(exception)
    if aggressive:
        yield "gc_collect", gc.collect
    for number, callback in enumerate(callbacks):
        yield f"callback_{getattr(callback, '__name__', number)}", callback
    torch: Any = sys.modules.get("torch")
    if backend in {"cuda", "rocm"} and torch is not None:
        if aggressive:
            yield "synchronize", torch.cuda.synchronize
        yield "empty_cache", torch.cuda.empty_cache
        clear = getattr(getattr(torch, "_C", None), "_cuda_clearCublasWorkspaces", None)
        if aggressive and clear is not None:
            yield "clear_cublas_workspaces", _then(torch.cuda.empty_cache, clear)
        if aggressive and graphs:
            resets = [graph.reset for graph in graphs]
            yield "release_graph_pools", _then(torch.cuda.empty_cache, *resets)
    elif backend == "mps" and torch is not None:
        yield "empty_cache", torch.mps.empty_cache
    yield "malloc_trim", _trim


def _won(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(before - after, 0)


def _then(last: Callable[[], object], *first: Callable[[], object]) -> Callable[[], None]:
    """What was freed inside the allocator is won only when it is given back."""

    def run() -> None:
        try:
            for step in first:
                step()
        finally:
            last()

    return run


def _drop_frames(exception: BaseException | None) -> None:
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    seen: set[int] = set()
    for start in (exception, last):
        error = start
        while isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def _trim() -> None:
    """Gives the heap's free pages back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
