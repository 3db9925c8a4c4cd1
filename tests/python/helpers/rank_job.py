"""Telemetry of a job of several ranks, one of which differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat_cases import v4

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
GIB = 1 << 30


def ranks(count: int, samples: int) -> Iterator[dict[str, Any]]:
    """A job with a GPU a rank, steps, hidden memory, a warning, and one rank with twice the memory."""
    for rank in range(count):
        same = {
            "rank": rank,
            "local_rank": rank,
            "world_size": count,
            "pid": 5000 + rank,
            "session_id": f"s-{rank}",
        }
        for number in range(samples):
            at = START + number * SECOND // 10
            allocated = (20 if rank == 2 else 10) * GIB + number % 7 * (GIB >> 4)
            yield v4(
                **same,
                timestamp_ns=at,
                allocator_allocated_bytes=allocated,
                allocator_reserved_bytes=allocated + GIB,
                device_used_bytes=allocated + 3 * GIB,
                device_free_bytes=40 * GIB - allocated,
                device_total_bytes=80 * GIB,
                context=None,
            )
            if number % 20 in (3, 17):
                kind = "phase_enter" if number % 20 == 3 else "phase_exit"
                scope: dict[str, Any] = {
                    "name": "step",
                    "path": ["step"],
                    "action": kind.removeprefix("phase_"),
                }
                scope |= {"scope_id": f"s-{rank}:{number // 20}", "sequence": number // 20}
                scope |= {"thread_id": 1, "thread_name": "MainThread"}
                yield v4(**same, timestamp_ns=at + 1, event_type=kind, metadata={"phase_scope": scope})
        yield v4(**same, timestamp_ns=START + SECOND, event_type="warning", context=HOSTILE)
