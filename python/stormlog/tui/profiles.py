"""The profiles recorded in this process as rows of a table, the newest first.

A framework that is not installed, or a profiler that fails, gives no rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ProfileRow",
    "clear_pytorch_profiles",
    "clear_tensorflow_profiles",
    "fetch_pytorch_profiles",
    "fetch_tensorflow_profiles",
]

logger = logging.getLogger(__name__)
_MIB = 1024**2


@dataclass
class ProfileRow:
    """One profile; sizes in MiB."""

    name: str
    peak_mb: float | None
    delta_mb: float | None
    duration_ms: float
    call_count: int
    recorded_at: float
    completion_verified: bool | None = None


def fetch_pytorch_profiles(limit: int = 15) -> list[ProfileRow]:
    """The newest profiles of `stormlog.profile_function` and `profile_context`."""
    return _newest(lambda: _pytorch_rows(limit), limit)


def fetch_tensorflow_profiles(limit: int = 15) -> list[ProfileRow]:
    """The newest profiles of `stormlog.tensorflow`, one for each name, averaged over its calls."""
    return _newest(lambda: _tensorflow_rows(limit), limit)


def clear_pytorch_profiles() -> bool:
    """Forgets PyTorch's profiles; False where that failed."""

    def clear() -> None:
        from stormlog.context_profiler import clear_results

        clear_results()

    return _done(clear)


def clear_tensorflow_profiles() -> bool:
    """Forgets TensorFlow's profiles; False where that failed."""

    def clear() -> None:
        from stormlog.tensorflow.context_profiler import clear_profiles

        clear_profiles()

    return _done(clear)


def _pytorch_rows(limit: int) -> list[ProfileRow]:
    from stormlog.context_profiler import get_profile_results

    return [
        ProfileRow(
            name=result.function_name,
            peak_mb=result.peak_memory_usage() / _MIB,
            delta_mb=result.memory_diff() / _MIB,
            duration_ms=result.execution_time * 1000.0,
            call_count=result.call_count,
            recorded_at=float(
                getattr(result.memory_after, "timestamp", None)
                or getattr(result.memory_peak, "timestamp", None)
                or 0.0
            ),
        )
        for result in get_profile_results(limit=limit)
    ]


def _tensorflow_rows(limit: int) -> list[ProfileRow]:
    from stormlog.tensorflow.context_profiler import get_profile_summaries

    rows = []
    for summary in get_profile_summaries(limit=limit):
        calls = max(int(summary.get("calls", 0)), 1)
        rows.append(
            ProfileRow(
                name=str(summary.get("name", "context")),
                peak_mb=float(summary.get("peak_memory", 0.0)),
                delta_mb=float(summary.get("total_memory_used", 0.0)) / calls,
                duration_ms=float(summary.get("total_duration", 0.0)) / calls * 1000.0,
                call_count=int(summary.get("calls", 0)),
                recorded_at=float(summary.get("last_timestamp") or 0.0),
            )
        )
    return rows


def _newest(rows: Callable[[], list[ProfileRow]], limit: int) -> list[ProfileRow]:
    try:
        found = rows()
    except Exception as error:
        logger.debug("Profiles are unavailable: %s", error)
        return []
    found.sort(key=lambda row: row.recorded_at, reverse=True)
    return found[:limit] if limit else found


def _done(action: Callable[[], Any]) -> bool:
    try:
        action()
    except Exception as error:
        logger.debug("Profiles were not cleared: %s", error)
        return False
    return True
