"""Records every allocation of this process and of its GPUs, with the Python (and, if asked, native) stack.

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

import contextlib
import functools
import inspect
import itertools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from stormlog import _native

__all__ = [
    "CaptureFormatError",
    "CaptureIOError",
    "CaptureNotFoundError",
    "CapturePermissionError",
    "CaptureVersionError",
    "HeapError",
    "HeapValueError",
    "Recording",
    "is_recording",
    "record",
    "start",
    "stats",
    "stop",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NUMBERS = itertools.count(1)
_PUBLISHED: list[bool] = []

#: Mean bytes between samples when ``sample=True``.
DEFAULT_SAMPLE_BYTES = 512 * 1024

#: The class of every error here; the others say what is wrong and are also the built-in one expects.
HeapError = _native.heap.HeapError
CaptureNotFoundError = _native.heap.CaptureNotFoundError
CapturePermissionError = _native.heap.CapturePermissionError
CaptureIOError = _native.heap.CaptureIOError
CaptureFormatError = _native.heap.CaptureFormatError
CaptureVersionError = _native.heap.CaptureVersionError
HeapValueError = _native.heap.HeapValueError


def start(
    path: str | os.PathLike[str] | None = None,
    *,
    native: bool = False,
    trace_python_allocators: bool = False,
    sample: bool | int = False,
    aggregate: bool = False,
    max_size: int | None = None,
    overwrite: bool = False,
    host: bool = True,
    gpu: bool = True,
) -> Path:
    """Begins to record into ``path`` (default: ``stormlog-heap-PID.bin`` here) and returns it.

    ``native`` adds the frames of C, C++ and Rust; ``trace_python_allocators`` records every Python
    object, not only what reaches the system's allocator; ``sample`` records one allocation per that
    number of bytes, with unbiased totals; ``aggregate`` keeps stacks, live blocks and peaks instead of every
    record; ``max_size`` bounds the file by folding the oldest records. ``host`` and ``gpu`` say which
    memories: the GPU memory of PyTorch is always recorded block by block. In ``path``, ``%p`` becomes the
    process id and ``%n`` a number. A capture that exists is an error unless ``overwrite``. A child that
    is forked meanwhile records into a capture of its own beside this one, and may :func:`stop` it.
    """
    target = _path(path)
    mean = DEFAULT_SAMPLE_BYTES if sample is True else int(sample)
    if mean < 0:
        raise ValueError(f"sample must be a number of bytes, got {sample!r}")
    if not host and not gpu:
        raise ValueError("nothing to record: host and gpu are both False")
    if gpu:
        publish_backward()  # first, so that what it imports is not in the recording
    _native.heap.heap_start(
        str(target), overwrite, native, trace_python_allocators, mean, aggregate, max_size, host, gpu
    )
    return target


def publish_backward() -> None:
    """Has the stacks that call ``backward`` recorded for the engine's threads, once PyTorch is imported."""
    from stormlog._torch import backward
    from stormlog._torch.post_import import when_imported

    if not _PUBLISHED:
        _PUBLISHED.append(True)
        install: Callable[..., None] = backward._stormlog_install_backward
        native = _native.heap
        when_imported("torch", lambda: install(native.enter_backward, native.leave_backward))


def stop() -> Path:
    """Ends the recording and returns the path of the finished capture."""
    return Path(_native.heap.heap_stop())


def is_recording() -> bool:
    """Whether this process is being recorded, by :func:`start` or by ``stormlog run --heap``."""
    return _native.heap.heap_recording()


def stats(path: str | os.PathLike[str], *, memory: str | None = None) -> dict[str, Any]:
    """Totals, peak, top allocators: what ``stormlog stats --json`` prints, all memories in it.

    With ``memory`` (``"host"``, ``"cuda:0"``, …) the figures of that one, as with ``--memory``; of a device
    its row of ``devices`` is part of them. A capture that is missing, unreadable, damaged or too new raises
    the `HeapError` that says so, which is also a `FileNotFoundError`, a `PermissionError` or a `ValueError`.
    """
    try:
        found = _native.heap.heap_stats(path, memory)
    except HeapValueError:
        devices = [row["device"] for row in _native.heap.heap_stats(path, None)["devices"]]
        there = ", ".join(["host", *devices])
        sentence = f"{os.fspath(path)}: no memory {memory!r} was recorded; there is {there}"
        raise HeapValueError(sentence) from None
    rows = (row for row in found["devices"] if row["device"] == memory)
    return {**next(rows, {}), **found}


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
        self.path = stop()

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Makes a function that is recorded at every call, to its very end.

        A coroutine or generator is recorded from its first step to its last. A call that is made while
        another one is recorded, by recursion or in another thread, belongs to that one.
        """
        return _decorated(self, function)

    def stats(self, *, memory: str | None = None) -> dict[str, Any]:
        """The statistics of the capture, or of one memory in it."""
        if self.path is None:
            raise HeapError("nothing was recorded yet: enter the recording first")
        return stats(self.path, memory=memory)


def record(path: str | os.PathLike[str] | None = None, **options: Any) -> Recording:
    """Records while a ``with`` block or a decorated function runs; takes the options of :func:`start`."""
    return Recording(path, options)


def _decorated(recording: Recording, function: Callable[_P, _R]) -> Callable[_P, _R]:
    outermost = threading.Lock()
    work: Callable[..., Any] = function

    @contextlib.contextmanager
    def one_call() -> Iterator[None]:
        if not outermost.acquire(blocking=False):
            yield
            return
        try:
            with recording:
                yield
        finally:
            outermost.release()

    def call(*args: Any, **kwargs: Any) -> Any:
        with one_call():
            return work(*args, **kwargs)

    def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with one_call():
            return (yield from work(*args, **kwargs))

    async def wait_for(*args: Any, **kwargs: Any) -> Any:
        with one_call():
            return await work(*args, **kwargs)

    async def generate_slowly(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with one_call():
            inner = work(*args, **kwargs)
            step = inner.__anext__()
            try:
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        step = inner.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
            finally:
                await inner.aclose()

    recorded: Callable[..., Any] = call
    if inspect.iscoroutinefunction(function):
        recorded = wait_for
    elif inspect.isasyncgenfunction(function):
        recorded = generate_slowly
    elif inspect.isgeneratorfunction(function):
        recorded = generate
    return functools.wraps(function)(recorded)


def _path(path: str | os.PathLike[str] | None) -> Path:
    text = os.fspath(path) if path is not None else "stormlog-heap-%p.bin"
    if "%n" in text:
        text = text.replace("%n", str(next(_NUMBERS)))
    return Path(text.replace("%p", str(os.getpid()))).absolute()
