# Heap recordings of this process, and captures: the submodule `stormlog._native.heap`.
import os
from pathlib import Path
from typing import Any, final

__all__ = [
    "CaptureFormatError",
    "CaptureIOError",
    "CaptureNotFoundError",
    "CapturePermissionError",
    "CaptureVersionError",
    "HeapError",
    "HeapFrame",
    "HeapStack",
    "HeapValueError",
    "heap_flamegraph",
    "heap_recording",
    "heap_stacks",
    "heap_start",
    "heap_stats",
    "heap_stop",
    "parse_size",
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
) -> None: ...
def heap_stop() -> Path: ...
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

# What `stormlog stats --json` prints.
def heap_stats(path: str | os.PathLike[str]) -> dict[str, Any]: ...

# Mode is `peak`, `leaks`, `temporary`, `at:SECONDS` or `at-death`.
def heap_stacks(path: str | os.PathLike[str], mode: str) -> list[HeapStack]: ...
def heap_flamegraph(path: str | os.PathLike[str], mode: str, inverted: bool) -> str: ...
def parse_size(text: str) -> int | None: ...
