# Heap recordings of this process, and captures: the submodule `stormlog._native.heap`.
import os
from pathlib import Path
from types import TracebackType
from typing import Any, final

__all__ = [
    "CaptureFormatError",
    "CaptureIOError",
    "CaptureNotFoundError",
    "CapturePermissionError",
    "CaptureVersionError",
    "DeviceBlock",
    "DeviceBlocks",
    "HeapError",
    "HeapFrame",
    "HeapStack",
    "HeapValueError",
    "enter_backward",
    "heap_flamegraph",
    "heap_recording",
    "heap_stacks",
    "heap_start",
    "heap_start_default",
    "heap_stats",
    "heap_stop",
    "heap_stop_default",
    "leave_backward",
    "own_device_blocks",
    "parse_size",
    "report_retained",
]

class HeapError(RuntimeError): ...
class CaptureNotFoundError(FileNotFoundError, HeapError): ...
class CapturePermissionError(PermissionError, HeapError): ...
class CaptureIOError(OSError, HeapError): ...
class CaptureFormatError(ValueError, HeapError): ...
class CaptureVersionError(CaptureFormatError): ...
class HeapValueError(ValueError, HeapError): ...

# Mean bytes between samples (0: all), keep an aggregate only, bytes above which old records are folded.
def heap_start(
    path: str | os.PathLike[str],
    overwrite: bool,
    native: bool,
    python_allocators: bool,
    sample_bytes: int,
    aggregate: bool,
    max_size: int | None,
    host: bool,
    gpu: bool,
) -> None: ...

# What `stormlog run` records unasked; False where this process is recorded already.
def heap_start_default(path: str | os.PathLike[str]) -> bool: ...
def heap_stop() -> Path: ...
def heap_stop_default() -> None: ...

# What keeps this process's memory, into the directory's `retained-PID.json`; False where that cannot be done.
def report_retained(
    reason: str,
    directory: str | os.PathLike[str],
    traceback: TracebackType | None = None,
    milliseconds: int | None = None,
) -> bool: ...
def heap_recording() -> bool: ...

@final
class HeapFrame:
    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...

@final
class HeapStack:
    @property
    def stack(self) -> list[HeapFrame]: ...
    @property
    def own_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...

# A block of a GPU; `stack` is a place in `DeviceBlocks.stacks`.
@final
class DeviceBlock:
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def stack(self) -> int: ...

# The living blocks, the last allocations in order, their stacks with the innermost frame first.
@final
class DeviceBlocks:
    @property
    def live(self) -> list[DeviceBlock]: ...
    @property
    def recent(self) -> list[DeviceBlock]: ...
    @property
    def stacks(self) -> list[list[HeapFrame]]: ...
    @property
    def failed_bytes(self) -> int | None: ...

# Of one device (`cuda:0`), by the capture this process is recorded into; None where there is nothing of it.
def own_device_blocks(memory: str, recent: int) -> DeviceBlocks | None: ...

# Publish the stack of this thread while a backward pass runs; 0 is not given back.
def enter_backward() -> int: ...
def leave_backward(token: int) -> None: ...

# What `stormlog stats --json` prints.
def heap_stats(path: str | os.PathLike[str], memory: str | None) -> dict[str, Any]: ...

# Mode is `peak`, `leaks`, `temporary`, `at:SECONDS` or `at-death`.
def heap_stacks(path: str | os.PathLike[str], mode: str) -> list[HeapStack]: ...
def heap_flamegraph(path: str | os.PathLike[str], mode: str, inverted: bool) -> str: ...
def parse_size(text: str) -> int | None: ...
