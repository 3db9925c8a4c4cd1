"""What the allocator of TensorFlow or JAX reports of an exception: in its text, and in the log beside it.

The allocator writes its dump (bins, chunks, counters) to standard error, not into the exception. Where
standard error is a file, what was written to it since the tracker was made is read; a terminal or a pipe
cannot be read back.

Private. Called while memory is short: imports nothing, reads a bounded part, never raises.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._tracking.failure import Holder, chain

_LIBRARIES = {"tensorflow", "jax", "jaxlib"}
_STDERR = 2
_STDERR_FILE = Path(f"/proc/self/fd/{_STDERR}")
# The dump of a pool of 16,384 chunks has less.
_MAX_LOG = 4 << 20


class LogMark:
    """Where standard error was when a tracker was made, if it is a file."""

    def __init__(self) -> None:
        self._mark = _position()

    def text(self) -> str:
        """What was written since then, or its end."""
        began, now = self._mark, _position()
        if began is None or now is None or began[:2] != now[:2] or now[2] <= began[2]:
            return ""
        start = max(began[2], now[2] - _MAX_LOG)
        try:
            with _STDERR_FILE.open("rb") as log:
                log.seek(start)
                return log.read(now[2] - start).decode("utf-8", "replace")
        except OSError:
            return ""


def _position() -> tuple[int, int, int] | None:
    try:
        found = os.fstat(_STDERR)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size) if stat.S_ISREG(found.st_mode) else None


def allocator_report(exc: BaseException, log: LogMark) -> _native.oom.AllocationFailure | None:
    """The report about this exception; None where it has none, or is not one of these libraries'."""
    try:
        message = "\n".join(str(error) for error in chain(exc))
        found = _native.oom.explain_allocation_failure(message)
        # A message may have nothing to explain ("failed to allocate memory [Op:Mul]"). The log is then read
        # only for these libraries: the dump in it is not about the exception of another one.
        if found is None and not any(map(_is_of_these, chain(exc))):
            return None
        return _native.oom.explain_allocation_failure(f"{log.text()}\n{message}") or found
    except Exception:
        return None


def _is_of_these(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _LIBRARIES


def named_holders(report: _native.oom.AllocationFailure | None) -> list[Holder]:
    """Operations and buffers that hold memory, as a bundle has them."""
    return [] if report is None else [Holder(*row) for row in report.holders]


def chunk_holders(report: _native.oom.AllocationFailure | None) -> list[Holder]:
    """The sizes of chunks in use: less than a name, more than nothing."""
    return [] if report is None else [Holder(*row) for row in report.chunk_sizes]


def metadata_of(report: _native.oom.AllocationFailure) -> dict[str, Any]:
    """The report for a bundle's metadata."""
    names = (
        "verdict",
        "sentence",
        "allocator",
        "device",
        "requester",
        "requested_bytes",
        "free_bytes",
        "largest_free_bytes",
        "limit_bytes",
        "in_use_bytes",
        "page",
    )
    return {name: getattr(report, name) for name in names}
