"""Asks what keeps this process's memory when PyTorch has run out of it.

Private. Called from whatever thread ran out, with the program's frames still running: it must import nothing
and keep no frame. The recording library does the work, bounded in time and memory.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from stormlog import _native

# A program that survives running out of memory does so often.
_PAUSE = 600.0
# A forecast is not a failure: the program is stopped seldom, and for less than it notices.
_FORECAST_PAUSE, _FORECAST_MS = 3600.0, 50
_ANSWERED: list[float] = []
_FORESEEN: list[float] = []


def foresee(directory: Path) -> bool:
    """A limit is foreseen: the same report, at most once an hour and within 50 ms."""
    now = time.monotonic()
    if _is_off() or (_FORESEEN and now - _FORESEEN[-1] < _FORECAST_PAUSE):
        return False
    _FORESEEN[:] = [now]
    return _native.heap.report_retained("forecast", directory, None, _FORECAST_MS)


def look(reason: str, directory: Path, traceback: TracebackType | None = None) -> bool:
    """Write the report of what is retained into the directory; at most once in ten minutes."""
    now = time.monotonic()
    if _is_off() or (_ANSWERED and now - _ANSWERED[-1] < _PAUSE):
        return False
    _ANSWERED[:] = [now]
    return _native.heap.report_retained(reason, directory, traceback)


def _is_off() -> bool:
    return os.environ.get("STORMLOG_WHY", "").lower() in ("off", "0")
