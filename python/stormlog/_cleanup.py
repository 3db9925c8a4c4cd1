"""The emergency ladder: what can be freed, safest first, each rung measured.

There is no forced reset of a device from inside a program, and none is pretended. A rung that fails is
noted and the next one tried; nothing here may raise because there was nothing to win.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple


class Rung(NamedTuple):
    """One step: its name, the bytes it won (None when they cannot be known), what went wrong."""

    name: str
    bytes_won: int | None
    error: str | None = None


def ladder(
    backend: str,
    aggressive: bool,
    callbacks: Sequence[Callable[[], object]],
    used: Callable[[], int | None],
) -> list[Rung]:
    """Climbs the ladder; `used` says how many bytes are in use now."""
    rungs: list[Rung] = []
    before = used()
    for name, step in _steps(backend, aggressive, callbacks):
        problem = None
        try:
            step()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        after = used()
        won = None if before is None or after is None else max(before - after, 0)
        rungs.append(Rung(name, won, problem))
        before = after
    return rungs


def _steps(
    backend: str, aggressive: bool, callbacks: Sequence[Callable[[], object]]
) -> Iterator[tuple[str, Callable[[], object]]]:
    if aggressive:
        # The traceback of the last error keeps every tensor of its frames alive.
        yield "drop_exception_frames", _drop_frames
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
            yield "clear_cublas_workspaces", clear
            yield "empty_cache_again", torch.cuda.empty_cache
    elif backend == "mps" and torch is not None:
        yield "empty_cache", torch.mps.empty_cache
    yield "malloc_trim", _trim


def _drop_frames() -> None:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _trim() -> None:
    """Gives the heap's free pages back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
