"""Records every allocation of this process, with the Python (and, if asked, native) stack that made it.

    with stormlog.heap.record("out.bin"):
        train()

    stormlog.heap.start("out.bin"); ...; stormlog.heap.stop()

    @stormlog.heap.record("step-%n.bin")
    def step(): ...

The capture is read by ``stormlog stats``, ``flamegraph``, ``tree`` and friends, while it is written and
afterwards, also when the process was killed. A recording must never change what the program does: it
starts and stops in a living process, adds little memory, and a request that fails, fails as it would
have.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from stormlog import _native

__all__ = ["HeapError", "Recording", "is_recording", "record", "start", "stats", "stop"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NUMBERS = itertools.count(1)

#: Mean bytes between samples when ``sample=True``.
DEFAULT_SAMPLE_BYTES = 512 * 1024

HeapError = _native.HeapError


def start(
    path: str | os.PathLike[str] | None = None,
    *,
    native: bool = False,
    trace_python_allocators: bool = False,
    sample: bool | int = False,
    aggregate: bool = False,
    max_size: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Begins to record into ``path`` (default: ``stormlog-heap-PID.bin`` here) and returns it.

    ``native`` adds the frames of C, C++ and Rust; ``trace_python_allocators`` records every Python
    object, not only what reaches the system's allocator; ``sample`` records one allocation in so many
    bytes, with unbiased totals; ``aggregate`` keeps stacks, live blocks and peaks instead of every
    record; ``max_size`` bounds the file by folding the oldest records. In ``path``, ``%p`` becomes the
    process id and ``%n`` a number. A capture that exists is an error unless ``overwrite``.
    """
    target = _path(path)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True, or choose another path")
    for old in (target, target.with_name(target.name + ".live")):
        old.unlink(missing_ok=True)
    mean = DEFAULT_SAMPLE_BYTES if sample is True else int(sample)
    if mean < 0:
        raise ValueError(f"sample must be a number of bytes, got {sample!r}")
    _native.heap_start(str(target), native, trace_python_allocators, mean, aggregate, max_size)
    return target


def stop() -> Path:
    """Ends the recording and returns the path of the finished capture."""
    return Path(_native.heap_stop())


def is_recording() -> bool:
    """Whether this process is being recorded, by :func:`start` or by ``stormlog run --heap``."""
    return _native.heap_recording()


def stats(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Totals, peak, top allocators: what ``stormlog stats --json`` prints."""
    result: dict[str, Any] = json.loads(_native.heap_stats(os.fspath(path)))
    return result


class Recording:
    """A recording as a context manager or a decorator; made by :func:`record`."""

    def __init__(self, path: str | os.PathLike[str] | None, options: dict[str, Any]) -> None:
        self._target = path
        self._options = options
        #: The capture, once recording has begun.
        self.path: Path | None = None

    def __enter__(self) -> Recording:
        self.path = start(self._target, **self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stop()

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Makes a function that is recorded at every call."""

        @functools.wraps(function)
        def recorded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return recorded

    def stats(self) -> dict[str, Any]:
        """The statistics of the capture."""
        if self.path is None:
            raise HeapError("nothing was recorded yet: enter the recording first")
        return stats(self.path)


def record(path: str | os.PathLike[str] | None = None, **options: Any) -> Recording:
    """Records while a ``with`` block or a decorated function runs; takes the options of :func:`start`."""
    return Recording(path, options)


def _path(path: str | os.PathLike[str] | None) -> Path:
    text = os.fspath(path) if path is not None else "stormlog-heap-%p.bin"
    if "%n" in text:
        text = text.replace("%n", str(next(_NUMBERS)))
    return Path(text.replace("%p", str(os.getpid()))).absolute()
